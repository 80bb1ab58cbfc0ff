"""gpupool: process. Is it healthy, where is its memory, why is it lost, why do requests miss?"""
from panels import (BLUE, GREEN, ORANGE, PROCESS, PURPLE, RED, YELLOW, colors, dashboard,
                    graph, outside_stack, panel, severity_colors, steps, table, tile, variable)

# Which series a panel is about. Families have the labels device and pool unless they are about the
# device, or about the process, as a whole.
IN_PROCESS = 'job=~"$job", instance=~"$instance"'
DEVICE = f'{IN_PROCESS}, device=~"$device"'
POOL = f'{DEVICE}, pool=~"$pool"'
ONE = "{{instance}} {{device}}/{{pool}}"  # legend of one pool of one process
TAG_GROWTH_SECONDS = 600


def total(metric, selector=POOL):
    return f"sum({metric}{{{selector}}})"


def rate_by(label, metric):
    return f"sum by ({label}) (rate({metric}{{{POOL}}}[$__rate_interval]))"


def rate(metric):
    return f"sum(rate({metric}{{{POOL}}}[$__rate_interval]))"


def count_by(label, metric):
    return f"sum by ({label}) (increase({metric}{{{POOL}}}[$__rate_interval]))"


def healthy():
    return [
        tile("Limit in force", "The most that the pools in sight may hold now: what the "
             "configuration says, or less where other processes hold memory on the device. Sum.",
             "bytes", [(total("gpupool_limit_in_force_bytes"), "limit")], graph="none",
             thresholds=steps("text")),
        tile("Held", "Memory taken from the driver, used or not. Sum.", "bytes",
             [(total("gpupool_reserved_bytes"), "held")], thresholds=steps("text")),
        tile("Requested", "What the program has asked for and not yet given back. Sum.", "bytes",
             [(total("gpupool_requested_bytes"), "requested")], thresholds=steps(BLUE)),
        tile("Fragmentation, worst pool", "Share of the memory which could still be given out that "
             "no single request can have.", "percentunit",
             [(f"max(gpupool_fragmentation_ratio{{{POOL}}})", "fragmentation")],
             thresholds=steps(GREEN, (0.3, ORANGE), (0.5, RED)), min=0, max=1,
             runbook="GpupoolFragmentationHigh"),
        tile("Largest possible / needed", "The largest request that the tightest pool in "
             "sight could serve, and the largest that a job here says it makes "
             "(alerts.required_block_bytes; 0: not declared). The first below the second: the next "
             "one fails.", "bytes",
             [(f"min(gpupool_largest_satisfiable_bytes{{{POOL}}})", "possible"),
              (f"max(gpupool_required_block_bytes{{{POOL}}})", "needed")],
             graph="none", text="value_and_name", thresholds=steps("text"),
             runbook="GpupoolLargestBlockBelowRequired"),
        tile("Failed requests", "Requests that were not served for want of memory, in the time "
             "shown.", "short",
             [(f"sum(increase(gpupool_out_of_memory_total{{{POOL}}}[$__range]))", "failed")],
             thresholds=steps(GREEN, (0.5, RED)), decimals=0, instant=True, graph="none",
             runbook="GpupoolOutOfMemory"),
    ]


def where():
    parts = [("gpupool_requested_bytes", "requested"), ("gpupool_waste_bytes", "waste"),
             ("gpupool_cached_bytes", "cached"), ("gpupool_pending_free_bytes", "pending"),
             ("gpupool_free_bytes", "free")]
    lines = [("gpupool_reserved_bytes", "held"), ("gpupool_limit_in_force_bytes", "limit"),
             ("gpupool_pinned_bytes", "pinned")]
    shown = [("gpupool_reserved_bytes", "held here")]
    taken = (f"clamp_min({total('gpupool_device_memory_total_bytes', DEVICE)} - "
             f"{total('gpupool_device_memory_free_bytes', DEVICE)} - "
             f"{total('gpupool_reserved_bytes')}, 0)")
    return [
        graph("Held memory by state", "The five states add up to what is held: in use by the "
              "program, lost to rounding, kept for the stream that freed it, freed but still under "
              "work of a stream, and free. Dashed: held, the limit, and pinned: held for captured "
              "graphs, of whatever state, and nobody else's.", "bytes",
              [(total(metric), name) for metric, name in parts + lines], stack=True, min=0,
              overrides=[*colors(requested=BLUE, waste=RED, cached=PURPLE, pending=YELLOW,
                                 free=GREEN),
                         *outside_stack("held", "limit"), *outside_stack("pinned", color=ORANGE)],
              runbook="GpupoolPendingFreesStuck"),
        graph("The device", "What the driver reports, and what the pools in sight hold of it. "
              "Taken by others is everything else on the card. Of several processes on one card "
              "choose one: each sees all of it.", "bytes",
              [*((total(metric), name) for metric, name in shown), (taken, "taken by others"),
               (total("gpupool_device_memory_free_bytes", DEVICE), "free on the device"),
               (total("gpupool_device_memory_total_bytes", DEVICE), "size of the device")],
              stack=True, min=0, runbook="GpupoolNearCapacity",
              overrides=[*colors(**{"held here": BLUE, "taken by others": ORANGE,
                                    "free on the device": GREEN}),
                         *outside_stack("size of the device")]),
    ]


