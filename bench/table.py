#!/usr/bin/env python3
"""Prints one table of what `scripts/dev bench` measured, beside the targets, which stand here.

usage: table.py FOLDER [--complete]

FOLDER holds JSON files of Google Benchmark, one for each program and round, and that of
instruction_gate.py. A row's figure is the best of its rounds, as what else runs on the machine only
ever adds time; of a row with several threads it is the median, as threads that are kept from running
at the same time do not get into each other's way. --complete: a target of which nothing was measured
is missed, too. Exits 0 where all targets are met, 1 where one is missed, 2 where the input cannot be
read.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import sys

NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""
    name: str
    value: float = None  # None: there is no figure, and why stands in `trouble`
    unit: str = "ns"
    limit: float = None
    at_least: bool = False
    trouble: str = ""

    @property
    def is_missed(self):
        if self.limit is None:
            return False
        if self.value is None:
            return True
        return self.value < self.limit if self.at_least else self.value > self.limit

    def cells(self):
        value, unit = (self.trouble, "") if self.value is None else readable(self.value, self.unit)
        target, verdict = "", ""
        if self.limit is not None:
            bound, bound_unit = readable(self.limit, self.unit)
            bound = bound.rstrip("0").rstrip(".") if "." in bound else bound
            target = f"{'>=' if self.at_least else '<='} {bound} {bound_unit}"
            verdict = "MISSED" if self.is_missed else "ok"
        return self.name, value, unit, target, verdict


# The first pattern that is a row's whole name gives its target, in the unit that the row has.
ROW_TARGETS = (
    (r"(shared_)?pair/(512|4096|65536)", 12),
    (r"(shared_)?pair/(131072|1048576)", 16),
    (r"dlopen_pair/(512|4096|65536|131072|1048576)", 20),
    (r"(shared_|dlopen_)?pair/\d+", 80),
    (r"producer_consumer/.*", 40),
    (r"replay/.*", 30),
    (r"scrape/1000000", 200_000),
)

# A row, the row it is held against, how, and the bound.
COMPARISONS = (
    ("pair/4096", "mimalloc_pair/4096", "ratio", 2),
    ("live_blocks/1000000", "live_blocks/100", "ratio", 1.5),
    ("distinct_sizes/200000", "distinct_sizes/0", "ratio", 1.5),
    ("pair_threads/2", "pair_threads/1", "speed-up", 1.8),
    # An allocation and a free at 1 ns each.
    *((f"pair/{size}", f"stats_off_pair/{size}", "difference", 2)
      for size in (512, 4096, 65536, 131072, 1048576, 16777216)),
)

REPLAY_MEAN_NS = 22

# Of these the wall clock counts, and the median; else the thread's own time, which what else runs on
# the machine disturbs less.
SEVERAL_THREADS = re.compile(r"producer_consumer|pair_threads")


class BadInput(Exception):
    pass


def figure_of(run):
    """(value, unit) of one run of a benchmark."""
    if "million_pairs_per_s" in run:
        return run["million_pairs_per_s"], "M/s"
    if "ns_per_op" in run:
        return run["ns_per_op"], "ns"
    time = "real_time" if SEVERAL_THREADS.match(run["name"]) else "cpu_time"
    return run[time] * NS[run["time_unit"]], "ns"


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {error}") from error


def rows_of_benchmarks(runs):
    """One row a name, in the order of their first run."""
    by_name = {}
    for run in runs:
        if run.get("run_type", "iteration") == "iteration":
            by_name.setdefault(run["name"], []).append(run)
    for name, repetitions in by_name.items():
        limit = next((limit for pattern, limit in ROW_TARGETS if re.fullmatch(pattern, name)), None)
        good = [run for run in repetitions if not run.get("error_occurred")]
        if not good:
            reason = repetitions[0].get("error_message", "failed")
            yield Row(name, limit=limit, trouble=reason)
            continue
        values, units = zip(*map(figure_of, good))
        choose = statistics.median if SEVERAL_THREADS.match(name) else min
        yield Row(name, choose(values), units[0], limit)


def comparison(rows, name, base, how, bound):
    unit = "ns" if how == "difference" else "x"
    at_least = how == "speed-up"
    label = f"{name} {'-' if how == 'difference' else '/'} {base}"
    values = [rows[key].value if key in rows else None for key in (name, base)]
    if None in values:
        return Row(label, None, unit, bound, at_least, "not measured")
    value = values[0] - values[1] if how == "difference" else values[0] / values[1]
    return Row(label, value, unit, bound, at_least)


def rows_of_comparisons(rows, complete):
    for name, base, how, bound in COMPARISONS:
        if complete or (name in rows and base in rows):
            yield comparison(rows, name, base, how, bound)
    replays = [row.value for name, row in rows.items() if name.startswith("replay/")]
    if replays and None not in replays:
        yield Row(f"replay, mean of {len(replays)}", statistics.mean(replays), "ns",
                  REPLAY_MEAN_NS)


def rows_of_instructions(results):
    for result in results:
        limit = result["ceiling"] if result["goal"] is None else result["goal"]
        yield Row(result["name"], result["value"], result["unit"] or "instr", limit)


def untouched_targets(rows):
    """A row for each target that no row has."""
    for pattern, limit in ROW_TARGETS:
        if not any(re.fullmatch(pattern, name) for name in rows):
            yield Row(pattern, limit=limit, trouble="not measured")


def read_rows(folder, complete):
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder")
    runs, instructions = [], []
    for path in sorted(folder.glob("*.json")):
        content = read_json(path)
        if isinstance(content, dict) and "benchmarks" in content:
            runs += content["benchmarks"]
        elif isinstance(content, list):
            instructions += content
        else:
            raise BadInput(f"{path}: neither of Google Benchmark nor of instruction_gate.py")
    try:
        rows = {row.name: row for row in rows_of_benchmarks(runs)}
        result = [*rows.values(), *rows_of_comparisons(rows, complete),
                  *rows_of_instructions(instructions)]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{folder}: a result lacks {error}") from error
    if not result:
        raise BadInput(f"{folder}: nothing was measured")
    return result + list(untouched_targets(rows) if complete else ())


def readable(value, unit):
    """(number, unit), with three digits that matter, in the unit that a person would choose."""
    if unit == "ns":
        unit = next((name for name in ("s", "ms", "us") if abs(value) >= NS[name]), "ns")
        value /= NS[unit]
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}", unit


def text_of(rows):
    """Names to the left, numbers to the right, units below each other."""
    lines = [("benchmark", "measured", "", "target", ""), *(row.cells() for row in rows)]
    # The reason why there is no figure may be long; it does not widen its column.
    widths = [max(len(line[column]) for line in lines if column != 1 or len(line[1]) <= 12)
              for column in range(5)]
    text = [f"{name:<{widths[0]}}  {value:>{widths[1]}} {unit:<{widths[2]}}  "
            f"{target:<{widths[3]}}  {verdict}".rstrip()
            for name, value, unit, target, verdict in lines]
    text.insert(1, "-" * (sum(widths) + 7))
    return "\n".join(text)


def main(words):
    parser = argparse.ArgumentParser(usage="table.py FOLDER [--complete]")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--complete", action="store_true")
    arguments = parser.parse_args(words)
    try:
        rows = read_rows(arguments.folder, arguments.complete)
    except BadInput as error:
        print(f"table: {error}", file=sys.stderr)
        return 2
    print(text_of(rows))
    targets = [row for row in rows if row.limit is not None]
    missed = sum(row.is_missed for row in targets)
    print(f"\n{len(targets)} targets, {len(targets) - missed} met, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
