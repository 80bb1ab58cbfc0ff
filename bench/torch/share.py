"""The share of a step that is spent in allocation: one measure for every allocator.

What PyTorch's own allocator is asked for in some steps of training is recorded, in order, and asked of
an allocator again, call by call, through the entry that PyTorch has for others to use its allocator
(torch.cuda.caching_allocator_alloc and _delete, without their Python): it leads to a pluggable
allocator where there is one, and to cudaMalloc and cudaFree with PYTORCH_NO_CUDA_MEMORY_CACHING=1.

In it: all that the allocator does on the CPU, its locks, its calls of the driver, and PyTorch's own
bookkeeping for a pluggable allocator. Not in it: Python, which is timed apart by the same loop around
calls that do nothing; the wait for the device that a call may bring about, as the device is idle here;
and what two threads (forward, backward) do to each other's caches and locks, as there is one here.
Step times have all that, which is why they stand beside the share.
"""
import json
import operator
import pathlib
import statistics
import time

# An allocator may need some until it has settled: what moves pages does so until requests have waited
# for that long enough.
PASSES = 30
SECONDS = 6.0  # after which no further pass is begun


# --- recording ------------------------------------------------------------------------------------


def operations(entries):
    """From a history of PyTorch's (a list of dicts) the requests and frees of it.

    operations: [slot, bytes] of a request, [slot, 0] of a free; before: [slot, bytes] of the blocks
    that are freed though the history does not have their request.
    """
    live, played, before, slots = {}, [], [], 0
    for entry in entries:
        if entry["action"] == "alloc":
            if entry["stream"] != 0:
                raise ValueError("the steps use a stream of their own, which is not played")
            live[entry["addr"]] = slots
            played.append([slots, entry["size"]])
            slots += 1
        elif entry["action"] == "free_requested":
            slot = live.pop(entry["addr"], None)
            if slot is None:
                slot = slots
                before.append([slot, entry["size"]])
                slots += 1
            played.append([slot, 0])
    return {"operations": played, "before": before, "slots": slots}


def record(make, seed, warm, steps, path):
    """Writes what PyTorch's own allocator is asked for in `steps` steps after `warm` others."""
    import torch
    torch.manual_seed(seed)
    workload = make(seed)
    for number in range(warm):
        workload.step(number)
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python")
    for number in range(warm, warm + steps):
        workload.step(number)
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(None)
    recorded = {"steps": steps, **operations(entries)}
    pathlib.Path(path).write_text(json.dumps(recorded), encoding="utf-8")


# --- playing --------------------------------------------------------------------------------------


def play(recorded, allocate, release):
    """Seconds of one pass; afterwards everything is free."""
    held = [0] * recorded["slots"]
    live = set()
    for slot, size in recorded["before"]:
        held[slot] = allocate(size, 0)
    begin = time.perf_counter()
    for slot, size in recorded["operations"]:
        if size:
            held[slot] = allocate(size, 0)
        else:
            release(held[slot])
    seconds = time.perf_counter() - begin
    for slot, size in recorded["operations"]:
        live.add(slot) if size else live.discard(slot)
    for slot in sorted(live):
        release(held[slot])
    return seconds


def passes(recorded, allocate, release):
    """Seconds of passes, after one that only warms up."""
    play(recorded, allocate, release)
    end = time.perf_counter() + SECONDS
    seconds = [play(recorded, allocate, release)]
    while len(seconds) < PASSES and time.perf_counter() < end:
        seconds.append(play(recorded, allocate, release))
    return seconds


def replay(path, allocate=None, release=None):
    """Seconds that the allocator of this process takes for a recorded step."""
    if allocate is None:
        import torch
        torch.cuda.init()
        torch.cuda.synchronize()
        allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
        release = torch._C._cuda_cudaCachingAllocator_raw_delete
    recorded = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    whole = passes(recorded, allocate, release)
    python = passes(recorded, operator.add, operator.index)
    steps = recorded["steps"]
    return {"seconds": (statistics.median(whole) - statistics.median(python)) / steps,
            "python_seconds": statistics.median(python) / steps, "passes": whole,
            "requests": sum(1 for _, size in recorded["operations"] if size) / steps,
            "bytes": sum(size for _, size in recorded["operations"]) / steps}


# --- a cross-check of the one without a pool ------------------------------------------------------


def driver_seconds(step):
    """Of one step under PyTorch's profiler: its seconds, and those in cudaMalloc and cudaFree."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    calls = [row for row in profiler.key_averages() if row.key in ("cudaMalloc", "cudaFree")]
    return {"step": seconds, "driver": sum(row.self_cpu_time_total for row in calls) / 1e6,
            "calls": sum(row.count for row in calls)}