def largest():
    fits = f"min by (request_bytes) (gpupool_watched_size_fits{{{POOL}}})"
    return [
        graph("Fragmentation", "Solid: share of what could still be given out that no single "
              "request can have; this is what the alert compares with the threshold (dashed). Raw "
              "looks at mapped memory only, and is no fault by itself.", "percentunit",
              [(f"gpupool_fragmentation_ratio{{{POOL}}}", ONE),
               (f"gpupool_raw_fragmentation_ratio{{{POOL}}}", f"raw {ONE}"),
               (f'max(gpupool_alert_threshold{{{POOL}, alert="GpupoolFragmentationHigh"}})',
                "threshold")], min=0, max=1,
              overrides=[{"matcher": {"id": "byRegexp", "options": "/^raw /"},
                          "properties": [{"id": "custom.lineStyle",
                                          "value": {"fill": "dot", "dash": [1, 4]}},
                                         {"id": "color",
                                          "value": {"mode": "fixed", "fixedColor": "text"}}]},
                         *outside_stack("threshold", color=RED)],
              runbook="GpupoolFragmentationHigh"),
        graph("Largest request", "The largest request that can be served without the driver (now), "
              "the largest that can be served at all (possible), and the largest that the job says "
              "it makes (needed, dashed; 0: not declared). Possible below needed: the next one "
              "fails.", "bytes",
              [(f"gpupool_largest_free_block_bytes{{{POOL}}}", f"now {ONE}"),
               (f"gpupool_largest_satisfiable_bytes{{{POOL}}}", f"possible {ONE}"),
               (f"max(gpupool_required_block_bytes{{{POOL}}})", "needed")], min=0,
              overrides=outside_stack("needed", color=RED),
              runbook="GpupoolLargestBlockBelowRequired"),
        panel("bargauge", "Free pieces by size", "How many free pieces there are of each size now; "
              "a piece counts at the power of two at or below its bytes. Many small and few large "
              "is fragmentation.", "short",
              [(f'sum by (block_bytes) (gpupool_free_blocks{{{POOL}, block_bytes=~"{digits}"}}) > 0',
                "{{block_bytes}}") for digits in BY_LENGTH], 8, 9, instant=True, min=0, no_value="no free piece", thresholds=steps(BLUE),
              transformations=size_names("^", "$"),
              options={"orientation": "horizontal", "displayMode": "basic", "showUnfilled": True,
                       "valueMode": "text", "sizing": "auto", "namePlacement": "left",
                       "minVizHeight": 12, "minVizWidth": 8, "maxVizHeight": 40,
                       "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}),
        graph("Free but too small", "Free bytes in pieces that are shorter than a watched size "
              "(pool.watched_sizes), small blocks between live ones included: useless to a request "
              "of that size, unless pages move.",
              "bytes", [(f"sum by (request_bytes) (gpupool_unusable_free_bytes{{{POOL}}})",
                         "for {{request_bytes}} B"), (total("gpupool_free_bytes"), "free")], 8,
              min=0, transformations=size_names("^for ", " B$", "for "), no_value="no size is watched: pool.watched_sizes",
              overrides=outside_stack("free", color=GREEN)),
        would_it_fit(fits),
    ]


def would_it_fit(fits):
    words = [("0", "would fail", RED), ("1", "fits", GREEN)]
    return panel(
        "state-timeline", "Would it fit?", "Green: a request of that size (pool.watched_sizes) would "
        "have been served by every pool in sight, growth included; red: by one at least not.",
        "short", [(fits, "{{request_bytes}} B")], 8, 9, min=0, max=1, decimals=0,
        color={"mode": "thresholds"}, thresholds=steps(RED, (1, GREEN)),
        mappings=[{"type": "value", "options": {value: {"text": text, "color": color, "index": index}
                                                for index, (value, text, color) in enumerate(words)}}],
        no_value="no size is watched: pool.watched_sizes",
        transformations=size_names("^", " B$"),
        custom={"fillOpacity": 75, "lineWidth": 0},
        options={"mergeValues": True, "showValue": "never", "alignValue": "left", "rowHeight": 0.7,
                 "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True,
                            "calcs": []},
                 "tooltip": {"mode": "single", "sort": "none"}},
        runbook="GpupoolLargestBlockBelowRequired")


# Sizes of free pieces, powers of two from 4 KiB to 128 GiB, come in the order of their digits, which is
# that of their values among those of one length.
BY_LENGTH = ["[0-9]{" + str(digits) + "}" for digits in range(4, 13)]


def size_names(before, after, kept=""):
    """Names for powers of two, 4 KiB to 128 GiB, in the names of series."""
    result = []
    for power in range(12, 38):
        unit, factor = next((name, shift) for name, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10))
                            if power >= shift)
        result.append({"id": "renameByRegex",
                       "options": {"regex": f"{before}{2 ** power}{after}",
                                   "renamePattern": f"{kept}{2 ** (power - factor)} {unit}"}})
    return result


