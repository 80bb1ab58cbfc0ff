"""What the results of several processes say: equal losses or not, and ratios within their limits or not.

A process is what train.py wrote, or None where it did not end well. Round n has run n of each
allocator, one after the other, and a ratio is that of two runs of one round, so that what changes
slowly (clocks, temperature) is in both; of the rounds' ratios the median counts, and its range says
how far two rounds differ. Needs no PyTorch.
"""
import statistics

COMPARED = ("native", "expandable", "gpupool")
MIB = 1 << 20
TIME_LIMIT = 1.01
EXPANDABLE_LIMIT = 1.01
EXPANDABLE_MORE_MIB = 32  # what is let pass all the same, where a workload holds little
NATIVE_LIMIT = 1.0
ALLOCATION_WORKLOAD = "experts"


def workload(process, name):
    """That of one process, or {} where it failed."""
    found = (process or {}).get("workloads", {}).get(name, {})
    return {} if "error" in found else found


def names(results):
    """Of the timed workloads, in their order."""
    found = {}
    for process in results["runs"]["native"] + results["runs"]["gpupool"]:
        found.update(dict.fromkeys((process or {}).get("workloads", {})))
    return list(found)


# --- losses ---------------------------------------------------------------------------------------


def reference_losses(results, name):
    """PyTorch's own, of its first process that has the workload."""
    for process in results["runs"]["native"] + [results["checks"].get("native")]:
        if losses := workload(process, name).get("losses"):
            return losses
    return None


def losses_equal(results, name):
    """Whether all runs of gpupool trained, and as PyTorch's own allocator did, to the last bit."""
    reference = reference_losses(results, name)
    runs = results["runs"]["gpupool"]
    return bool(runs) and reference is not None and all(
        workload(process, name).get("losses") == reference for process in runs)


def find_problems(results):
    """What makes the exit status 1: all of it is about correctness, none about figures."""
    problems = []
    processes = [(f"gpupool, run {number}", process)
                 for number, process in enumerate(results["runs"]["gpupool"], 1)]
    if not processes:
        problems.append("gpupool: no round was run")
    processes += [(f"{name}, checks", results["checks"].get(name)) for name in ("gpupool", "mempool")]
    for title, process in processes:
        if process is None:
            problems.append(f"{title}: no results")
            continue
        for name, found in process["workloads"].items():
            if "error" in found:
                problems.append(f"{title}, {name}: {found['error']}")
            elif reference_losses(results, name) is None:
                problems.append(f"{title}, {name}: PyTorch's own allocator has no losses to compare")
            elif found["losses"] != reference_losses(results, name):
                problems.append(f"{title}, {name}: losses differ from PyTorch's own allocator")
            elif name == "out_of_memory" and not found.get("caught"):
                problems.append(f"{title}, {name}: nothing was refused")
    return problems


# --- figures --------------------------------------------------------------------------------------


def values(results, allocator, name, key):
    """Of each run that has it."""
    return [found[key] for process in results["runs"][allocator]
            if (found := workload(process, name))]


def spread(numbers):
    """(median, least, most), or None."""
    return (statistics.median(numbers), min(numbers), max(numbers)) if numbers else None


def seconds(results, allocator, name):
    """Of a step: (median, least, most) of the runs' means."""
    return spread(values(results, allocator, name, "seconds"))


def median(results, allocator, name, key):
    found = values(results, allocator, name, key)
    return statistics.median(found) if found else None


def rounds(results, allocator, base, name):
    """The two of each round that has both."""
    for one, other in zip(results["runs"][allocator], results["runs"][base]):
        if (first := workload(one, name)) and (second := workload(other, name)):
            yield first, second


def ratio(results, allocator, base, name, key):
    """(median, least, most) of the rounds' ratios, or None."""
    return spread([one[key] / other[key] for one, other in rounds(results, allocator, base, name)
                   if other[key]])


def step_ratio(results, allocator, base, name):
    """As `ratio`, of each round the median over the steps of one step's time over the same step's: one
    step that was held up has no part in it."""
    return spread([statistics.median(step / same for step, same in
                                     zip(one["step_ms"], other["step_ms"]))
                   for one, other in rounds(results, allocator, base, name)])


# --- limits ---------------------------------------------------------------------------------------


def beyond(results, base, key, limit, more=0):
    """(how many workloads were compared, what is said of those beyond the limit)."""
    compared, said = 0, []
    for name in names(results):
        found = ratio(results, "gpupool", base, name, key)
        if found is None:
            continue
        compared += 1
        added = [one[key] - other[key] for one, other in rounds(results, "gpupool", base, name)]
        if found[0] > limit and not (more and statistics.median(added) <= more):
            said.append(f"{name} {found[0]:.3f}")
    return compared, said


def limits(results):
    """A line for each limit: 'within' or 'NOT within', and which workloads are not."""
    checked = (
        (f"time of a step, gpupool over PyTorch <= {TIME_LIMIT:g}",
         beyond(results, "native", "seconds", TIME_LIMIT)),
        (f"memory, gpupool over PyTorch <= {NATIVE_LIMIT:g}",
         beyond(results, "native", "used_bytes", NATIVE_LIMIT)),
        (f"memory, gpupool over expandable segments <= {EXPANDABLE_LIMIT:g},"
         f" or at most {EXPANDABLE_MORE_MIB} MiB more",
         beyond(results, "expandable", "used_bytes", EXPANDABLE_LIMIT, EXPANDABLE_MORE_MIB * MIB)))
    lines = []
    for title, (compared, said) in checked:
        if not compared:
            lines.append(f"{title}: not measured")
        elif said:
            lines.append(f"{title}: NOT within ({', '.join(said)}; {compared} workloads)")
        else:
            lines.append(f"{title}: within ({compared} workloads)")
    return lines


# --- the share of a step that is spent in allocation ----------------------------------------------


def share(results, allocator):
    """{seconds of a step; seconds in allocation of a step of the first and of the last pass; requests},
    or None where either is missing. What does no work has no steps: gpupool's are taken."""
    if allocator == "none":
        process = results.get("shares", {}).get("none")
        step = workload(process, ALLOCATION_WORKLOAD).get("seconds")
    elif allocator == "no_work":
        process = results.get("shares", {}).get("no_work")
        step = median(results, "gpupool", ALLOCATION_WORKLOAD, "seconds")
    else:
        process = results["checks"].get(allocator)
        step = median(results, allocator, ALLOCATION_WORKLOAD, "seconds")
    replay = (process or {}).get("replay") or {}
    if not step or "seconds" not in replay:
        return None
    # Of a pass are as many steps as make of its median what a step takes, Python included.
    steps = statistics.median(replay["passes"]) / (replay["seconds"] + replay["python_seconds"])
    first, last = (replay["passes"][i] / steps - replay["python_seconds"] for i in (0, -1))
    return {"step": step, "first": first, "last": last, "requests": replay["requests"],
            "share": last / step}
