"""Takes a workload's steps, and measures them: losses, time and memory.

A step is begun when the last but one has ended, and nothing else is waited for: the device has always
a whole step before it, so that a step takes what the device needs wherever that is more than the CPU
needs to ask for it. And as the CPU is never further ahead, what frees have to wait for the device
(record_stream) does not grow with how fast the CPU is.

A time is that of all timed steps from one synchronisation to another, over their number. The marks
between the steps are CUDA events, which tell one step from another. CPU time is what of it was not
spent waiting for a mark: a workload with a step time far above it is bound by the device.

The bytes are what the device has given to this process while the workload ran beyond what it had given
before (cudaMemGetInfo, at the end of each step that is not timed, and at the end): the same measure
for every allocator.
"""
import gc
import time

import torch


def used_bytes():
    free, total = torch.cuda.mem_get_info()
    return total - free


def allocations():
    """How many blocks PyTorch's own allocator has handed out; None with another."""
    try:
        return torch.cuda.memory_stats()["allocation.all.allocated"]
    except (RuntimeError, KeyError):
        return None


def mark():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def take(workload, numbers, after_each=lambda: None):
    """(losses, marks, seconds waited): the losses on the device, a mark more than steps."""
    losses, marks, waited = [], [mark()], 0.0
    for number in numbers:
        if len(marks) > 1:
            begin = time.perf_counter()
            marks[-2].synchronize()
            waited += time.perf_counter() - begin
        losses.append(workload.step(number))
        marks.append(mark())
        after_each()
    return losses, marks, waited


def settle():
    """What runs before left, and what an allocator keeps of it, is to be no part of what follows."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def run(make, seed, warm, steps):
    """The figures of one workload made anew: `warm` steps, and `steps` that are timed."""
    settle()
    torch.manual_seed(seed)
    base, most = used_bytes(), 0

    def look():
        nonlocal most
        most = max(most, used_bytes() - base)

    workload = make(seed)
    losses, _, _ = take(workload, range(warm), look)
    torch.cuda.synchronize()
    gc.collect()
    asked_before = allocations()
    gc.freeze()  # a full collection in the middle would only look at the warm steps' objects
    try:
        begin = time.perf_counter()
        more, marks, waited = take(workload, range(warm, warm + steps))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    finally:
        gc.unfreeze()
    look()
    losses = torch.stack(losses + more).tolist()
    result = {"losses": [loss.hex() for loss in losses], "seconds": seconds / steps,
              "cpu_seconds": (seconds - waited) / steps, "used_bytes": most,
              "step_ms": [one.elapsed_time(other) for one, other in zip(marks, marks[1:])]}
    if asked_before is not None:
        result["allocations_a_step"] = (allocations() - asked_before) / steps
    if hasattr(workload, "caught"):
        result["caught"] = workload.caught
    return result, workload
