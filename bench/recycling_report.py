"""Tables of what gpupool_gpu_replay measured: pages that are recycled while the card is at work.

Used by gpu_report.py. Each function takes the parsed JSON of the program, or None.
"""
from markdown_text import table

LISTS = ("settings", "runs", "aliases", "chains", "left_out", "faults")
KINDS = ("create", "map", "set_access", "unmap", "release")
# Of the closing table, in its order.
CLOSING = ("off", "eager-wait", "eager-same-stream")


def merge(parts):
    """What several runs of the program measured, as if it were one; None where there is none."""
    if not parts:
        return None
    return {"device": parts[0].get("device"),
            **{key: [entry for part in parts for entry in part.get(key, [])] for key in LISTS}}


def passes_of(run, mode):
    return (run[mode] or {}).get("passes", []) if run else []


def held_ratio(run, mode):
    """The most held by the most requested, of any pass; empty where nothing was played."""
    passes = [p for p in passes_of(run, mode) if p["peak_requested_bytes"]]
    if not passes:
        return ""
    ratio = max(p["peak_held_bytes"] / p["peak_requested_bytes"] for p in passes)
    failed = sum(p["failed"] for p in passes)
    return f"{ratio:.3f} ({failed} failed)" if failed else f"{ratio:.3f}"


def driver_ms(run, mode, which):
    """All driver calls of the cold (0) or the last pass (-1)."""
    passes = passes_of(run, mode)
    if not passes or (which == -1 and len(passes) < 2):
        return ""
    return f"{sum(kind['ns'] for kind in passes[which]['driver'].values()) / 1e6:.1f}"


def wait_share(run, mode):
    """What the allocating thread waited in the last, warm pass, of the recorded run's seconds."""
    passes = passes_of(run, mode)
    if len(passes) < 2 or not run["trace_seconds"]:
        return ""
    return f"{passes[-1]['driver_wait_ns'] / 1e7 / run['trace_seconds']:.2f} %"


def wrong_words(run):
    passes = passes_of(run, "busy")
    return f"{run['busy']['wrong_words']}" if passes else ""


def beside(run, pick):
    """The device's figure, and in brackets the model's."""
    measured, modelled = pick("idle"), pick("modelled")
    return f"{measured} ({modelled})" if measured and modelled else measured or modelled


def by_trace(part):
    traces = {}
    for run in part["runs"]:
        traces.setdefault(run["trace"], {})[run["setting"]] = run
    return sorted(traces.items())


def closing_table(part):
    """One row for each trace: what a reader wants first."""
    if not part or not part["runs"]:
        return ""
    columns = ["trace"] + [f"held / requested, {name}" for name in CLOSING] + [
        "the same at work", "wrong words", "driver ms warm, eager-wait", "eager-same-stream",
        "waited, eager-wait", "eager-same-stream"]
    rows = []
    for trace, runs in by_trace(part):
        wait, same = runs.get("eager-wait"), runs.get("eager-same-stream")
        counts = [run["busy"]["wrong_words"] for run in runs.values() if passes_of(run, "busy")]
        rows.append(
            [trace]
            + [beside(runs.get(name), lambda mode, n=name: held_ratio(runs.get(n), mode))
               for name in CLOSING]
            + [", ".join(held_ratio(runs.get(name), "busy") or "-" for name in CLOSING),
               f"{sum(counts)} in {len(counts)} settings" if counts else "",
               beside(wait, lambda mode, r=wait: driver_ms(r, mode, -1)),
               beside(same, lambda mode, r=same: driver_ms(r, mode, -1)),
               beside(wait, lambda mode, r=wait: wait_share(r, mode)),
               beside(same, lambda mode, r=same: wait_share(r, mode))])
    return table(columns, rows)


def settings_table(part):
    """One row for each trace and setting, with work on every block."""
    if not part or not part["runs"]:
        return ""
    columns = ["trace", "setting", "held / requested", "at work", "wrong words", "pages moved, last pass",
               "served after a wait", "driver ms, cold", "warm", "warm, at work", "waited",
               "waited, at work", "s a pass"]
    rows = []
    for trace, runs in by_trace(part):
        for setting, run in runs.items():
            busy = passes_of(run, "busy")
            if not busy and not passes_of(run, "modelled") and not passes_of(run, "idle"):
                continue
            rows.append([
                trace, setting, beside(run, lambda mode, r=run: held_ratio(r, mode)),
                held_ratio(run, "busy"), wrong_words(run),
                str(busy[-1]["pages_recycled"]) if busy else "",
                str(sum(p["served_after_wait"] for p in busy)) if busy else "",
                beside(run, lambda mode, r=run: driver_ms(r, mode, 0)),
                beside(run, lambda mode, r=run: driver_ms(r, mode, -1)),
                driver_ms(run, "busy", -1),
                beside(run, lambda mode, r=run: wait_share(r, mode)), wait_share(run, "busy"),
                f"{busy[-1]['seconds']:.2f}" if busy else ""])
    return table(columns, rows) if rows else ""


def calls_table(part):
    """What a call of each kind takes: the device's mean in all runs, beside the model's."""
    if not part:
        return ""
    rows = []
    for kind in KINDS:
        cells = []
        for mode in ("modelled", "idle", "busy"):
            figures = [p["driver"][kind] for run in part["runs"] for p in passes_of(run, mode)]
            calls = sum(f["calls"] for f in figures)
            spent = sum(f["ns"] for f in figures)
            cells += [str(calls), f"{spent / 1e3 / calls:.1f}" if calls else ""]
        rows.append([kind] + cells)
    if all(row[1] == row[3] == row[5] == "0" for row in rows):
        return ""
    return table(["call", "modelled: calls", "us each", "device: calls", "us each",
                  "device at work: calls", "us each"], rows)


def aliases_table(part):
    if not part or not part["aliases"]:
        return ""
    rows = [[case["reader"], "the other" if case["is_alias"] else "the same",
             f"{case['rounds_already_there']} of {case['rounds']}",
             f"{case['old_words']} of {case['words']}"] for case in part["aliases"]]
    return table(["reader", "address", "there before the write, rounds", "old words"], rows)


def chains_table(part):
    if not part or not part["chains"]:
        return ""
    rows = [[chain["alias_reuse"], str(chain["links"]), str(chain["pages_recycled"]),
             str(chain["served_after_wait"]), str(chain["wrong_words"])]
            for chain in part["chains"] if not chain["error"]]
    return table(["alias_reuse", "dependent launches", "pages moved", "served after a wait",
                  "wrong words"], rows) if rows else ""


def sections(part):
    """Titles and texts, in the order of a page."""
    return [("Page recycling: the device, and in brackets the simulated one", closing_table(part)),
            ("Page recycling, all settings", settings_table(part)),
            ("What a driver call takes", calls_table(part)),
            ("One page at two addresses", aliases_table(part)),
            ("Dependent launches while pages move", chains_table(part))]


def notes(part):
    if not part:
        return []
    return [f"{left['what']}: {left['why']}" for left in part["left_out"]] + \
        [f"WRONG: {fault['what']}: {fault['why']}" for fault in part["faults"]]