def recycling():
    return [
        graph("Pages moved, got and given back", "Pages of 2 MiB a second. Moved: empty ones, to "
              "where a request needed them (pool.recycling). Got from the driver: growth. Given "
              "back: trims. A job that both gets and gives back all the time is trimmed too soon "
              "(pool.trim).", "ops",
              [(rate("gpupool_pages_recycled_total"), "moved"),
               (rate("gpupool_recycling_forgone_total"), "not moved: waited enough"),
               (rate("gpupool_pages_mapped_total"), "got"),
               (rate("gpupool_pages_unmapped_total"), "given back")], min=0,
              seldom="no page moved, came or went in the time shown"),
        graph("What that costs", "Seconds a second (100 %: one thread, always). Waiting is what "
              "the program loses: the time in which threads that allocate wait for the driver. "
              "Moving: driver calls that move pages, by any thread. Driver: all calls. Recorded "
              "jobs under eager, once warm, waited up to 1.5 %, one about 4 %; more slack "
              "(pool.slack) costs memory and saves waiting.", "percentunit",
              [(rate("gpupool_driver_wait_seconds_total"), "waiting"),
               (rate("gpupool_recycle_seconds_total"), "moving"),
               (rate("gpupool_driver_seconds_total"), "driver")], min=0,
              custom={"axisSoftMax": 0.001}, overrides=colors(waiting=RED, moving=BLUE, driver=PURPLE),
              runbook="GpupoolRecyclingCostly"),
        graph("Given back by reason", "Bytes a second that go back to the driver. trim: see the "
              "next panel. fallback: blocks outside the arena. rollback: a growth that failed half "
              "way. retry: what the driver refused to take before.", "binBps",
              [(rate_by("reason", "gpupool_released_bytes_total"), "{{reason}}")], 8, min=0,
              seldom="nothing was given back in the time shown"),
        graph("Trims by reason", "Bytes a second given back by trims. api: the program asked. "
              "idle: pool.trim.idle_after. pressure: pool.trim.keep_device_free. out_of_memory: "
              "for a request that nothing else would have served. recycle: segments of cudaMalloc, "
              "in whose place others are held.", "binBps",
              [(rate_by("reason", "gpupool_trimmed_bytes_total"), "{{reason}}")], 8, min=0,
              seldom="no trim gave anything back in the time shown"),
        graph("Trims", "How many, by reason, in the time that one point stands for.", "short",
              [(count_by("reason", "gpupool_trims_total"), "{{reason}}")], 8, min=0,
              seldom="no trim in the time shown"),
        graph("Address space", "Addresses up to the highest that was ever mapped, and those "
              "reserved (dashed). Pages that move use them up; a further range, four in all, is "
              "reserved where one is too full of short gaps.", "bytes",
              [(f"gpupool_address_range_used_bytes{{{POOL}}}", f"used {ONE}"),
               (f"sum(gpupool_address_range_bytes{{{POOL}}})", "reserved")], 8, min=0,
              overrides=outside_stack("reserved"), runbook="GpupoolAddressSpaceLow"),
        graph("Addresses left behind", "Ranges reserved, and pages of addresses that moved pages "
              "have left and that are still mapped: they go once the work that used them is "
              "done.", "short",
              [(f"gpupool_stale_pages{{{POOL}}}", f"pages {ONE}"),
               (f"gpupool_address_ranges{{{POOL}}}", f"ranges {ONE}")], 8, min=0),
        settings(),
    ]


