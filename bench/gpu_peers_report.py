#!/usr/bin/env python3
"""The tables of scripts/gpu-peers for a document.

usage: gpu_peers_report.py table FOLDER                  prints them, in Markdown
       gpu_peers_report.py write FOLDER DOCUMENT.md      writes them between the two marker comments

FOLDER has what gpupool_gpu_peers wrote, a JSON file for each of its parts. The results of fewer than
two devices, of a part of the steps, of fewer rounds than are promised, or with anything wrong in them,
are not written.
"""
import json
import pathlib
import sys

import markdown_text
from markdown_text import table

OWNER = "bench/gpu_peers_report.py"
PARTS = ("devices", "collectives", "times")
MODES = ("eager", "eager-handle", "cudamalloc")
# What is promised (tests/gpu/peers/README.md): steps by mode, rounds, and how much slower than
# cudaMalloc NCCL may be.
STEPS = {("checks", "eager"), ("moved pages", "eager")} | {
    (step, mode) for step in ("copies", "every call") for mode in ("eager", "cudamalloc")} | {
    (step, mode) for mode in MODES
    for step in ("two processes", "collectives", "collectives, registered", "times",
                 "times, registered")}
ROUNDS = 1000
ROUNDS_OF = ("copies", "collectives", "collectives, registered")
TIMINGS = 36
MOST_RATIO = 1.03


def read(folder):
    """The parts as one."""
    whole = {"machine": {}, "steps": [], "timings": [], "faults": 0}
    for name in PARTS:
        try:
            part = json.loads((pathlib.Path(folder) / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.exit(f"{folder}: {name}: {error}")
        whole["machine"].update(part["machine"])
        whole["steps"] += part["steps"]
        whole["timings"] += part.get("timings", [])
        whole["faults"] += part["fault_count"]
    return whole


def is_fine(step):
    return step["faults"] == 0 and step["rounds"] == step["wanted_rounds"]


def step_row(step):
    moved = " + ".join(map(str, step["pages_moved"])) or "-"
    return (step["step"], step["mode"], f"{step['rounds']} of {step['wanted_rounds']}", step["calls"],
            step["others"] or "-", moved, "passed" if is_fine(step) else "WRONG")


def timing_row(timing):
    return (timing["operation"], timing["mode"], "yes" if timing["is_registered"] else "no",
            timing["bytes"] >> 20, f"{timing['pool_us']:.1f}", f"{timing['plain_us']:.1f}",
            f"{timing['ratio']:.3f}", f"{timing['plain_spread']:.1%}")


def report(whole):
    machine = "; ".join(f"{name}: {what}" for name, what in whole["machine"].items())
    return "\n\n".join([
        machine + ".",
        table(["step", "mode", "rounds", "calls of the pools", "of threads beside", "pages moved",
               "result"], map(step_row, whole["steps"])),
        table(["operation", "mode", "registered", "MiB", "pool, us", "cudaMalloc, us", "ratio",
               "spread"], map(timing_row, whole["timings"]))])


def write(whole, document):
    if sum(name.startswith("device ") for name in whole["machine"]) < 2:
        sys.exit("these are not the results of two devices: not written")
    missing = STEPS - {(step["step"], step["mode"]) for step in whole["steps"]}
    if missing or len(whole["timings"]) != TIMINGS:
        sys.exit(f"{len(missing)} steps were not run, and {len(whole['timings'])} of {TIMINGS} timings"
                 " were: not written")
    if whole["faults"] or not all(map(is_fine, whole["steps"])):
        sys.exit("not all passed: not written")
    if any(step["rounds"] < ROUNDS for step in whole["steps"] if step["step"] in ROUNDS_OF):
        sys.exit(f"a step had fewer than {ROUNDS} rounds: not written")
    if any(timing["ratio"] > MOST_RATIO for timing in whole["timings"]):
        sys.exit(f"an operation took more than {MOST_RATIO} of cudaMalloc's time: not written")
    markdown_text.replace(document, OWNER, report(whole))


def main(arguments):
    if arguments[:1] == ["table"] and len(arguments) == 2:
        print(report(read(arguments[1])))
    elif arguments[:1] == ["write"] and len(arguments) == 3:
        write(read(arguments[1]), arguments[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
