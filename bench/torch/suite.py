#!/usr/bin/env python3
"""Trains the workloads with each allocator in turn, and compares losses, step time and memory.

usage: suite.py run OUTPUT_FOLDER [--runs N] [--config YAML] [--workloads a,b]
       suite.py table RESULTS.json                prints the tables, in Markdown
       suite.py write RESULTS.json DOCUMENT.md    writes them between the two marker comments

`run` alternates: run 1 of each allocator, run 2 of each, and so on, a process for each. The exit status
is 0 only where everything ran with gpupool and all its losses are PyTorch's own to the last bit.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN = "<!-- begin: written by bench/torch/suite.py, not by hand -->"
END = "<!-- end: written by bench/torch/suite.py -->"
COMPARED = ("native", "expandable", "gpupool")
LABELS = {"native": "PyTorch", "expandable": "PyTorch, expandable segments", "gpupool": "gpupool",
          "mempool": "gpupool as a MemPool", "none": "no pool"}
MIB = 1 << 20
CHECKS = "graphs,workers,out_of_memory"


# --- running --------------------------------------------------------------------------------------


def train(folder, allocator, number, workloads, config, *more):
    """The results of one process; None, and a note on the terminal, where it did not end well."""
    path = folder / f"{allocator}-{number}.json"
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
    return json.loads(path.read_text()) if path.exists() and code == 0 else None


def run(arguments):
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    timed = arguments.workloads or "gpt2,resnet50,checkpointing,experts,side_streams,graphs"
    runs = {allocator: [] for allocator in COMPARED}
    for number in range(arguments.runs):
        for allocator in COMPARED:
            runs[allocator].append(train(folder, allocator, number, timed, arguments.config))
    checks = {allocator: train(folder, allocator, "checks", CHECKS, arguments.config)
              for allocator in COMPARED}
    checks["mempool"] = train(folder, "mempool", "checks",
                              "gpt2,resnet50,experts,side_streams", arguments.config)
    shares = {allocator: train(folder, allocator, "share", "experts", arguments.config, "--profile")
              for allocator in ("none", "native")}
    results = {"runs": runs, "checks": checks, "shares": shares}
    path = folder / "training.json"
    path.write_text(json.dumps(results), encoding="utf-8")
    problems = find_problems(results)
    print(tables(results))
    for problem in problems:
        print("suite.py:", problem)
    return 1 if problems else 0


# --- comparing ------------------------------------------------------------------------------------


def workload(results, name):
    """That of one process, or {} where it failed."""
    found = (results or {}).get("workloads", {}).get(name, {})
    return {} if "error" in found else found


def reference_losses(results, name):
    for process in results["runs"]["native"] + [results["checks"]["native"]]:
        if losses := workload(process, name).get("losses"):
            return losses
    return None


def find_problems(results):
    problems = []
    processes = [(f"gpupool, run {number}", process)
                 for number, process in enumerate(results["runs"]["gpupool"])]
    processes += [(f"{name}, checks", results["checks"][name]) for name in ("gpupool", "mempool")]
    for title, process in processes:
        if process is None:
            problems.append(f"{title}: no results")
            continue
        for name, found in process["workloads"].items():
            if "error" in found:
                problems.append(f"{title}, {name}: {found['error']}")
            elif found["losses"] != reference_losses(results, name):
                problems.append(f"{title}, {name}: losses differ from PyTorch's own allocator")
            elif name == "out_of_memory" and not found.get("caught"):
                problems.append(f"{title}, {name}: nothing was refused")
    return problems


def seconds(results, allocator, name):
    """Of a step, the mean of each run; their median."""
    means = [statistics.mean(found["step_seconds"]) for process in results["runs"][allocator]
             if (found := workload(process, name))]
    return statistics.median(means) if means else None


def most_bytes(results, allocator, name):
    used = [found["used_bytes"] for process in results["runs"][allocator]
            if (found := workload(process, name))]
    return statistics.median(used) if used else None


def ratio(value, base):
    return "" if value is None or not base else f" ({value / base:.3f})"


def comparison_row(results, name):
    times = {allocator: seconds(results, allocator, name) for allocator in COMPARED}
    used = {allocator: most_bytes(results, allocator, name) for allocator in COMPARED}
    losses = [workload(process, name).get("losses") for process in results["runs"]["gpupool"]]
    equal = all(one == reference_losses(results, name) for one in losses)
    row = [name, "equal" if equal else "DIFFERENT"]
    row += ["-" if times[one] is None else f"{1e3 * times[one]:.2f}" for one in COMPARED]
    row[-1] += ratio(times["gpupool"], times["native"])
    row += ["-" if used[one] is None else f"{used[one] / MIB:.0f}" for one in COMPARED]
    row[-1] += ratio(used["gpupool"], used["expandable"])
    return row


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def check_rows(results):
    rows = []
    for allocator in ("native", "expandable", "gpupool", "mempool"):
        process = results["checks"].get(allocator)
        for name, found in (process or {"workloads": {}})["workloads"].items():
            outcome = found.get("error")
            if outcome is None:
                same = found["losses"] == reference_losses(results, name)
                outcome = "losses equal" if same else "losses DIFFERENT"
                if caught := found.get("caught"):
                    outcome += f"; caught {caught['type']}: {caught['text']}"
            rows.append([LABELS[allocator], name, outcome.replace("|", "/")])
    return rows


def share_text(results):
    found = workload(results["shares"].get("none"), "experts").get("profile")
    plain = workload(results["shares"].get("native"), "experts")
    if not found or not plain:
        return "The share of a step spent in allocation was not measured."
    step = statistics.mean(workload(results["shares"]["none"], "experts")["step_seconds"])
    return (f"The mixture of experts without a pool: {found['calls']} calls of cudaMalloc and cudaFree "
            f"a step take {1e3 * found['driver']:.1f} ms of {1e3 * found['step']:.1f} ms "
            f"({found['driver'] / found['step']:.1%}, profiled); a step that is not profiled takes "
            f"{1e3 * step:.1f} ms, and {1e3 * statistics.mean(plain['step_seconds']):.1f} ms with "
            f"PyTorch's own allocator, which is asked for {plain.get('allocations_a_step', 0):.0f} "
            f"blocks a step.")


def tables(results):
    names = next((list(process["workloads"]) for process in results["runs"]["native"] if process), [])
    first = next((process for process in results["runs"]["native"] if process), {})
    head = ["workload", "losses"]
    head += [f"ms a step, {LABELS[one]}" for one in COMPARED]
    head += [f"MiB, {LABELS[one]}" for one in COMPARED]
    parts = [
        f"{first.get('device', 'no device')}, PyTorch {first.get('torch', '?')}, median of "
        f"{len(results['runs']['native'])} alternating runs; in brackets ours over PyTorch's (time) "
        "and over expandable segments' (memory).",
        table(head, [comparison_row(results, name) for name in names]),
        table(["allocator", "check", "outcome"], check_rows(results)),
        share_text(results)]
    return "\n\n".join(parts)


def write(path, document):
    text = tables(json.loads(pathlib.Path(path).read_text()))
    document = pathlib.Path(document)
    old = document.read_text(encoding="utf-8")
    new, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END),
                         lambda _: f"{BEGIN}\n\n{text}\n\n{END}", old, flags=re.S)
    if count != 1:
        sys.exit(f"suite.py: {document} has {count} places for the tables, not one")
    document.write_text(new, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run")
    command.add_argument("folder")
    command.add_argument("--runs", type=int, default=5)
    command.add_argument("--config")
    command.add_argument("--workloads")
    commands.add_parser("table").add_argument("results")
    command = commands.add_parser("write")
    command.add_argument("results")
    command.add_argument("document")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments)
    if arguments.command == "table":
        print(tables(json.loads(pathlib.Path(arguments.results).read_text())))
    else:
        write(arguments.results, arguments.document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
