"""Runs recorded series through alert rules with promtool: when did which alert begin to fire?"""
import concurrent.futures
import dataclasses
import functools
import os
import re
import subprocess

SCRAPE_SECONDS = 15
# As the shipped prometheus.yml has it where it is told within a minute or not. Elsewhere less often,
# which costs less in proportion, and tells no earlier.
SUDDEN_EVALUATION = 15
EVALUATION = 30 if os.environ.get("GPUPOOL_SOAK") == "1" else 60
MOST_TOGETHER = 14
FIRING = 'ALERTS{alertstate="firing"}'


@dataclasses.dataclass(frozen=True)
class Firing:
    """One alert of one run."""
    alert: str
    severity: str
    first: float  # second of the run
    begun: int  # how often it began; 0: not counted
    after_cause: float  # the first second at or after the cause at which it fired


def _evaluation(recording):
    return EVALUATION if recording["cause"] is None else SUDDEN_EVALUATION


def _until(recording):
    """The last evaluation that is looked at: before the failing request, else the end."""
    end = recording["ends"] if recording["failure"] is None else recording["failure"]
    step = _evaluation(recording)
    return int(end // step) * step


def _question(name, expression, time):
    """The name comes back as a label."""
    return (f'      - expr: label_replace({expression}, "asked", "{name}", "", "")\n'
            f"        eval_time: {time}s\n        exp_samples: []\n")


def _first_after(since, end, step, selector=FIRING):
    return (f"min by (alertname, severity, job_id) "
            f"(min_over_time(timestamp({selector})[{end - since}s:{step}s]))")


def _questions(recordings, counted):
    step = _evaluation(recordings[0])
    last = max(map(_until, recordings))
    yield _question("first", _first_after(0, last, step), last)
    for recording in recordings:
        firing = FIRING.replace("}", f', job_id="{recording["job_id"]}"}}')
        end = _until(recording)
        if recording["cause"] is not None:
            yield _question("after", _first_after(int(recording["cause"]), end, step, firing), end)
        if recording["scenario"] in counted:
            starts = f"({firing} unless {firing} offset {step}s)[{end}s:{step}s]"
            yield _question("begun", "sum by (alertname, severity, job_id) "
                                     f"(count_over_time({starts}))", end)


def _test_text(rules, recordings, counted):
    text = (f"rule_files:\n  - {rules}\nevaluation_interval: {_evaluation(recordings[0])}s\n\n"
            f"tests:\n  - interval: {SCRAPE_SECONDS}s\n    input_series:\n")
    for recording in recordings:
        for selector, values in recording["series"]:
            text += f"      - series: '{selector}'\n        values: '{values}'\n"
    return text + "    promql_expr_test:\n" + "".join(_questions(recordings, counted))


def _run_some(rules, recordings, counted, folder):
    """(job id, alert, severity) to its answers. The runs are targets of one Prometheus: an
    evaluation costs less than half for each of many of what it costs for one."""
    test = folder / f"{recordings[0]['job_id']}_test.yml"
    test.write_text(_test_text(rules, recordings, counted))
    # Most of promtool's time is its garbage collector's, and there is memory enough.
    done = subprocess.run(["promtool", "test", "rules", test], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=1200, check=False,
                          env={**os.environ, "GOGC": "800"})
    answers = {}
    # promtool prints what there is instead of nothing.
    for labels, value in re.findall(r"(\{alertname=[^}]*\}) (\S+)", done.stdout):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found = answers.setdefault((label["job_id"], label["alertname"], label["severity"]), {})
        found[label["asked"]] = float(value.rstrip(","))
    if done.returncode != 0 and not answers:
        raise RuntimeError(f"promtool on {test}:\n{done.stdout[:2000]}")
    test.unlink()
    return answers


def _together(recordings):
    """Runs of about one length, for as many promtools as there are cores or more."""
    for step in (EVALUATION, SUDDEN_EVALUATION):
        some = sorted((one for one in recordings if _evaluation(one) == step), key=_until)
        size = min(MOST_TOGETHER, -(-len(some) // (os.cpu_count() or 1)))
        yield from (some[i:i + size] for i in range(0, len(some), size or 1))


def firings(rules, recordings, folder, counted=()):
    """For each recording the alerts that fired; how often, where its scenario is in `counted`."""
    answers = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        run = functools.partial(_run_some, rules, counted=counted, folder=folder)
        for some in workers.map(run, _together(recordings)):
            answers.update(some)
    return [sorted((Firing(alert, severity, found["first"], int(found.get("begun", 0)),
                           found.get("after", float("inf")))
                    for (job_id, alert, severity), found in answers.items()
                    if job_id.partition("/")[0] == recording["job_id"]
                    and found["first"] <= _until(recording)), key=lambda firing: firing.first)
            for recording in recordings]
