"""gpupool: fleet. Which rank of which job will fail first?"""
from panels import (BLUE, FLEET, GREEN, ORANGE, PURPLE, RED, YELLOW, colored_cell, colors, dashboard,
                    gauge_cell, graph, just_started, outside_stack, panel, process_link, severity_colors, steps,
                    table, tile, variable)

JOBS = 'job=~"$job", job_id=~"$job_id"'
RANK = "job, job_id, rank, instance"
POOL = f"{RANK}, device, pool"
WHO = "{{job_id}} #{{rank}} {{instance}}"
LIMIT = f"gpupool_limit_in_force_bytes{{{JOBS}}}"
PEAK = f"gpupool_requested_window_peak_bytes{{{JOBS}}}"
AGE = f"time() - gpupool_start_time_seconds{{{JOBS}}}"
# What is left where the job comes to its peak again. Rounding is in use, too.
HEADROOM = f"{LIMIT} - max_over_time({PEAK}[5m]) - gpupool_waste_bytes{{{JOBS}}}"
HEADROOM_SHARE = f"({HEADROOM}) / ({LIMIT} > 0)"
# Growth of less than half a percent of the limit in an hour is noise, and that of a start no trend.
GROWTH = f"deriv({PEAK}[1h]) > 0.005 / 3600 * {LIMIT}"
LASTS = f"clamp_min({HEADROOM}, 0) / ({GROWTH}) and ({AGE} > 3600)"
SHARES = steps(RED, (0.03, ORANGE), (0.1, YELLOW), (0.2, GREEN))
FRAGMENTED = steps(GREEN, (0.3, YELLOW), (0.5, ORANGE), (0.8, RED))
HOURS = steps(RED, (3600, ORANGE), (4 * 3600, YELLOW), (24 * 3600, GREEN))
# An empty cell has the lowest threshold's colour otherwise, here red.
NO_TREND = [{"type": "special", "options": {"match": "null+nan", "result": {
    "text": "no trend", "color": "transparent", "index": 0}}}]
LASTS_TEXT = ("headroom over its growth of the last hour, where that is more than half a percent of "
              "the limit and the process is older than an hour")
MANY = "Ten ranks at the most at each moment."


def targets():
    """Targets of jobs that had a pool within the hour, up or not."""
    return (f"up{{{JOBS}}} and on (job) max by (job) "
            f"(max_over_time(gpupool_process_info{{{JOBS}}}[1h]))")


def firing(more=""):
    return f'ALERTS{{{JOBS}, alertname=~"Gpupool.*", alertstate="firing"{more}}}'


def by_rank(expr, function="max", labels=RANK):
    return f"{function} by ({labels}) ({expr})"


def failed(window):
    return f"increase(gpupool_out_of_memory_total{{{JOBS}}}[{window}])"


def rate_share(counter, whole):
    rates = [by_rank(f"rate({name}{{{JOBS}}}[$__rate_interval])", "sum") for name in (counter, whole)]
    return f"{rates[0]} / ({rates[1]} > 0)"


def first():
    return [
        tile("Ranks that answer", "Targets that answer Prometheus, and those that it is told of. A "
             "job that has not answered for an hour is no longer counted.", "none",
             [(f"sum({targets()})", "answer"), (f"count({targets()})", "of")], graph="none",
             text="value_and_name", thresholds=steps("text"), runbook="GpupoolTargetDown"),
        tile("Alerts that fire", "By severity, of the shipped rules. critical: a request has failed, "
             "the next large one will, or memory was freed that is not the program's.", "none",
             [(f"count by (severity) ({firing()})", "{{severity}}")], graph="none",
             text="value_and_name", no_value="none", thresholds=steps(RED),
             overrides=colors(critical=RED, warning=ORANGE, info=BLUE)),
        tile("Least headroom", "Of all ranks: the share of its limit that is left when the job comes "
             "to its peak of the last five minutes again.", "percentunit",
             [(f"min({HEADROOM_SHARE})", "least")], thresholds=SHARES, decimals=1,
             runbook="GpupoolNearCapacity"),
        tile("First to run out, in", f"The shortest time of all ranks: {LASTS_TEXT}.", "s",
             [(f"min({LASTS})", "in")], thresholds=HOURS, graph="none", no_value="nobody grows",
             decimals=1, runbook="GpupoolExhaustionPredicted"),
        tile("Worst fragmentation", "Of all ranks, mean of five minutes: the share of what a pool "
             "could still give out that no single request can have.", "percentunit",
             [(f"max(avg_over_time(gpupool_fragmentation_ratio{{{JOBS}}}[5m]))", "worst")],
             thresholds=FRAGMENTED, min=0, max=1, decimals=1, runbook="GpupoolFragmentationHigh"),
        tile("Failed requests", "Requests that were not served for want of memory, of all ranks in "
             "the time shown.", "short", [(f"sum({failed('$__range')})", "failed")],
             thresholds=steps(GREEN, (0.5, RED)), decimals=0, instant=True, graph="none",
             runbook="GpupoolOutOfMemory"),
        ranks(), alerts(), alerts_over_time(),
    ]


