#!/usr/bin/env python3
"""Makes one results file of what scripts/gpu measured, and tables of it.

usage: gpu_report.py collect PARTS_FOLDER RESULTS.json   puts the parts of a run together
       gpu_report.py table RESULTS.json                  prints the tables, in Markdown
       gpu_report.py closing RESULTS.json                prints the shortest of them
       gpu_report.py write RESULTS.json DOCUMENT.md      writes them between the two marker comments

PARTS_FOLDER holds peers*.json (gpupool_peers and its siblings), replay-*.json (gpupool replay),
recycling*.json (gpupool_gpu_replay), device.txt (nvidia-smi), tests.log (ctest) and notes.txt (a line
for each thing that is missing); each of them may be absent or cut short, which is then a note in the
results.
"""
import json
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import markdown_text  # noqa: E402  (found beside this file)
import recycling_report  # noqa: E402
from markdown_text import table  # noqa: E402

OWNER = "bench/gpu_report.py"

# In the order of the tables; the best known of each kind, so that one that is missing is named.
SYSTEMS = ("gpupool", "gpupool, maintained in the loop", "gpupool, recycling off",
           "gpupool, raw stream", "PyTorch",
           "PyTorch, expandable segments", "RMM pool", "RMM arena", "cudaMallocAsync", "cudaMalloc")
REPLAYS = {"replay-cuda-vmm": "VMM", "replay-cuda-cudamalloc": "cudaMalloc segments",
           "replay-sim-vmm": "simulated device"}
KIB, MIB = 1 << 10, 1 << 20


# --- collecting -----------------------------------------------------------------------------------


