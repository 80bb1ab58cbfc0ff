#!/usr/bin/env python3
"""Trains the workloads with each allocator in turn, and compares losses, step time and memory.

usage: suite.py run OUTPUT_FOLDER [--runs N] [--limit SECONDS] [--config YAML] [--workloads a,b]
       suite.py table RESULTS.json                prints the tables, in Markdown
       suite.py write RESULTS.json DOCUMENT.md    writes them between the two marker comments

`run` first runs the checks and what the share of a step spent in allocation needs, then the rounds: a
process for each allocator, in an order that changes from round to round. No round is begun that would
not end within the limit. The exit status is 0 only where everything ran with gpupool and all its losses
are PyTorch's own to the last bit; whether the figures are within their limits is said, and no more.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import compare
import report
from compare import COMPARED

HERE = pathlib.Path(__file__).resolve().parent
TIMED = "gpt2,resnet50,checkpointing,experts,side_streams,graphs"
CHECKS = "graphs,workers,out_of_memory"
AS_MEMPOOL = "gpt2,resnet50,experts,side_streams"


def train(folder, allocator, number, workloads, config, *more):
    """The results of one process; None, and a note on the terminal, where it did not end well."""
    path = folder / f"{allocator}-{number}.json"
    path.unlink(missing_ok=True)  # one of an earlier run is none of this one
    command = [sys.executable, str(HERE / "train.py"), "--allocator", allocator, "--workloads",
               workloads, "--json", str(path), *more]
    if config and allocator in ("gpupool", "mempool"):
        command += ["--config", config]
    try:
        code = subprocess.run(command, timeout=240, check=False).returncode
    except subprocess.TimeoutExpired:
        code = "a time-out"
    if code != 0:
        print(f"suite.py: {allocator}, run {number}: ended with {code}", flush=True)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() and code == 0 else None


def order_of(number):
    """ABC, CAB, BCA: each allocator is first, second and third equally often, so that what changes
    slowly is no one's advantage."""
    turn = -number % len(COMPARED)
    return COMPARED[turn:] + COMPARED[:turn]


def has_time(begin, limit, slowest, now):
    """Whether a further round, as slow as the slowest so far, ends within the limit."""
    return now - begin + slowest <= limit


class Suite:
    """Runs processes, and keeps what they found on disk after each: a run that is cut off has that."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = pathlib.Path(arguments.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begin = time.monotonic()
        self.results = {"wanted": arguments.runs, "runs": {one: [] for one in COMPARED},
                        "checks": {}, "shares": {}}

    def train(self, allocator, number, workloads, *more):
        return train(self.folder, allocator, number, workloads, self.arguments.config, *more)

    def save(self):
        path = self.folder / "training.json"
        path.write_text(json.dumps(self.results), encoding="utf-8")

    def say(self, what):
        print(f"suite.py: {what} [{time.monotonic() - self.begin:.0f} s]", flush=True)

    def run_checks(self):
        recorded = self.folder / "allocations.json"
        recorded.unlink(missing_ok=True)
        checks = self.results["checks"]
        # PyTorch's own comes first: it writes what the others play.
        for allocator in COMPARED:
            more = ["--record", str(recorded)] if allocator == "native" else []
            checks[allocator] = self.train(allocator, "checks", CHECKS, "--replay", str(recorded), *more)
            self.save()
        checks["mempool"] = self.train("mempool", "checks", AS_MEMPOOL)
        self.save()
        # A step that calls the driver for each block is slow: fewer of them.
        self.results["shares"]["none"] = self.train(
            "none", "share", compare.ALLOCATION_WORKLOAD, "--replay", str(recorded), "--profile",
            "--warm", "3", "--steps", "6")
        if os.environ.get("GPUPOOL_TORCH_NO_WORK"):
            self.results["shares"]["no_work"] = self.train("no_work", "share", "", "--replay",
                                                           str(recorded))
        self.save()

    def run_rounds(self):
        slowest = 0.0
        for number in range(self.arguments.runs):
            begin = time.monotonic()
            if not has_time(self.begin, self.arguments.limit, slowest, begin):
                self.say(f"no time for round {number + 1}")
                return
            found = {one: self.train(one, number + 1, self.arguments.workloads or TIMED)
                     for one in order_of(number)}
            for one in COMPARED:
                self.results["runs"][one].append(found[one])
            self.save()
            slowest = max(slowest, time.monotonic() - begin)

    def run(self):
        self.say("checks, and the share of a step spent in allocation")
        self.run_checks()
        self.say("rounds")
        self.run_rounds()
        self.say("done")
        print(report.tables(self.results))
        problems = compare.find_problems(self.results)
        for problem in problems:
            print("suite.py:", problem)
        return 1 if problems else 0


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run")
    command.add_argument("folder")
    command.add_argument("--runs", type=int, default=5)
    command.add_argument("--limit", type=float, default=540, metavar="SECONDS")
    command.add_argument("--config")
    command.add_argument("--workloads")
    commands.add_parser("table").add_argument("results")
    command = commands.add_parser("write")
    command.add_argument("results")
    command.add_argument("document")
    arguments = parser.parse_args(words)
    if arguments.command == "run":
        return Suite(arguments).run()
    if arguments.command == "table":
        results = pathlib.Path(arguments.results).read_text(encoding="utf-8")
        print(report.tables(json.loads(results)))
    else:
        report.write(arguments.results, arguments.document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
