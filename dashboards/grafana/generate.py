#!/usr/bin/env python3
"""Writes gpupool-process.json, the Grafana dashboard of one process with a gpupool.

    dashboards/grafana/generate.py            writes the file beside this one
    dashboards/grafana/generate.py --check    fails where that file is stale

The file is made, not drawn, so that every panel has the same data source, variables, legend and
units, and a change to a metric is a change to one line here. tests/dashboards runs every
expression against a real Prometheus.
"""
import json
import pathlib
import sys

OUTPUT = pathlib.Path(__file__).with_name("gpupool-process.json")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Which series a panel is about. Families have the labels device and pool unless they are about the
# device, or about the process, as a whole.
POOL = 'job=~"$job", instance=~"$instance", device=~"$device", pool=~"$pool"'
DEVICE = 'job=~"$job", instance=~"$instance", device=~"$device"'
PROCESS = 'job=~"$job", instance=~"$instance"'
ONE = "{{instance}} {{device}}/{{pool}}"  # legend of one pool of one process

RED, ORANGE, GREEN = "red", "orange", "green"


def steps(*pairs):
    """Thresholds: a base colour, then (value, colour) upward."""
    first, rest = pairs[0], pairs[1:]
    return {"mode": "absolute", "steps": [{"color": first, "value": None}]
            + [{"color": color, "value": value} for value, color in rest]}


def targets(queries, instant=False, table=False):
    result = []
    for index, (expr, legend) in enumerate(queries):
        result.append({"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expr,
                       "legendFormat": legend, "instant": instant, "range": not instant,
                       "format": "table" if table else "time_series"})
    return result


def panel(kind, title, description, unit, queries, width, height, **extra):
    defaults = {"unit": unit, "thresholds": extra.get("thresholds", steps(GREEN)),
                "mappings": [], "noValue": extra.get("no_value", "no data")}
    for key in ("min", "max", "decimals", "color"):
        if key in extra:
            defaults[key] = extra[key]
    if "custom" in extra:
        defaults["custom"] = extra["custom"]
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "targets": targets(queries, extra.get("instant", False), extra.get("table", False)),
            "fieldConfig": {"defaults": defaults, "overrides": extra.get("overrides", [])},
            "options": extra.get("options", {}), "transformations": extra.get("transformations", []),
            "gridPos": {"h": height, "w": width, "x": 0, "y": 0}}


def tile(title, description, unit, queries, **extra):
    options = {"colorMode": "value", "graphMode": extra.pop("graph", "area"), "justifyMode": "auto",
               "orientation": "horizontal", "textMode": extra.pop("text", "value"),
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("stat", title, description, unit, queries, extra.pop("width", 4), 5,
                 options=options, **extra)


def graph(title, description, unit, queries, width=12, stack=False, **extra):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 60 if stack else 5,
              "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "normal" if stack else "none", "group": "A"}}
    options = {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                          "calcs": ["lastNotNull", "max"]},
               "tooltip": {"mode": "multi", "sort": "desc" if not stack else "none"}}
    return panel("timeseries", title, description, unit, queries, width, 9, custom=custom,
                 options=options, **extra)


def outside_stack(*names):
    """Lines drawn over a stack: a limit is no part of what it limits."""
    return [{"matcher": {"id": "byName", "options": name},
             "properties": [{"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
                            {"id": "custom.fillOpacity", "value": 0},
                            {"id": "custom.lineWidth", "value": 2},
                            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}]}
            for name in names]


def total(metric, selector=POOL):
    return f"sum({metric}{{{selector}}})"


def rate_by(label, metric):
    return f"sum by ({label}) (rate({metric}{{{POOL}}}[$__rate_interval]))"


def rate(metric):
    return f"sum(rate({metric}{{{POOL}}}[$__rate_interval]))"


