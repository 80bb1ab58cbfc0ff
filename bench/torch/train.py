#!/usr/bin/env python3
"""Trains the workloads in this process with one allocator, and writes what it saw as JSON.

Losses are kept to the last bit. measure.py says how time and memory are measured, share.py how the
share of a step that is spent in allocation is.
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

ALLOCATORS = ("native", "expandable", "gpupool", "mempool", "none", "no_work")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS, required=True)
    parser.add_argument("--workloads", default="")
    parser.add_argument("--warm", type=int, default=10, help="steps that are not timed")
    parser.add_argument("--steps", type=int, help="steps that are timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", help="gpupool's YAML")
    parser.add_argument("--record", metavar="FILE",
                        help="first write there what a mixture of experts asks of the allocator")
    parser.add_argument("--replay", metavar="FILE",
                        help="first time what FILE has, asked of this allocator")
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


def settings():
    """Deterministic, and as little else of the CPU's as can be."""
    import torch
    import torch.utils.deterministic
    # Whatever has no deterministic form is an error; cuDNN's attention is not tried for that.
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.benchmark = False
    # By default new tensors are filled under deterministic settings: a kernel for each request, which
    # would hide what a block had before, and add to a step what no training has.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_num_threads(1)


def attempt(action):
    """What it returns; where it raises, that: the rest is to be measured all the same."""
    try:
        return action()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


def run(name, arguments):
    import measure
    import share
    import workloads
    steps = arguments.steps or workloads.STEPS.get(name, workloads.DEFAULT_STEPS)
    result, workload = measure.run(workloads.WORKLOADS[name], arguments.seed, arguments.warm, steps)
    if arguments.profile:
        number = arguments.warm + steps
        result["profile"] = attempt(lambda: share.driver_seconds(lambda: workload.step(number)))
    return result


def record_and_replay(arguments, results):
    import measure
    import share
    import workloads
    if arguments.record:
        results["record"] = attempt(lambda: share.record(
            workloads.experts, arguments.seed, arguments.warm, workloads.SHAPES, arguments.record))
        measure.settle()
    if arguments.replay:
        results["replay"] = attempt(lambda: share.replay(arguments.replay))
        measure.settle()
    for name in ("record", "replay"):
        if (results.get(name) or {}).get("error"):
            print(f"{arguments.allocator:>10} {name}: {results[name]['error']}", flush=True)


def main():
    started = time.perf_counter()
    arguments = parse()
    prepare(arguments.allocator)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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
    if arguments.allocator == "no_work":
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
            os.environ["GPUPOOL_TORCH_NO_WORK"], "no_work_alloc", "no_work_free"))
    settings()

    import workloads
    names = [name for name in arguments.workloads.split(",") if name] or list(workloads.WORKLOADS)
    if arguments.allocator == "no_work":
        names = []  # its addresses are nobody's memory
    else:
        torch.zeros(1, device="cuda")
    results = {"allocator": arguments.allocator, "torch": torch.__version__,
               "device": torch.cuda.get_device_name(), "workloads": {}}
    print(f"{arguments.allocator:>10} {'start':<14} {time.perf_counter() - started:6.1f} s", flush=True)
    record_and_replay(arguments, results)
    for name in names:
        begin = time.perf_counter()
        with scope():
            results["workloads"][name] = attempt(lambda: run(name, arguments))
        print(f"{arguments.allocator:>10} {name:<14} {time.perf_counter() - begin:6.1f} s",
              results["workloads"][name].get("error", ""), flush=True)
    if arguments.allocator == "gpupool":
        results["memory_stats"] = gpupool.memory_stats()
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
