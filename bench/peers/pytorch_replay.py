#!/usr/bin/env python3
"""Replays allocation traces through PyTorch's caching allocator and prints JSON.

usage: pytorch_replay.py TRACE.trace.gz...

Two passes a trace, everything freed between them, as `gpupool replay` does: `c` lines are ignored.
What is compared is what the allocator holds from the driver and how often it calls it. Times are
not printed: each call goes through Python, which costs more than the allocator.
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True measures the other mode.
"""
import gzip
import json
import os
import sys

import torch


def operations(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as lines:
        for line in lines:
            fields = line.split()
            if fields and fields[0] == "a":
                yield True, fields[1], int(fields[2]), int(fields[3])
            elif fields and fields[0] == "f":
                yield False, fields[1], 0, 0


def replay(path):
    decoded = list(operations(path))
    numbers = sorted({stream for is_allocation, _, _, stream in decoded if is_allocation})
    streams = {n: torch.cuda.default_stream() if n == 0 else torch.cuda.Stream() for n in numbers}
    torch.cuda.empty_cache()
    rows = []
    for index in (1, 2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()
        live, requested, peak_requested = {}, 0, 0
        for is_allocation, block, size, stream in decoded:
            if is_allocation:
                if size == 0:
                    continue
                pointer = torch.cuda.caching_allocator_alloc(size, stream=streams[stream])
                live[block] = (pointer, size)
                requested += size
                peak_requested = max(peak_requested, requested)
            elif block in live:
                pointer, size = live.pop(block)
                torch.cuda.caching_allocator_delete(pointer)
                requested -= size
        for pointer, _ in live.values():
            torch.cuda.caching_allocator_delete(pointer)
        after = torch.cuda.memory_stats()
        rows.append({
            "trace": os.path.basename(path).removesuffix(".gz").removesuffix(".trace"),
            "pass": index,
            "peak_requested_bytes": peak_requested,
            "peak_held_bytes": after["reserved_bytes.all.peak"],
            "driver_allocations": after["num_device_alloc"] - before["num_device_alloc"],
        })
    return rows


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    json.dump([row for path in sys.argv[1:] for row in replay(path)], sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
