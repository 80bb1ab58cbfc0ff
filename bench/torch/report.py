"""The results as Markdown, and their place in a document. Needs no PyTorch."""
import json
import pathlib
import sys

import compare
from compare import COMPARED, MIB

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import markdown_text  # noqa: E402  (found in bench)
from markdown_text import table  # noqa: E402

OWNER = "bench/torch/suite.py"
LABELS = {"native": "PyTorch", "expandable": "expandable", "gpupool": "gpupool",
          "mempool": "gpupool as a MemPool", "none": "no pool",
          "no_work": "a plug-in that does nothing"}


def ranged(found, form, scale=1):
    """'median (least-most)'."""
    if found is None:
        return "-"
    middle, least, most = (format(scale * number, form) for number in found)
    return f"{middle} ({least}-{most})"


def time_row(results, name):
    row = [name] + [ranged(compare.seconds(results, one, name), ".1f", 1e3) for one in COMPARED]
    row.append(ranged(compare.ratio(results, "gpupool", "native", name, "seconds"), ".3f"))
    by_step = compare.step_ratio(results, "gpupool", "native", name)
    return row + ["-" if by_step is None else f"{by_step[0]:.3f}"]


def memory_row(results, name):
    """With the CPU's time, for which the other table has no room."""
    row = [name, "equal" if compare.losses_equal(results, name) else "DIFFERENT"]
    cpu = [compare.median(results, one, name, "cpu_seconds") for one in ("native", "gpupool")]
    row.append(" / ".join("-" if one is None else f"{1e3 * one:.0f}" for one in cpu))
    used = [compare.median(results, one, name, "used_bytes") for one in COMPARED]
    row += ["-" if one is None else f"{one / MIB:.0f}" for one in used]
    return row + [ranged(compare.ratio(results, "gpupool", base, name, "used_bytes"), ".3f")
                  for base in ("native", "expandable")]


def check_rows(results):
    rows = []
    for allocator in ("native", "expandable", "gpupool", "mempool"):
        process = results["checks"].get(allocator)
        if process is None:
            rows.append([LABELS[allocator], "-", "no results"])
            continue
        for name, found in process["workloads"].items():
            outcome = found.get("error")
            if outcome is None:
                same = found["losses"] == compare.reference_losses(results, name)
                outcome = "losses equal" if same else "losses DIFFERENT"
                if caught := found.get("caught"):
                    outcome += f"; caught {caught['type']}: {caught['text']}"
            rows.append([LABELS[allocator], name, outcome.replace("|", "/").replace("\n", " ")])
    return rows


def share_text(results):
    rows, requests = [], 0
    for allocator in ("none", *COMPARED, "no_work"):
        if found := compare.share(results, allocator):
            requests = found["requests"]
            rows.append([LABELS[allocator], f"{1e3 * found['first']:.2f}",
                         f"{1e3 * found['last']:.2f}", f"{1e3 * found['step']:.1f}",
                         f"{found['share']:.2%}"])
    if not rows:
        return "The share of a step spent in allocation was not measured."
    text = (f"The mixture of experts, {requests:.0f} requests a step and their frees, played alone:\n\n"
            + table(["allocator", "first pass, ms a step", "last pass", "step, ms", "share, last pass"],
                    rows))
    process = results.get("shares", {}).get("none")
    profile = compare.workload(process, compare.ALLOCATION_WORKLOAD).get("profile") or {}
    if profile.get("step"):
        text += (f"\n\nA step without a pool under PyTorch's profiler: {profile['calls']} calls of "
                 f"cudaMalloc and cudaFree\ntake {1e3 * profile['driver']:.1f} ms of "
                 f"{1e3 * profile['step']:.1f} ms ({profile['driver'] / profile['step']:.1%}), their "
                 "waits for the device included.")
    return text


def tables(results):
    first = next((process for process in results["runs"]["native"] if process), {})
    count = len(results["runs"]["native"])
    found = compare.names(results)
    title = (f"{first.get('device', 'no device')}, PyTorch {first.get('torch', '?')}, "
             f"{count} of {results.get('wanted', count)} rounds: the median, and in brackets the least "
             "and the most.")
    return "\n\n".join([
        title,
        table(["workload", *(f"{LABELS[one]}, ms" for one in COMPARED), "gpupool / PyTorch",
               "by step"], [time_row(results, name) for name in found]),
        table(["workload", "losses", "CPU, ms", *(f"{LABELS[one]}, MiB" for one in COMPARED),
               "over PyTorch", "over expandable"],
              [memory_row(results, name) for name in found]),
        "\n".join(f"- {line}" for line in compare.limits(results)),
        table(["allocator", "check", "outcome"], check_rows(results)),
        share_text(results)])


def write(path, document):
    text = tables(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    markdown_text.replace(document, OWNER, text)