def settings():
    return table("Settings in force", "What each pool in sight does with empty pages now, with how "
                 "much slack (a share of the most that was ever occupied), and for how much of "
                 "the time requests may wait for pages to move.",
                 [(f"max by (instance, device, pool{more}) ({name}{{{POOL}}})", "")
                  for name, more in (("gpupool_pool_info", ", recycling, backing"),
                                     ("gpupool_slack_ratio", ""),
                                     ("gpupool_recycling_wait_ratio", ""))], 8, 9,
                 [("instance", "process", {}), ("pool", "pool", {"custom__width": 75}),
                  ("recycling", "recycling", {"custom__width": 80}),
                  ("Value #B", "slack", {"unit": "percentunit", "decimals": 1, "custom__width": 60}),
                  ("Value #C", "wait", {"unit": "percentunit", "custom__width": 55}),
                  ("backing", "backing", {"custom__width": 75})], filters=False)


def misses():
    return [
        graph("Requests", "Requests, and those served without the driver and without waiting "
              "(hits).", "reqps", [(rate("gpupool_allocation_requests_total"), "requests"),
                                   (rate("gpupool_allocation_hits_total"), "hits")], 8, min=0,
              overrides=colors(requests=BLUE, hits=GREEN)),
        graph("Hits by tier", "Which structure served: the thread's cache, size classes (to "
              "32 KiB), buddy (to 128 KiB), runs.", "reqps",
              [(rate_by("tier", "gpupool_tier_hits_total"), "{{tier}}")], 8, min=0,
              seldom="no request was a hit in the time shown"),
        graph("Misses by reason", "Every other request. cold: the pool grew. pending: waits for a "
              "stream. fragmented: free bytes, no piece. budget: the limit or the device is full. "
              "size: larger than the limit.", "reqps",
              [(rate_by("reason", "gpupool_allocation_misses_total"), "{{reason}}")], 8, min=0,
              seldom="no request missed in the time shown"),
        graph("Fallbacks by reason", "Requests served by a driver allocation of their own, outside "
              "the pool's range. Each costs a call that stops the device. contiguous: asked for by "
              "the program (NCCL, RDMA, IPC). address_space: the ranges are full. arena_failed: the "
              "driver refused to grow the arena. alignment: of the request.", "reqps",
              [(rate_by("reason", "gpupool_fallbacks_total"), "{{reason}}")], 8, min=0,
              seldom="no request was served outside the pool in the time shown",
              runbook="GpupoolDriverFallbackRateHigh"),
        graph("Tried for what was not served at once", "Requests a second, by the last rung that "
              "gave them what they needed: emptying caches, completed events, other streams, moving "
              "pages, growing, trimming, waiting, asking the program. Those after growing are the "
              "last moment.", "reqps",
              [(f'sum by (rung) (rate(gpupool_ladder_rungs_total{{{POOL}, outcome="served"}}'
                "[$__rate_interval]))", "{{rung}}"),
               (rate("gpupool_allocation_retries_total"), "searched again")], 8, min=0,
              seldom="every request was served at once in the time shown",
              overrides=outside_stack("searched again"), runbook="GpupoolRetries"),
        graph("Reuse across streams", "Runs and chunks that one stream freed and another got, by "
              "how it was made safe: the work was done (completed), one stream was made to wait for "
              "the other (waited), or waits for it anyway (dependency). Waits: those that the pool "
              "added.", "ops",
              [(rate_by("how", "gpupool_cross_stream_reuse_total"), "{{how}}"),
               (rate("gpupool_stream_waits_total"), "waits")], 8, min=0,
              seldom="no stream got memory of another in the time shown"),
    ]