def ranks():
    queries = [HEADROOM_SHARE, HEADROOM, LASTS, f"gpupool_largest_satisfiable_bytes{{{JOBS}}}",
               f"gpupool_required_block_bytes{{{JOBS}}} > 0",
               f"avg_over_time(gpupool_fragmentation_ratio{{{JOBS}}}[5m])"]
    columns = [
        ("job_id", "job", {}), ("rank", "rank", {"custom__width": 60}),
        ("instance", "process", {"links": process_link()}),
        ("Value #A", "headroom", {"unit": "percentunit", "decimals": 1, "custom__width": 140,
                                  **gauge_cell(SHARES)}),
        ("Value #B", "bytes", {"unit": "bytes", "custom__width": 85}),
        ("Value #C", "lasts", {"unit": "s", "decimals": 1, "noValue": "no trend",
                               "mappings": NO_TREND, "custom__width": 90, **colored_cell(HOURS)}),
        ("Value #D", "largest possible", {"unit": "bytes", "custom__width": 125}),
        ("Value #E", "needed", {"unit": "bytes", "noValue": "not declared", "custom__width": 105}),
        ("Value #F", "fragmentation", {"unit": "percentunit", "decimals": 1, "custom__width": 115,
                                       **colored_cell(FRAGMENTED)}),
        ("Value #G", "failed", {"decimals": 0, "custom__width": 70,
                                **colored_cell(steps("transparent", (0.5, RED)))}),
        ("Value #H", "age", {"unit": "s", "decimals": 1, "custom__width": 85}),
        ("device", "device", {"custom__width": 80}), ("pool", "pool", {"custom__width": 80}),
        ("job", "scrape", {"custom__width": 115}),
    ]
    return table(
        "Ranks, the tightest on top", "headroom: share of the limit that is left at the peak of the "
        f"last five minutes. lasts: {LASTS_TEXT}. largest possible: the largest single request that "
        "could be served, growth included; below needed (alerts.required_block_bytes) the next one "
        "fails. failed: requests in the time shown. Click a heading to order by it, a process to "
        "see it alone.",
        [*((by_rank(query, labels=POOL), "") for query in queries),
         (by_rank(failed("$__range"), "sum", POOL), ""), (by_rank(AGE, labels=POOL), "")],
        24, 11, columns, sort_by=("headroom", False), runbook="GpupoolLargestBlockBelowRequired")


def alerts():
    return table(
        "Alerts that fire, and where", "Each alert of the shipped rules that fires now. Its runbook "
        "is docs/runbooks/ and its name.", [(firing(), "")], 14, 8,
        [("alertname", "alert", {"custom__width": 275}),
         ("severity", "severity", {"custom__width": 110, "mappings": severity_colors(),
                                   "custom__cellOptions": {"type": "color-text"}}),
         ("job_id", "job", {}), ("rank", "rank", {"custom__width": 60}),
         ("instance", "process", {"links": process_link()}),
         ("job", "scrape", {"custom__width": 115})],
        sort_by=("severity", False), no_value="no alert fires, or the rules are not loaded")


