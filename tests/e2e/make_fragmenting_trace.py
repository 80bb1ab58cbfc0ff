#!/usr/bin/env python3
"""Writes a trace that fragments a pool of 2 GiB, in the format of tools/trace.

    make_fragmenting_trace.py > fragmenting.trace

A service whose requests leave something behind: each takes a buffer and, after it, a small piece of
state that stays. The buffers go, the state stays between the holes. Seconds later the service asks
for one large block (a checkpoint buffer): most of the memory is free, no piece is large enough.

BLOCK_BYTES is two pages of 2 MiB: a hole is whole pages, which stay where they are with recycling off
as long as they are part of a larger handle, and are put together under eager. QUIET_SECONDS is how long an alert has before the request that it
warns of.
"""
import json
import sys

CAPACITY_BYTES = 2 << 30
BLOCK_BYTES = 4 << 20
LARGE_BYTES = 512 << 20
FILL_SECONDS = 7.0  # a Prometheus that has just started finds its targets within 5 s
FREE_SECONDS = 2.0
QUIET_SECONDS = 12.0
AFTER_SECONDS = 30.0  # the failure stays to be seen: the trace does not start again before


def events():
    """(kind, fields, microseconds since the line before)"""
    # Leaves room for nothing of LARGE_BYTES beside the blocks.
    count = (CAPACITY_BYTES - (LARGE_BYTES // 2)) // BLOCK_BYTES
    for i in range(count):
        yield "a", (i, BLOCK_BYTES, 0), FILL_SECONDS * 1e6 / count
    for i in range(0, count, 2):
        yield "f", (i,), FREE_SECONDS * 1e6 / (count // 2)
    yield "a", (count, LARGE_BYTES, 0), QUIET_SECONDS * 1e6
    yield "f", (count,), 1e6
    for i in range(1, count, 2):
        yield "f", (i,), AFTER_SECONDS * 1e6 if i == 1 else 0


def lines():
    """The lines of the trace, header first."""
    made = list(events())
    seconds = sum(wait for _, _, wait in made) / 1e6
    yield "# gpupool allocation trace, version 1\n# source: made by make_fragmenting_trace.py\n"
    yield "# " + json.dumps({"workload": "fragmenting", "seconds": round(seconds, 3)}) + "\n"
    for kind, fields, wait in made:
        yield " ".join([kind, *map(str, fields), str(round(wait))]) + "\n"


if __name__ == "__main__":
    sys.stdout.writelines(lines())
