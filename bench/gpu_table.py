#!/usr/bin/env python3
"""Prints one Markdown table from the JSON files that scripts/gpu wrote.

usage: gpu_table.py FOLDER NAME...      reads FOLDER/NAME.json
"""
import json
import pathlib
import statistics
import sys


def rows_of(folder, name):
    by_trace = {}
    text = (pathlib.Path(folder) / f"{name}.json").read_text()
    if not text.strip():
        print(f"{name}: nothing was measured", file=sys.stderr)
        return
    for row in json.loads(text):
        by_trace.setdefault(row["trace"], []).append(row)
    for trace, passes in by_trace.items():
        cold, warm = passes[0], passes[1:] or passes
        times = [p["ns_per_op"] for p in warm if "ns_per_op" in p]
        calls = "driver_calls" if "driver_calls" in cold else "driver_allocations"
        held = max(p["peak_held_bytes"] for p in passes)
        yield {
            "trace": trace,
            "system": name,
            "failed": sum(p.get("failed", 0) for p in passes),
            "ns/op warm, median": f"{statistics.median(times):.0f}" if times else "",
            "driver calls cold": cold[calls],
            "driver calls warm, most": max(p[calls] for p in warm),
            "driver ms cold": f"{1e3 * cold['driver_seconds']:.1f}"
            if "driver_seconds" in cold else "",
            "peak requested MB": f"{cold['peak_requested_bytes'] / 1e6:.0f}",
            "peak held MB": f"{held / 1e6:.0f}",
            "held / requested": f"{held / cold['peak_requested_bytes']:.3f}",
        }


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = [row for name in sys.argv[2:] for row in rows_of(sys.argv[1], name)]
    if not rows:
        sys.exit("nothing was measured")
    rows.sort(key=lambda row: row["trace"])
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(row[c]) for c in columns) + " |")


if __name__ == "__main__":
    main()