def healthy():
    return [
        tile("Limit in force", "The most that the pools in sight may hold now: what the "
             "configuration says, or less where other processes hold memory on the device. Sum.",
             "bytes", [(total("gpupool_limit_in_force_bytes"), "limit")], graph="none"),
        tile("Held", "Memory taken from the driver, used or not. Sum.", "bytes",
             [(total("gpupool_reserved_bytes"), "held")]),
        tile("Requested", "What the program has asked for and not yet given back. Sum.", "bytes",
             [(total("gpupool_requested_bytes"), "requested")]),
        tile("Fragmentation, worst pool", "Share of the memory which could still be given out that "
             "no single request can have. Runbook: docs/runbooks/GpupoolFragmentationHigh.md",
             "percentunit", [(f"max(gpupool_fragmentation_ratio{{{POOL}}})", "fragmentation")],
             thresholds=steps(GREEN, (0.3, ORANGE), (0.5, RED)), min=0, max=1),
        tile("Largest request possible / needed", "The largest request that the tightest pool in "
             "sight could serve, and the largest that a job here says it makes "
             "(alerts.required_block_bytes; 0: not declared). The first below the second: the next "
             "one fails. Runbook: docs/runbooks/GpupoolLargestBlockBelowRequired.md", "bytes",
             [(f"min(gpupool_largest_satisfiable_bytes{{{POOL}}})", "possible"),
              (f"max(gpupool_required_block_bytes{{{POOL}}})", "needed")],
             graph="none", text="value_and_name"),
        tile("Failed requests", "Requests that were not served, in the time shown. Runbook: "
             "docs/runbooks/GpupoolOutOfMemory.md", "short",
             [(f"sum(increase(gpupool_out_of_memory_total{{{POOL}}}[$__range]))", "failed")],
             thresholds=steps(GREEN, (0.5, RED)), decimals=0, instant=True, graph="none"),
    ]


def where():
    parts = [("gpupool_requested_bytes", "requested"), ("gpupool_waste_bytes", "waste"),
             ("gpupool_cached_bytes", "cached"), ("gpupool_pending_free_bytes", "pending"),
             ("gpupool_free_bytes", "free")]
    lines = [("gpupool_reserved_bytes", "held"), ("gpupool_limit_in_force_bytes", "limit")]
    return [
        graph("Held memory by state", "The five states add up to what is held: in use by the "
              "program, lost to rounding, kept for the stream that freed it, freed but still under "
              "work of a stream, and free. Dashed: held, and the limit.", "bytes",
              [(total(metric), name) for metric, name in parts + lines], stack=True, min=0,
              overrides=outside_stack("held", "limit")),
        graph("The device", "What the driver reports, and what the pools in sight hold of it. "
              "Taken by others is everything else on the card.", "bytes",
              [(total("gpupool_reserved_bytes"), "held here"),
               (f"clamp_min({total('gpupool_device_memory_total_bytes', DEVICE)} - "
                f"{total('gpupool_device_memory_free_bytes', DEVICE)} - "
                f"{total('gpupool_reserved_bytes')}, 0)", "taken by others"),
               (total("gpupool_device_memory_free_bytes", DEVICE), "free on the device"),
               (total("gpupool_device_memory_total_bytes", DEVICE), "size of the device")],
              stack=True, min=0, overrides=outside_stack("size of the device")),
    ]


