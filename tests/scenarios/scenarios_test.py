#!/usr/bin/env python3
"""How good the shipped alerts are: scenarios on the simulated device, played in virtual time, scraped
every 15 seconds through the real collector, go through the shipped rules.

    scenarios_test.py SOURCE_DIRECTORY PROGRAM [--seeds 1,2] [--only NAME,...] [--write-docs]

Fails where a request fails that was not announced in time by an alert about its cause, and where a
warning or a critical alert fires though nothing comes of it. GPUPOOL_SOAK=1 takes all five seeds.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "dashboards")]

import report  # noqa: E402
import rules_run  # noqa: E402
from expectations import ANNOUNCED_BY, MAY_FIRE_ONCE  # noqa: E402
from rule_set import RuleSet  # noqa: E402

RULES = "configs/prometheus/rules/gpupool.rules.yml"
ALL_SEEDS = (1, 2, 3, 4, 5)


def families_of(rule_set):
    """The metric families that the rules read; others need not be recorded."""
    text = " ".join([*rule_set.expressions.values(), *rule_set.recordings.values()])
    return sorted(set(re.findall(r"(?<![:\w])gpupool_\w+", text)))


def play(program, families, cases):
    """The recordings of (scenario, seed) pairs."""
    def one(case):
        done = subprocess.run([program, case[0], str(case[1]), *families], check=True, timeout=600,
                              stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        return list(workers.map(one, cases))


def changed_rules(source, folder, *settings):
    command = [source / "configs/rules/generate.py", "--output", folder]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, timeout=20)
    return folder / "gpupool.rules.yml"


def self_check(source, scenarios, recordings, folder):
    """The test itself: with the alerts of a scenario switched off it is reported as missed, and with
    alerts that are told of everything at once benign scenarios are reported."""
    faults = []
    by_name = {recording["scenario"]: recording for recording in recordings}

    def judged(names, *settings):
        chosen = [by_name[name] for name in names if name in by_name]
        rules = changed_rules(source, folder, *settings)
        fired = rules_run.firings(rules, chosen, folder, MAY_FIRE_ONCE)
        return {outcome.scenario: outcome
                for outcome in report.judge_all(scenarios, chosen, fired)}

    missed = ("limit_cut", "holes_after_evaluation")
    off = {f"alerts.{alert}.enabled=false" for name in missed for alert in ANNOUNCED_BY[name]}
    faults += [f"self-check: {name} was not missed without its alerts"
               for name, outcome in judged(missed, *sorted(off)).items() if not outcome.fault]
    hasty = ("alerts.GpupoolFragmentationHigh.window=1m", "alerts.GpupoolFragmentationHigh.for=15s",
             "alerts.GpupoolFragmentationHigh.keep_firing_for=0s", "rules.hysteresis=1.0",
             "alerts.GpupoolTargetDown.for=15s", "alerts.GpupoolTargetDown.settle=1m")
    faults += [f"self-check: no false alarm in {name} with hasty alerts"
               for name, outcome in judged(("hovering", "rank_restart"), *hasty).items()
               if not outcome.fault]
    return faults


def arguments():
    parser = argparse.ArgumentParser(description="Plays scenarios through the alert rules.")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--only", help="scenarios, with commas between")
    parser.add_argument("--write-docs", action="store_true", help="writes the table into the docs")
    parsed = parser.parse_args()
    soaks = os.environ.get("GPUPOOL_SOAK") == "1"
    parsed.seeds = ALL_SEEDS if soaks else [int(seed) for seed in parsed.seeds.split(",")]
    return parsed


def main():
    given = arguments()
    source = given.source.resolve()
    known = json.loads(subprocess.run([given.program, "list"], check=True, timeout=20,
                                      stdout=subprocess.PIPE).stdout)
    scenarios = {scenario["name"]: scenario for scenario in known}
    fails = {name for name, scenario in scenarios.items() if scenario["ending"] != "benign"}
    if fails != set(ANNOUNCED_BY):
        sys.exit(f"expectations.py and the program differ: {fails ^ set(ANNOUNCED_BY)}")
    names = given.only.split(",") if given.only else list(scenarios)
    cases = [(name, seed) for name in names for seed in given.seeds]
    recordings = play(given.program, families_of(RuleSet(source)), cases)
    with tempfile.TemporaryDirectory(prefix="gpupool-scenarios-") as folder:
        folder = pathlib.Path(folder)
        fired = rules_run.firings(source / RULES, recordings, folder, MAY_FIRE_ONCE)
        outcomes = [report.excuse(outcome)
                    for outcome in report.judge_all(scenarios, recordings, fired)]
        print(report.table(outcomes))
        faults = [outcome.fault_text() for outcome in outcomes if outcome.fault]
        if not given.only:
            first = [recording for recording in recordings if recording["seed"] == given.seeds[0]]
            faults += self_check(source, scenarios, first, folder)
    if given.write_docs:
        report.write_docs(source, scenarios, outcomes)
    short = [f"short of the target, as known: {outcome.scenario}, seed {outcome.seed}: "
             f"{outcome.shortfall}" for outcome in outcomes if outcome.shortfall]
    print("\n".join([*short, *faults]))
    if not faults:
        print(f"{len(outcomes)} runs, {len(short)} short of the target: in all others each failure "
              "announced in time, no false alarm")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
