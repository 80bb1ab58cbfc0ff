#!/usr/bin/env python3
"""Cases E10 and the like, with the real rules: fragmentation that hovers around its threshold for two
hours makes at most one alert, also where every fifth scrape is lost, and lost scrapes by themselves
make none. The same with neither window nor keep_firing_for makes many: the test can tell.

    hovering_test.py SOURCE_DIRECTORY
"""
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from rule_set import RuleSet

INTERVAL = 15
EVALUATION = 30
HOURS = 2
SCRAPES = HOURS * 3600 // INTERVAL
ALERT = "GpupoolFragmentationHigh"
RULES = "configs/prometheus/rules/gpupool.rules.yml"
GIB = 1 << 30


def swing(period_scrapes, middle=0.5, height=0.02):
    return [middle + height * math.sin(2 * math.pi * i / period_scrapes) for i in range(SCRAPES)]


def noise(seed, middle=0.5, height=0.02):
    chance = random.Random(seed)
    return [middle + chance.uniform(-height, height) for _ in range(SCRAPES)]


def wander(seed):
    """Stays within 0.48 and 0.52, and moves a little at each step."""
    chance, value, values = random.Random(seed), 0.5, []
    for _ in range(SCRAPES):
        value = min(0.52, max(0.48, value + chance.uniform(-0.004, 0.004)))
        values.append(value)
    return values


# Name to (values, threshold of the process).
COURSES = {
    "CaseE10 0.58 and 0.62 every 30 s around 0.6": (
        [0.58 if i // 2 % 2 else 0.62 for i in range(SCRAPES)], 0.6),
    "0.48 and 0.52 in turn around 0.5": ([0.48 if i % 2 else 0.52 for i in range(SCRAPES)], 0.5),
    **{f"a swing of {minutes} minutes around 0.5": (swing(minutes * 4), 0.5)
       for minutes in (7, 20, 45)},
    "noise around 0.5": (noise(1), 0.5),
    "noise just above 0.5": (noise(2, 0.505), 0.5),
    **{f"a walk between 0.48 and 0.52, seed {seed}": (wander(seed), 0.5) for seed in (1, 2, 3)},
}


def values_text(values, loses_scrapes):
    """A lost scrape marks each series of its target as gone."""
    return " ".join("stale" if loses_scrapes and i % 5 == 4 else f"{value:.6g}"
                    for i, value in enumerate(values))


def series(selector, text):
    return f"      - series: '{selector}'\n        values: '{text}'\n"


def process_series(instance, values, threshold, loses_scrapes):
    """What one process exports, whose fragmentation takes this course."""
    labels = f'job="train", instance="{instance}", job_id="7", device="0", pool="default"'
    level = {f"gpupool_{name}_bytes": size * GIB for name, size in
             (("limit_in_force", 80), ("allocated", 60), ("pending_free", 0), ("cached", 0))}
    text = series(f"gpupool_fragmentation_ratio{{{labels}}}", values_text(values, loses_scrapes))
    text += series(f'gpupool_alert_threshold{{{labels}, alert="{ALERT}"}}',
                   values_text([threshold] * SCRAPES, loses_scrapes))
    for metric, size in level.items():
        text += series(f"{metric}{{{labels}}}", values_text([size] * SCRAPES, loses_scrapes))
    up = " ".join("0" if loses_scrapes and i % 5 == 4 else "1" for i in range(SCRAPES))
    return text + series(f'up{{job="gpupool", instance="{instance}", job_id="7"}}', up)


def test_text(rules):
    """Every course is a process of its own, in one test: how often did which alert begin?"""
    text = f"rule_files:\n  - {rules}\nevaluation_interval: {EVALUATION}s\n\ntests:\n"
    text += f"  - interval: {INTERVAL}s\n    input_series:\n"
    questions = question("")  # alerts of a whole job have no instance
    for name, (values, threshold) in COURSES.items():
        for loses_scrapes in (False, True):
            instance = name + (", every fifth scrape lost" if loses_scrapes else "")
            text += process_series(instance, values, threshold, loses_scrapes)
            questions += question(instance)
    return f"{text}    promql_expr_test:\n{questions}"


def question(instance):
    """How often which alert began to fire. promtool prints what there is instead of nothing."""
    firing = f'ALERTS{{alertstate="firing", instance="{instance}"}}'
    starts = f"({firing} unless {firing} offset {EVALUATION}s)[{HOURS}h:{EVALUATION}s]"
    return (f"      - expr: sum by (alertname, instance) (count_over_time({starts}))\n"
            f"        eval_time: {HOURS}h\n        exp_samples: []\n")


def begun(rules, folder):
    """(alert, course) to how often it began to fire."""
    test = folder / "hovering_test.yml"
    test.write_text(test_text(rules))
    done = subprocess.run(["promtool", "test", "rules", test], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=100, check=False)
    found = re.findall(r'\{alertname="(\w+)", instance="([^"]*)"\} (\S+)', done.stdout)
    if not found and done.returncode != 0:
        sys.exit(done.stdout)
    return {(alert, course): float(count) for alert, course, count in found}


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="gpupool-hovering-") as folder:
        folder = pathlib.Path(folder)
        counts = begun(source / RULES, folder)
        bare = [source / "configs/rules/generate.py", "--output", folder,
                "--set", "rules.hysteresis=1.0"]
        for name in RuleSet(source).names:
            bare += ["--set", f"alerts.{name}.enabled={'true' if name == ALERT else 'false'}"]
        for setting in ("window=1m", "for=15s", "keep_firing_for=0s"):
            bare += ["--set", f"alerts.{ALERT}.{setting}"]
        subprocess.run(bare, check=True, timeout=20)
        bare_counts = begun(folder / "gpupool.rules.yml", folder)
    faults = [f"{alert} began {count:.0f} times: {course}"
              for (alert, course), count in counts.items() if alert != ALERT or count > 1]
    told_again = [course for (_, course), count in bare_counts.items() if count > 1]
    if len(told_again) < len(COURSES) // 2:
        faults.append(f"without smoothing only {len(told_again)} are told again")
    if not counts:
        faults.append("not one course is above its threshold long enough")
    print("\n".join(faults) if faults else
          f"{2 * len(COURSES)} courses, half of them with lost scrapes: {len(counts)} make one alert, "
          f"the others none; {len(told_again)} would be told again without smoothing")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
