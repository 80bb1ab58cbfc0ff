#!/usr/bin/env python3
"""A past for the pictures: jobs of tests/scenarios as a Prometheus would have scraped them.

    past.py SCENARIOS_PROGRAM FOLDER [HOURS]   writes FOLDER/tsdb, whose end is now

Of more hours than a job runs, each job runs again and again until they are full, and of more than 6 one
value a minute is kept.

The jobs run on simulated devices, in virtual time, through the real collector; which alert fired, and
from when on, is what promtool says of the shipped rules.
"""
import json
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/scenarios"), str(ROOT / "tests/dashboards")]

import rules_run  # noqa: E402

SCRAPE = 15
USUAL_HOURS = 4
AWAY = 300  # seconds between two runs of a job
# A restart of one rank of four, a leak, fragmentation that is found late, a stream that hangs, and two
# that are well: scenario, seed, and the name that the job has in the pictures.
JOBS = (("rank_restart", 1, "pretrain"), ("slow_leak", 1, "leaking"),
        ("shrinking_cache", 5, "rag-cache"), ("hung_stream", 4, "hung"),
        ("steady_serving", 1, "chat"), ("evaluation_each_hour", 2, "finetune"))
# Of the exporter, which scenarios do without.
QUIET = {"gpupool_config_last_reload_successful": 1, "gpupool_collect_errors_total": 0,
         'gpupool_series_dropped_total{reason="limit"}': 0, "gpupool_collect_duration_seconds": 0.001}


def expand(text):
    """promtool's notation to one value a scrape, None where there is none."""
    for word in text.split():
        if word == "stale":
            yield None
        elif word.startswith("_x"):
            yield from [None] * int(word[2:])
        elif "x" in word:
            first, step, count = re.fullmatch(r"(-?[\d.e]+?(?:e[+-]?\d+)?)([+-][\d.e]+)?x(\d+)",
                                              word).groups()
            yield from (float(first) + i * float(step or 0) for i in range(int(count) + 1))
        else:
            yield float(word)


def families():
    text = (ROOT / "docs/METRICS.md").read_text()
    names = re.findall(r"^\| `(gpupool_\w+)` \| (\w+)", text, re.M)
    return [name for name, kind in names if kind != "histogram"] + [
        "gpupool_driver_call_duration_seconds_bucket"]


def lines_of(recording, end, kept, every):
    """Lines of OpenMetrics text of one job that ends at `end`: those from `kept` on, one `every`."""
    begin = end - recording["ends"]
    targets = {}
    for selector, text in recording["series"]:
        name, labels = selector.split("{", 1)
        labels = re.sub(r'(\w+)=""(, )?', "", labels).rstrip(", }")
        points = [(begin + SCRAPE * i, value) for i, value in enumerate(expand(text))
                  if value is not None and i % every == 0 and begin + SCRAPE * i > kept]
        if name == "up":
            targets[labels] = points
        if name.endswith("_timestamp_seconds"):
            points = [(at, at) for at, _ in points]
        elif name == "gpupool_start_time_seconds":
            points = [(at, begin + value) for at, value in points]
        names = [name]
        if name == "gpupool_driver_seconds_total":  # the histogram has the same sum
            names.append("gpupool_driver_call_duration_seconds_sum")
        if name == "gpupool_process_info":
            labels = re.sub(r", rank=.*", "", labels.replace(", pid=", ", rank=")) \
                if labels.count(" rank=") > 1 else labels
        if name == "gpupool_driver_call_duration_seconds_count":
            last = 'gpupool_driver_call_duration_seconds_bucket'
            yield from (f'{last}{{{labels}, le="+Inf"}} {value:.15g} {at:.3f}\n' for at, value in points)
        for written in names:
            yield from (f"{written}{{{labels}}} {value:.15g} {at:.3f}\n" for at, value in points)
    for labels, points in targets.items():
        for name, value in QUIET.items():
            name, _, own = name.partition("{")
            own = f", {own}" if own else "}"
            yield from (f"{name}{{{labels}{own} {value} {at:.3f}\n" for at, up in points if up)
        yield from ("gpupool_config_last_reload_success_timestamp_seconds"
                    f"{{{labels}}} {begin:.3f} {at:.3f}\n" for at, up in points if up)


def alerts_of(recording, fired, end, kept, every):
    begin = end - recording["ends"]
    target = next(selector for selector, _ in recording["series"] if selector.startswith("up{"))
    for alert in fired:
        labels = target[3:-1] + f', alertname="{alert.alert}", severity="{alert.severity}"'
        at = max(begin + alert.first, kept)
        while at < end:
            yield f'ALERTS{{{labels}, alertstate="firing"}} 1 {at:.3f}\n'
            at += SCRAPE * every


def runs_of(recording, fired, end, hours):
    """Every run of a job in the time, the first one first."""
    kept, every = end - 3600 * hours, 1 if hours <= 6 else 4
    distance = (int(recording["ends"]) + AWAY) // (SCRAPE * every) * SCRAPE * every
    count = 1 if hours <= USUAL_HOURS else -(-3600 * hours // distance)
    for run in reversed(range(count)):
        last = end - run * distance
        yield from lines_of(recording, last, kept, every)
        yield from alerts_of(recording, fired, last, kept, every)


def named(line, names):
    """As OpenMetrics has it, and with the names of the pictures."""
    for old, (job, node) in names.items():
        line = line.replace(f'"{old}"', f'"{job}"').replace(f"node-{old}", node)
    return line.replace('", ', '",')


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    hours = int(sys.argv[3]) if len(sys.argv) > 3 else USUAL_HOURS
    folder.mkdir(parents=True, exist_ok=True)
    recordings = [json.loads(subprocess.run([program, name, str(seed), *families()], check=True,
                                            timeout=300, stdout=subprocess.PIPE).stdout)
                  for name, seed, _ in JOBS]
    names = {recording["job_id"]: (job, f"gpu-node-{index + 1}")
             for index, (recording, (_, _, job)) in enumerate(zip(recordings, JOBS))}
    rules = ROOT / "configs/prometheus/rules/gpupool.rules.yml"
    fired = rules_run.firings(rules, recordings, folder)
    end = int(time.time()) // SCRAPE * SCRAPE
    with open(folder / "past.om", "w", encoding="utf-8") as file:
        for recording, alerts in zip(recordings, fired):
            for line in runs_of(recording, alerts, end, hours):
                file.write(named(line, names))
        file.write("# EOF\n")
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet",
                    folder / "past.om", folder / "tsdb"], check=True, timeout=600)
    (folder / "past.om").unlink()
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    (folder / "past.json").write_text(json.dumps({"end": end, "scrape": SCRAPE if hours <= 6 else 60}))


if __name__ == "__main__":
    main()