def alerts_over_time():
    return graph("Alerts over time", "How many ranks each alert fires for.", "short",
                 [(f"count by (alertname) ({firing()})", "{{alertname}}")], 10, stack=True, min=0,
                 decimals=0, height=8, no_value="no alert fired, or the rules are not loaded",
                 custom={"lineInterpolation": "stepAfter", "lineWidth": 0})


def coming():
    return [
        graph("Headroom, the tightest", "Share of the limit that is left at the peak of the last "
              f"five minutes. {MANY}", "percentunit",
              [(f"bottomk(10, {by_rank(HEADROOM_SHARE, 'min')})", WHO)], max=1,
              runbook="GpupoolNearCapacity", many=["lastNotNull"]),
        panel("state-timeline", "Fragmentation by rank", "Share of what a pool could still give out "
              "that no single request can have, mean of five minutes. The twenty worst ranks at "
              "each moment. Red from 80 %, where GpupoolFragmentationCritical begins.",
              "percentunit",
              [(f"topk(20, {by_rank(f'avg_over_time(gpupool_fragmentation_ratio{{{JOBS}}}[5m])')})",
                WHO)], 12, 9, thresholds=FRAGMENTED, decimals=0, min=0, max=1,
              color={"mode": "thresholds"}, runbook="GpupoolFragmentationHigh",
              custom={"fillOpacity": 75, "lineWidth": 0},
              options={"mergeValues": True, "showValue": "never", "alignValue": "left",
                       "rowHeight": 0.85,
                       "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True,
                                  "calcs": []},
                       "tooltip": {"mode": "single", "sort": "none"}}),
        graph("Largest request possible, the smallest", "The largest single request that a rank could "
              "serve at any moment of the last five minutes, growth included, and the largest that any rank says it makes (dashed, "
              f"alerts.required_block_bytes; 0: not declared). Below the dashed line a rank fails. {MANY}",
              "bytes",
              [("bottomk(10, "
                f"{by_rank(f'min_over_time(gpupool_largest_satisfiable_bytes{{{JOBS}}}[5m])', 'min')})",
                WHO),
               (f"max(gpupool_required_block_bytes{{{JOBS}}})", "needed")], min=0,
              overrides=outside_stack("needed", color=RED), many=["lastNotNull"],
              runbook="GpupoolLargestBlockBelowRequired"),
        graph("Most and least requested in a job", "What a job's ranks have asked for at their peaks "
              "of a minute: the rank with most, the mean, the rank with least. One rank far above "
              "the mean fails long before the others. Jobs of one rank are left out.", "bytes",
              [(f"{function} by (job, job_id) ({PEAK}) and count by (job, job_id) ({PEAK}) > 1",
                f"{{{{job_id}}}} {name}")
               for function, name in (("max", "most"), ("avg", "mean"), ("min", "least"))], min=0,
              runbook="GpupoolRankImbalance", many=["lastNotNull", "max"],
              no_value="no job has more than one rank"),
    ]