def read_json(path, notes):
    """The parsed file, or None and a note of why not."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = "empty" if path.exists() and not path.read_text().strip() else str(error)
        notes.append(f"{path.name}: {reason}")
        return None


def read_text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def collect(folder):
    folder = pathlib.Path(folder)
    notes = [line for line in read_text(folder / "notes.txt").splitlines() if line]
    results = {"gpu": read_text(folder / "device.txt").strip(), "tests": "", "device": None,
               "machine": None, "cudamalloc_facts": None, "systems": [], "replays": {},
               "recycling": None}
    closing = re.findall(r"^\d+% tests passed.*$", read_text(folder / "tests.log"), re.M)
    results["tests"] = closing[-1] if closing else ""
    for path in sorted(folder.glob("peers*.json")):
        part = read_json(path, notes)
        if part is None:
            continue
        results["systems"] += part.get("systems", [])
        for key in ("device", "machine", "cudamalloc_facts"):
            results[key] = results[key] or part.get(key)
        notes += [f"{left['what']}: {left['why']}" for left in part.get("left_out", [])]
    for path in sorted(folder.glob("replay-*.json")):
        part = read_json(path, notes)
        if part is not None:
            results["replays"][path.stem] = part
    recycling = [read_json(path, notes) for path in sorted(folder.glob("recycling*.json"))]
    results["recycling"] = recycling_report.merge([part for part in recycling if part])
    notes += recycling_report.notes(results["recycling"])
    results["notes"] = notes
    return results


# --- tables ---------------------------------------------------------------------------------------


def number(value, decimals=0):
    return "" if value is None else f"{value:.{decimals}f}"


def size_text(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def ratio_text(part, whole):
    return f"{part / whole:.3f}" if part is not None and whole else ""


def rank(system):
    return SYSTEMS.index(system) if system in SYSTEMS else len(SYSTEMS)


def mark(text, failed):
    """A figure beside which requests failed is no figure."""
    return f"{text} ({failed} failed)" if failed else text


def by_column(systems, part, key, value, column_text, decimals):
    """A row for each system, a column for each value of `key` that any of them has."""
    keys = sorted({entry[key] for system in systems for entry in system[part]})
    rows = []
    for system in systems:
        cells = {entry[key]: mark(number(entry[value], decimals), entry["failed"])
                 for entry in system[part]}
        if cells:
            rows.append([system["system"]] + [cells.get(k, "") for k in keys])
    return table(["system"] + [column_text(k) for k in keys], rows) if rows else ""


def pairs_table(systems):
    return by_column(systems, "pairs", "bytes", "ns_median", size_text, 0)


def threads_table(systems):
    return by_column(systems, "threads", "threads", "million_pairs_per_second", str, 2)


def traces_table(systems):
    columns = ["trace", "system", "ns/op warm", "held / requested", "peak held MB",
               "driver allocations, cold", "warm"]
    rows = []
    for name in sorted({trace["trace"] for system in systems for trace in system["traces"]}):
        for system in systems:
            for trace in (t for t in system["traces"] if t["trace"] == name):
                held = trace["peak_held_bytes"]
                part = trace["operations"] < trace["trace_operations"]
                times = number(trace["ns_per_op_median"])
                rows.append([
                    name, system["system"],
                    mark(f"{times} (first {trace['operations']})" if part else times,
                         trace["failed"]),
                    ratio_text(held, trace["peak_requested_bytes"]),
                    number(held / 1e6 if held is not None else None),
                    number(trace["driver_allocations_cold"]),
                    number(trace["driver_allocations_warm"])])
    return table(columns, rows) if rows else ""


def bursts_table(systems):
    columns = ["system", "us an allocation", "us a free", "ms in all", "cold: us an allocation",
               "us a free", "ms in all"]
    rows = []
    for system in systems:
        burst = system["burst"]
        if burst is None:
            continue
        cells = [number(burst[which][key], decimals) for which in ("warm", "cold")
                 for key, decimals in (("allocate_us", 3), ("free_us", 3), ("total_ms", 2))]
        rows.append([mark(system["system"], burst["failed"])] + cells)
    return table(columns, rows) if rows else ""


def replay_rows(name, passes):
    by_trace = {}
    for entry in passes:
        by_trace.setdefault(entry["trace"], []).append(entry)
    for trace, entries in by_trace.items():
        cold, warm = entries[0], entries[1:] or entries
        held = max(entry["peak_held_bytes"] for entry in entries)
        yield [pathlib.Path(trace).name.removesuffix(".gz").removesuffix(".trace"),
               REPLAYS.get(name, name),
               number(sum(entry["failed"] for entry in entries)),
               number(statistics.median(entry["ns_per_op"] for entry in warm)),
               number(cold["driver_calls"]), number(max(e["driver_calls"] for e in warm)),
               number(1e3 * cold["driver_seconds"], 1),
               number(cold["peak_requested_bytes"] / 1e6), number(held / 1e6),
               ratio_text(held, cold["peak_requested_bytes"])]


def replays_table(replays):
    columns = ["trace", "gpupool", "failed", "ns/op warm", "driver calls, cold", "warm, most",
               "driver ms, cold", "peak requested MB", "peak held MB", "held / requested"]
    rows = [row for name, passes in replays.items() for row in replay_rows(name, passes)]
    return table(columns, sorted(rows)) if rows else ""


def facts_text(facts):
    if not facts:
        return ""
    stalls = [[stall["call"], size_text(stall["bytes"]), number(stall["idle_us"], 1),
               number(stall["busy_us"], 1), f"{stall['waited']} of {stall['rounds']}"]
              for stall in facts["stalls"]]
    columns = ["call", "bytes", "us, idle device",
               f"us, another stream busy for {number(facts['job_ms'])} ms",
               "came back only after that"]
    return "\n\n".join([" ".join(facts["sentences"]), table(columns, stalls)])


def machine_text(machine):
    if not machine:
        return ""
    costs = [("multiplication, dependent", "multiply_ns"),
             ("the same, quickest round", "multiply_ns_least"),
             ("the same, slowest round", "multiply_ns_most"), ("steady_clock", "clock_ns"), ("mutex lock and unlock", "mutex_ns"),
             ("compare-exchange", "compare_exchange_ns"), ("system call", "system_call_ns"),
             ("membarrier, thread asleep", "barrier_asleep_ns"),
             ("membarrier, thread running", "barrier_running_ns"),
             ("page fault", "page_fault_ns"), ("page fault, 1 GiB at once", "page_fault_gib_ns"),
             ("random load, small pages", "load_ns"), ("random load, huge pages", "load_huge_ns")]
    rows = [[name, number(machine[key], 1)] for name, key in costs if machine.get(key) is not None]
    if machine.get("barrier_refusal"):
        rows.append(["membarrier", f"refused: {machine['barrier_refusal']}"])
    line = (f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, clock source "
            f"{machine['clock_source']}, transparent huge pages {machine['huge_pages']}.")
    return line + "\n\n" + table(["what the machine charges", "ns"], rows)


def not_measured(results):
    there = {system["system"] for system in results["systems"]}
    notes = list(results["notes"])
    notes += [f"{system['system']}: {system['error']}" for system in results["systems"]
              if system["error"]]
    missing = [name for name in SYSTEMS if name not in there]
    if missing:
        notes.append("not measured: " + ", ".join(missing))
    return "\n".join(f"- {note}" for note in notes)


def report(results):
    systems = sorted(results["systems"], key=lambda system: rank(system["system"]))
    bursts = [system["burst"] for system in systems if system["burst"]]
    burst_title = "Allocate {} blocks of {}, then free them all".format(
        bursts[0]["blocks"], size_text(bursts[0]["bytes"])) if bursts else ""
    lanes = size_text(systems[0]["threads_bytes"]) if systems else ""
    sections = [
        ("Allocate and free at once, one thread, ns a pair", pairs_table(systems)),
        (f"{lanes} pairs by threads, each with its own stream, million pairs/s in sum",
         threads_table(systems)),
        ("Recorded traces", traces_table(systems)),
        (burst_title, bursts_table(systems)),
        ("`gpupool replay`", replays_table(results["replays"])),
        *recycling_report.sections(results.get("recycling")),
        ("Two statements about cudaMalloc", facts_text(results["cudamalloc_facts"])),
        ("The machine", machine_text(results["machine"])),
        ("Not measured, and why", not_measured(results)),
    ]
    device = results["gpu"] or (results["device"] or {}).get("name", "no device")
    head = "\n".join(line for line in (device, results["tests"]) if line)
    return "\n\n".join([head] + [f"### {title}\n\n{text}" for title, text in sections if text])


def write(results, document):
    if not results["gpu"]:
        sys.exit("these are not the results of a GPU: not written")
    markdown_text.replace(document, OWNER, report(results))


def main(arguments):
    command = arguments[:1]
    if command == ["collect"] and len(arguments) == 3:
        results = collect(arguments[1])
        pathlib.Path(arguments[2]).write_text(json.dumps(results, indent=1) + "\n",
                                              encoding="utf-8")
    elif command == ["table"] and len(arguments) == 2:
        results = json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))
        print(report(results))
    elif command == ["closing"] and len(arguments) == 2:
        results = json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))
        print(recycling_report.closing_table(results.get("recycling")) or "no page recycling")
    elif command == ["write"] and len(arguments) == 3:
        results = json.loads(pathlib.Path(arguments[1]).read_text(encoding="utf-8"))
        write(results, arguments[2])
    else:
        sys.exit(__doc__)
    if not results["systems"] and not results["replays"]:
        sys.exit("nothing was measured")


if __name__ == "__main__":
    main(sys.argv[1:])