def driver():
    buckets = f"rate(gpupool_driver_call_duration_seconds_bucket{{{POOL}}}[$__rate_interval])"
    seconds = rate("gpupool_driver_call_duration_seconds_sum")
    calls = rate("gpupool_driver_call_duration_seconds_count")
    return [
        graph("Driver calls by operation", "A warm job makes few, and none that create: a steady "
              "rate of those means that the pool keeps growing, or is trimmed too eagerly. Maps "
              "and unmaps alone are pages that move.", "ops",
              [(rate_by("operation", "gpupool_driver_calls_total"), "{{operation}}")], 8, min=0,
              seldom="no driver call in the time shown"),
        graph("Duration of driver calls", "Mean, median and the slowest percent of all calls. "
              "Mapping a page takes 10 to 300 us, cudaMalloc some ms.", "s",
              [(f"{seconds} / ({calls} > 0)", "mean"),
               *((f"histogram_quantile({share}, sum by (le) ({buckets})) > 0", name)
                 for share, name in ((0.5, "half below"), (0.99, "99 % below")))], 8, min=0,
              no_value="no driver call in the time shown", runbook="GpupoolDriverSlow"),
        graph("Failing driver calls", "Calls that the driver refused, by operation, in the time "
              "that one point stands for. One that is followed by an out of memory is its cause.",
              "short", [(count_by("operation", "gpupool_driver_call_failures_total"),
                         "{{operation}}")], 8, min=0, runbook="GpupoolOutOfMemory",
              seldom="the driver refused no call in the time shown"),
        graph("Failed requests by cause", "Requests that were not served, in the time that one "
              "point stands for. budget: limit or device full. fragmented: bytes, but no piece. "
              "pending: on a stream. cold: the driver refused. size: larger than the limit. "
              "invalid and driver: not for want of memory.", "short",
              [(count_by("cause", "gpupool_out_of_memory_total"), "{{cause}}"),
               (count_by("reason", "gpupool_refused_requests_total"), "{{reason}}")], 12, min=0,
              seldom="no request failed in the time shown", runbook="GpupoolOutOfMemory"),
        graph("Misuse by kind", "Double frees, foreign pointers and the like, refused, in the time "
              "that one point stands for. Any of them is a fault in the program.", "short",
              [(count_by("kind", "gpupool_misuses_total"), "{{kind}}")], 12, min=0,
              seldom="no misuse in the time shown", runbook="GpupoolInvalidFree"),
    ]


def tags():
    window = TAG_GROWTH_SECONDS
    old = f"time() - gpupool_start_time_seconds{{{POOL}}} > {2 * window}"
    return [
        graph("Requested by tag", "What the memory is used for, as the program says it with "
              "TagScope.", "bytes",
              [(f"sum by (tag) (gpupool_tag_requested_bytes{{{POOL}}})", "{{tag}}")], stack=True,
              min=0),
        graph("Growth by tag", "Bytes a second, over ten minutes, of processes that are twice as "
              "old: a start is no growth. Above zero for hours: a leak, or a cache without a bound.", "binBps",
              [(f"sum by (tag) (deriv(gpupool_tag_requested_bytes{{{POOL}}}[{window // 60}m]) and "
                f"on (job, instance, device, pool) ({old}))", "{{tag}}")],
              no_value="no process in sight is older than twenty minutes",
              runbook="GpupoolMemoryLeakSuspected"),
        table("Alerts that fire", "Alerts about the processes in sight, as the shipped rules have "
              "them.", [(f'ALERTS{{{IN_PROCESS}, alertname=~"Gpupool.*", alertstate="firing"}}', "")],
              12, 7, [("alertname", "alert", {"custom__width": 275}),
                      ("severity", "severity", {"custom__width": 110, "mappings": severity_colors(),
                                                "custom__cellOptions": {"type": "color-text"}}),
                      ("instance", "process", {}), ("pool", "pool", {"custom__width": 80})],
              sort_by=("severity", False), no_value="no alert fires, or the rules are not loaded"),
        table("Processes", "Which processes and devices are in sight.",
              [(f"gpupool_device_info{{{DEVICE}}} * on (job, instance) "
                "group_left (job_id, rank, world_size, pid) "
                f"max by (job, instance, job_id, rank, world_size, pid) "
                f"(gpupool_process_info{{{IN_PROCESS}}})", "")],
              12, 7, [("instance", "process", {}), ("job_id", "job", {}),
                      ("rank", "rank", {"custom__width": 70}),
                      ("world_size", "of", {"custom__width": 60}), ("pid", "pid", {"custom__width": 80}),
                      ("device", "device", {"custom__width": 80}), ("name", "card", {})]),
    ]


ROWS = [("Is it healthy?", healthy), ("Where is the memory?", where), ("Why is it lost?", largest),
        ("Why do requests miss?", misses), ("What does the driver do, and what failed?", driver),
        ("What do moving and giving back cost?", recycling), ("What is it used for?", tags)]


def make(pattern):
    seen = "gpupool_reserved_bytes"
    variables = [
        variable("job", "Scrape job", f"label_values({seen}, job)"),
        variable("instance", "Process", f'label_values({seen}{{job=~"$job"}}, instance)'),
        variable("device", "Device", f"label_values({seen}{{{IN_PROCESS}}}, device)"),
        variable("pool", "Pool", f"label_values({seen}{{{DEVICE}}}, pool)"),
    ]
    return dashboard(PROCESS, "gpupool: process",
                     "One process with a gpupool: is it healthy, where is the memory, why is it "
                     "lost, why do requests miss, what does the driver do, what is it used for.",
                     variables, ROWS, pattern, refresh="30s", since="now-1h",
                     selectors=(POOL, IN_PROCESS))