def signs():
    last_moment = by_rank(
        f'rate(gpupool_ladder_rungs_total{{{JOBS}, rung=~"trim|wait|callback"}}[$__rate_interval])',
        "sum")
    wait = by_rank(f"rate(gpupool_driver_wait_seconds_total{{{JOBS}}}[$__rate_interval])", "sum")
    return [
        graph("Failed requests by rank", "Requests that were not served for want of memory, in the "
              "time that one point stands for.", "short",
              [(by_rank(failed('$__rate_interval'), 'sum', RANK + ', cause'),
                "{{job_id}} #{{rank}} {{cause}}")], 8, min=0,
              seldom="no request failed in the time shown", runbook="GpupoolOutOfMemory"),
        graph("Served at the last moment", "Requests a second that came to the rungs after growing: "
              f"giving memory back, waiting for work, asking the program. {MANY}", "reqps",
              [(f"topk(10, {last_moment})", WHO)], 8, min=0, runbook="GpupoolRetries",
              seldom="no request came to the last moment in the time shown"),
        graph("Served outside the pool", "Fallbacks as a share of requests: each costs a driver call "
              f"that stops the device. {MANY}", "percentunit",
              [(f"topk(10, {rate_share('gpupool_fallbacks_total', 'gpupool_allocation_requests_total')})",
                WHO)], 8, min=0, runbook="GpupoolDriverFallbackRateHigh", custom={"axisSoftMax": 0.01},
              seldom="no request was served outside the pool in the time shown"),
        graph("Waiting for the driver", "Share of the time in which threads that allocate wait for "
              f"the driver (100 %: one thread, always), where that is more than 0.1 %. {MANY}", "percentunit",
              [(f"topk(10, {wait} > 0.001)", WHO)], 8, min=0, bars=True,
              custom={"axisSoftMax": 0.05}, runbook="GpupoolRecyclingCostly",
              no_value="no rank waited for more than 0.1 % of the time shown"),
        graph("Requests without a miss", "Share of requests that needed neither the driver nor a "
              "wait: the ten ranks with the smallest.", "percentunit",
              [("bottomk(10, "
                f"{rate_share('gpupool_allocation_hits_total', 'gpupool_allocation_requests_total')})",
                WHO)], 8, max=1, custom={"axisSoftMin": 0.9},
              no_value="no request in the time shown"),
        graph("Waiting for a stream", "Share of what is held that has been freed and waits for work "
              f"of a stream, at its least of ten minutes: what is stuck. {MANY}", "percentunit",
              [("topk(10, " + by_rank(
                  f"min_over_time(gpupool_pending_free_bytes{{{JOBS}}}[10m]) / "
                  f"(gpupool_reserved_bytes{{{JOBS}}} > 0)") + ")", WHO)], 8, min=0,
              custom={"axisSoftMax": 0.2}, seldom="nothing waits for a stream",
              runbook="GpupoolPendingFreesStuck"),
    ]


def watch():
    exporter = [("collect_errors", "pages not made"), ("series_dropped", "series left out")]
    return [
        graph("Targets", "Targets that answer, by job, and all that Prometheus is told of (dashed). "
              "Below the dashed line: somebody is not seen.", "none",
              [(f"sum by (job, job_id) ({targets()})", "{{job_id}}"),
               (f"count({targets()})", "listed")], 8, min=0, decimals=0, stack=True,
              overrides=outside_stack("listed"),
              custom={"lineInterpolation": "stepAfter"}, runbook="GpupoolTargetDown"),
        graph("Starts", "Pools of processes that have just been started, again or for the first "
              "time: each is seen for two points at the most.", "short",
              [(f"sum by (job, job_id) {just_started(JOBS)}", "{{job_id}}")],
              8, min=0, decimals=0, seldom="no process started in the time shown"),
        graph("The exporter itself", "Pages that could not be made and series left out, in the time "
              "that one point stands for, and processes whose last configuration was refused. "
              "Anything but 0: what is shown here may not be all.", "short",
              [*((f"sum(increase(gpupool_{name}_total{{{JOBS}}}[$__rate_interval]))", text)
                 for name, text in exporter),
               (f"count(gpupool_config_last_reload_successful{{{JOBS}}}) - "
                f"sum(gpupool_config_last_reload_successful{{{JOBS}}})", "configurations refused")],
              8, min=0, decimals=0, seldom="every page was made, whole; every configuration was taken",
              overrides=colors(**{"pages not made": RED,
                                                        "series left out": ORANGE,
                                                        "configurations refused": PURPLE}),
              runbook="GpupoolCollectErrors"),
    ]


ROWS = [("Who fails first?", first), ("How does it come about?", coming),
        ("What else tells of it?", signs), ("Is the watch itself sound?", watch)]


def job_variables():
    seen = "gpupool_reserved_bytes"
    return [variable("job", "Scrape job", f"label_values({seen}, job)"),
            variable("job_id", "Job", f'label_values({seen}{{job=~"$job"}}, job_id)')]


def make(pattern):
    return dashboard(FLEET, "gpupool: fleet", "All ranks of all jobs: which one will fail first, "
                     "and why. The labels job_id and rank are those that discovery gives.",
                     job_variables(), ROWS, pattern, refresh="30s", since="now-3h",
                     selectors=(JOBS, JOBS))
