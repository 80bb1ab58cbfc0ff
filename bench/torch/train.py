#!/usr/bin/env python3
"""Trains the workloads in this process with one allocator, and writes what it saw as JSON.

Losses are kept to the last bit. The bytes of a workload are what the device has given to this process
while it ran beyond what it had given before (cudaMemGetInfo, at the end of each step that is not
timed and at the end): the same measure for every allocator, and none of them gives back meanwhile.
"""
import argparse
import gc
import json
import os
import pathlib
import sys
import time

ALLOCATORS = ("native", "expandable", "gpupool", "mempool", "none")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS, required=True)
    parser.add_argument("--workloads", default="")
    parser.add_argument("--warm", type=int, default=6, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=8, help="steps that are timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", help="gpupool's YAML")
    parser.add_argument("--profile", action="store_true",
                        help="also the time of a step in cudaMalloc and cudaFree")
    parser.add_argument("--json", required=True)
    return parser.parse_args()


def prepare(allocator):
    """Before torch is imported: what it reads from the environment."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        os.environ.pop(name, None)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if allocator == "none":
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"


def used_bytes():
    import torch
    free, total = torch.cuda.mem_get_info()
    return total - free


def driver_seconds(step):
    """Of one step: its seconds, and those in cudaMalloc and cudaFree."""
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


def allocations():
    """How many blocks PyTorch's own allocator has handed out; None with another."""
    import torch
    try:
        return torch.cuda.memory_stats()["allocation.all.allocated"]
    except (RuntimeError, KeyError):
        return None


def run(make, arguments):
    import torch
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.manual_seed(arguments.seed)
    base = used_bytes()
    workload = make(arguments.seed)
    losses, times, most = [], [], 0
    for number in range(arguments.warm + arguments.steps):
        is_timed = number >= arguments.warm
        if number == arguments.warm:
            asked_before = allocations()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = workload.step(number)
        value = loss.item()
        if is_timed:
            times.append(time.perf_counter() - begin)
        else:
            most = max(most, used_bytes() - base)
        losses.append(float(value).hex())
    torch.cuda.synchronize()
    most = max(most, used_bytes() - base)
    result = {"losses": losses, "step_seconds": times, "used_bytes": most}
    if asked_before is not None:
        result["allocations_a_step"] = (allocations() - asked_before) / arguments.steps
    if hasattr(workload, "caught"):
        result["caught"] = workload.caught
    if arguments.profile:
        result["profile"] = driver_seconds(lambda: workload.step(arguments.warm + arguments.steps))
    return result


def main():
    arguments = parse()
    prepare(arguments.allocator)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import contextlib

    import torch
    scope = contextlib.nullcontext
    gpupool = None
    if arguments.allocator in ("gpupool", "mempool"):
        import gpupool.torch as gpupool
        if arguments.allocator == "gpupool":
            gpupool.enable(arguments.config)
        else:
            pool = gpupool.mem_pool(arguments.config)
            scope = lambda: torch.cuda.use_mem_pool(pool)  # noqa: E731
    # Whatever has no deterministic form is an error; cuDNN's attention is not tried for that.
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.benchmark = False
    torch.zeros(1, device="cuda")

    import workloads
    names = [name for name in arguments.workloads.split(",") if name] or list(workloads.WORKLOADS)
    results = {"allocator": arguments.allocator, "torch": torch.__version__,
               "device": torch.cuda.get_device_name(), "workloads": {}}
    for name in names:
        begin = time.perf_counter()
        try:
            with scope():
                results["workloads"][name] = run(workloads.WORKLOADS[name], arguments)
        except Exception as error:  # the others are to be measured all the same
            results["workloads"][name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(f"{arguments.allocator:>10} {name:<14} {time.perf_counter() - begin:6.1f} s",
              results["workloads"][name].get("error", ""), flush=True)
    if arguments.allocator == "gpupool":
        results["memory_stats"] = gpupool.memory_stats()
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