def lost():
    return [
        graph("Fragmentation", "Solid: share of what could still be given out that no single "
              "request can have; this is what the alert compares with the threshold (dashed). Raw "
              "looks at mapped memory only, and is no fault by itself.", "percentunit",
              [(f"gpupool_fragmentation_ratio{{{POOL}}}", ONE),
               (f"gpupool_raw_fragmentation_ratio{{{POOL}}}", f"raw {ONE}"),
               (f'max(gpupool_alert_threshold{{{POOL}, alert="GpupoolFragmentationHigh"}})',
                "threshold")], min=0, max=1, overrides=outside_stack("threshold")),
        graph("Largest request", "The largest request that can be served without the driver (now), "
              "the largest that can be served at all (possible), and the largest that the job says "
              "it makes (needed).", "bytes",
              [(f"gpupool_largest_free_block_bytes{{{POOL}}}", f"now {ONE}"),
               (f"gpupool_largest_satisfiable_bytes{{{POOL}}}", f"possible {ONE}"),
               (f"max(gpupool_required_block_bytes{{{POOL}}})", "needed")], min=0,
              overrides=outside_stack("needed")),
        panel("bargauge", "Free pieces by size", "How many free pieces there are of each size now; "
              "a piece counts at the power of two at or below its bytes. Many small and few large "
              "is fragmentation.", "short",
              [(f"sum by (block_bytes) (gpupool_free_blocks{{{POOL}}}) > 0", "{{block_bytes}} B")],
              8, 9, instant=True, min=0, no_value="no free piece",
              options={"orientation": "horizontal", "displayMode": "basic", "showUnfilled": True,
                       "valueMode": "color", "minVizHeight": 12, "minVizWidth": 8,
                       "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}),
        graph("Free but too small", "Free bytes in pieces that are shorter than a watched size "
              "(pool.watched_sizes), small blocks between live ones included: useless to a request "
              "of that size, unless pages move.",
              "bytes", [(f"sum by (request_bytes) (gpupool_unusable_free_bytes{{{POOL}}})",
                         "for {{request_bytes}} B"), (total("gpupool_free_bytes"), "free")], 8,
              min=0),
        graph("Free but too small, share", "The same as a share of what is free. Under recycling a "
              "high one is what pages are moved for, and no fault: the largest request possible "
              "says what can be had.", "percentunit",
              [(f"sum by (request_bytes) (gpupool_unusable_free_bytes{{{POOL}}}) / on () "
                f"group_left () clamp_min({total('gpupool_free_bytes')}, 1)",
                "for {{request_bytes}} B")], 8, min=0, max=1),
    ]


def recycling():
    return [
        graph("Pages moved, got and given back", "Pages of 2 MiB a second. Moved: empty ones, to "
              "where a request needed them (pool.recycling). Got from the driver: growth. Given "
              "back: trims. A job that both gets and gives back all the time is trimmed too soon "
              "(pool.trim).", "ops",
              [(rate("gpupool_pages_recycled_total"), "moved"),
               (rate("gpupool_recycling_forgone_total"), "not moved: waited enough"),
               (rate("gpupool_pages_mapped_total"), "got"),
               (rate("gpupool_pages_unmapped_total"), "given back")], min=0),
        graph("What that costs", "Seconds a second (100 %: one thread, always). Waiting is what "
              "the program loses: the time in which threads that allocate wait for the driver. "
              "Moving: driver calls that move pages, by any thread. Driver: all calls. Recorded "
              "jobs under eager, once warm, waited up to 1.5 %, one about 4 %; more slack (pool.slack) "
              "costs memory and saves waiting. Runbook: docs/runbooks/GpupoolRecyclingCostly.md", "percentunit",
              [(rate("gpupool_driver_wait_seconds_total"), "waiting"),
               (rate("gpupool_recycle_seconds_total"), "moving"),
               (rate("gpupool_driver_seconds_total"), "driver")], min=0),
        graph("Given back by reason", "Bytes a second that go back to the driver. trim: see the "
              "next panel. fallback: blocks outside the arena. rollback: a growth that failed half "
              "way. retry: what the driver refused to take before.", "binBps",
              [(rate_by("reason", "gpupool_released_bytes_total"), "{{reason}}")], 8, stack=True,
              min=0),
        graph("Trims by reason", "Bytes a second given back by trims. api: the program asked. "
              "idle: pool.trim.idle_after. pressure: pool.trim.keep_device_free. out_of_memory: "
              "for a request that nothing else would have served. recycle: segments of cudaMalloc, "
              "in whose place others are held.", "binBps",
              [(rate_by("reason", "gpupool_trimmed_bytes_total"), "{{reason}}")], 8, stack=True,
              min=0),
        graph("Trims", "How many, by reason, in each interval shown.", "short",
              [(f"sum by (reason) (increase(gpupool_trims_total{{{POOL}}}[$__rate_interval]))",
                "{{reason}}")], 8, min=0),
        graph("Address space", "Addresses up to the highest that was ever mapped, and those "
              "reserved (dashed). Pages that move use them up; a further range, four in all, is "
              "reserved where one is too full of short gaps. Runbook: "
              "docs/runbooks/GpupoolAddressSpaceLow.md", "bytes",
              [(f"gpupool_address_range_used_bytes{{{POOL}}}", f"used {ONE}"),
               (f"sum(gpupool_address_range_bytes{{{POOL}}})", "reserved")], 8, min=0,
              overrides=outside_stack("reserved")),
        graph("Addresses left behind", "Ranges reserved, and pages of addresses that moved pages "
              "have left and that are still mapped: they go once the work that used them is "
              "done.", "short",
              [(f"gpupool_stale_pages{{{POOL}}}", f"pages {ONE}"),
               (f"gpupool_address_ranges{{{POOL}}}", f"ranges {ONE}")], 8, min=0),
        panel("table", "Settings in force", "What each pool in sight does with empty pages now, "
              "with how much slack (a share of the most that was ever occupied), and for how "
              "much of the time requests may wait for pages to move.", "percentunit",
              [(f"gpupool_pool_info{{{POOL}}}", ""), (f"gpupool_slack_ratio{{{POOL}}}", ""),
               (f"gpupool_recycling_wait_ratio{{{POOL}}}", "")], 8, 9,
              instant=True, table=True, options={"showHeader": True, "cellHeight": "sm"},
              transformations=[{"id": "merge", "options": {}},
                               {"id": "organize", "options": {
                                   "excludeByName": {"Time": True, "Value #A": True,
                                                     "__name__": True, "job": True},
                                   "renameByName": {"Value #B": "slack", "Value #C": "wait"}}}]),
    ]


def misses():
    return [
        graph("Requests", "Requests, and those served without the driver and without waiting "
              "(hits).", "reqps", [(rate("gpupool_allocation_requests_total"), "requests"),
                                   (rate("gpupool_allocation_hits_total"), "hits")], 8, min=0),
        graph("Hits by tier", "Which structure served: the thread's cache, size classes (to "
              "32 KiB), buddy (to 128 KiB), runs.", "reqps",
              [(rate_by("tier", "gpupool_tier_hits_total"), "{{tier}}")], 8, stack=True, min=0),
        graph("Misses by reason", "Every other request. cold: the pool grew. pending: waits for a "
              "stream. fragmented: free bytes, no piece. budget: the limit or the device is full. "
              "size: larger than the limit.", "reqps",
              [(rate_by("reason", "gpupool_allocation_misses_total"), "{{reason}}")], 8,
              stack=True, min=0),
        graph("Fallbacks by reason", "Requests served by a driver allocation of their own, outside "
              "the pool's range. Each costs a call that stops the device.", "reqps",
              [(rate_by("reason", "gpupool_fallbacks_total"), "{{reason}}")], 8, stack=True, min=0),
        graph("Driver calls by operation", "A warm job makes none. A steady rate means that the "
              "pool keeps growing, or is trimmed too eagerly.", "ops",
              [(rate_by("operation", "gpupool_driver_calls_total"), "{{operation}}")], 8,
              stack=True, min=0),
        graph("Waiting for the driver", "Share of time in which an allocating thread waited for "
              "the driver (1: one thread, always).", "percentunit",
              [(rate("gpupool_driver_wait_seconds_total"), "waited")], 8, min=0),
        graph("Failed requests by cause", "Requests that were not served. Runbook: "
              "docs/runbooks/GpupoolOutOfMemory.md", "short",
              [(f"sum by (cause) (increase(gpupool_out_of_memory_total{{{POOL}}}"
                "[$__rate_interval]))", "{{cause}}"),
               (f"sum by (reason) (increase(gpupool_refused_requests_total{{{POOL}}}"
                "[$__rate_interval]))", "{{reason}}")], 12, min=0),
        graph("Misuse by kind", "Double frees, foreign pointers and the like, refused. Any of them "
              "is a fault in the program.", "short",
              [(f"sum by (kind) (increase(gpupool_misuses_total{{{POOL}}}[$__rate_interval]))",
                "{{kind}}")], 12, min=0),
    ]


def tags():
    return [
        graph("Requested by tag", "What the memory is used for, as the program says it with "
              "TagScope.", "bytes",
              [(f"sum by (tag) (gpupool_tag_requested_bytes{{{POOL}}})", "{{tag}}")], stack=True,
              min=0),
        graph("Growth by tag", "Bytes a second, over ten minutes. Above zero for hours: a leak, or "
              "a cache without a bound.", "binBps",
              [(f"sum by (tag) (deriv(gpupool_tag_requested_bytes{{{POOL}}}[10m]))", "{{tag}}")]),
        panel("table", "Processes", "Which processes and devices are in sight.", "none",
              [(f"gpupool_process_info{{{PROCESS}}}", ""), (f"gpupool_device_info{{{DEVICE}}}", "")],
              24, 6, instant=True, table=True,
              options={"showHeader": True, "cellHeight": "sm"},
              transformations=[{"id": "merge", "options": {}},
                               {"id": "organize", "options": {"excludeByName": {
                                   "Time": True, "Value": True, "Value #A": True, "Value #B": True,
                                   "__name__": True}}}]),
    ]


ROWS = [("Is it healthy?", healthy), ("Where is the memory?", where), ("Why is it lost?", lost),
        ("What do moving and giving back cost?", recycling),
        ("Why do requests miss?", misses), ("What is it used for?", tags)]


def layout():
    """Rows from top to bottom, panels from left to right, 24 columns wide."""
    result, y = [], 0
    for title, panels in ROWS:
        result.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        x, y, line_height = 0, y + 1, 0
        for item in panels():
            place = item["gridPos"]
            if x + place["w"] > 24:
                x, y, line_height = 0, y + line_height, 0
            place.update(x=x, y=y)
            x, line_height = x + place["w"], max(line_height, place["h"])
            result.append(item)
        y += line_height
    for index, item in enumerate(result):
        item["id"] = index + 1
    return result


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "definition": query, "query": {"query": query, "refId": f"variable-{name}"},
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "hide": 0,
            "regex": "", "options": []}


def dashboard():
    seen = "gpupool_reserved_bytes"
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
         "current": {}, "hide": 0, "includeAll": False, "multi": False, "options": [],
         "refresh": 1, "regex": ""},
        variable("job", "Job", f"label_values({seen}, job)"),
        variable("instance", "Process", f'label_values({seen}{{job=~"$job"}}, instance)'),
        variable("device", "Device", f"label_values({seen}{{{PROCESS}}}, device)"),
        variable("pool", "Pool", f"label_values({seen}{{{DEVICE}}}, pool)"),
    ]
    failures = {"name": "Failed requests", "enable": True, "datasource": DATASOURCE,
                "iconColor": RED, "titleFormat": "{{cause}}", "textFormat": ONE, "step": "60s",
                "expr": f"increase(gpupool_out_of_memory_total{{{POOL}}}[$__rate_interval]) > 0"}
    return {"id": None, "uid": "gpupool-process", "title": "gpupool: process",
            "description": "One process with a gpupool: is it healthy, where is the memory, why is "
                           "it lost, what does recycling cost, why do requests miss, what is it "
                           "used for.",
            "tags": ["gpupool", "gpu", "memory"], "schemaVersion": 39, "version": 1,
            "editable": False, "graphTooltip": 1, "refresh": "30s", "timezone": "",
            "time": {"from": "now-1h", "to": "now"}, "timepicker": {}, "weekStart": "",
            "fiscalYearStartMonth": 0, "liveNow": False, "links": [],
            "annotations": {"list": [failures]}, "templating": {"list": variables},
            "panels": layout()}


def main():
    text = json.dumps(dashboard(), indent=1, ensure_ascii=True) + "\n"
    if "--check" in sys.argv[1:]:
        if not OUTPUT.exists() or OUTPUT.read_text() != text:
            print(f"{OUTPUT} is stale: run {pathlib.Path(__file__)}", file=sys.stderr)
            return 1
        return 0
    OUTPUT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
