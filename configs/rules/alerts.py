"""The alerts: for each its expression and what it says. Times, thresholds and severities are in the
values file; what to do is in the runbook of the same name."""
import recordings as r
import values_file
from promql import (DEVICE, JOB, POOL, PROCESS, above_threshold, both, compare, fresh, group,
                    happened, indent, living, one, one_fresh, share, without)

# Who it is about, in one line: the process, and its place in a job where discovery tells.
WHO = ("{{ $labels.instance }}{{ with $labels.rank }} (rank {{ . }}"
       "{{ with $labels.job_id }} of job {{ . }}{{ end }}){{ end }}")
WHERE = "device {{ $labels.device }}, pool {{ $labels.pool }}"
JOB_NAME = "{{ with $labels.job_id }}job {{ . }}{{ else }}{{ $labels.job }}{{ end }}"

TARGETS, POOLS, EXPORTER = "gpupool.targets", "gpupool.pools", "gpupool.exporter"


class Alert:
    """One alert. `expression` is made from its values, all values and the windows."""

    def __init__(self, name, topic, summary, description, expression):
        self.name, self.topic = name, topic
        self.summary, self.description = summary, description
        self.expression = expression


ALL = []


def alert(name, topic, summary, description, of_the_past=False):
    """Puts the function that makes an alert's expression into the list. One that is `of_the_past`
    tells of what has happened, also of a process that has ended since; any other of what is so."""
    def add(expression):
        def of_the_living(v, values, windows):
            return living(expression(v, values, windows))
        is_limited = topic != TARGETS and not of_the_past
        ALL.append(Alert(name, topic, summary, description,
                         of_the_living if is_limited else expression))
        return expression
    return add


def over(name, value, v, values):
    """Above the threshold of the process, or else of the rule."""
    return group(above_threshold(name, value, v["threshold"], values["rules"]["hysteresis"]))


# --- targets --------------------------------------------------------------------------------------


@alert("GpupoolTargetDown", TARGETS, f"{WHO} does not answer",
       "Its metrics cannot be scraped, while other processes of the same job can: no other alert "
       "sees this one.")
def target_down(v, values, windows):
    # world_size: whoever is left over from before an elastic job has shrunk is not missed.
    labels = f"{JOB}, world_size"
    return both(f"{r.TARGET_UP} == 0", f"({r.TARGET_UP} == 1)", labels)


@alert("GpupoolJobDown", TARGETS, f"No process of {JOB_NAME} answers",
       "None of its {{ $value }} known processes can be scraped.")
def job_down(v, values, windows):
    return without(f"count by ({JOB}) ({r.TARGET_UP} == 0)", f"({r.TARGET_UP} == 1)", JOB)


@alert("GpupoolTargetsMissing", TARGETS, f"Processes of {JOB_NAME} are not there",
       "{{ with $labels.world_size }}The job has {{ . }} ranks; discovery knows {{ $value }} of "
       "them.{{ else }}Discovery knows no process of it.{{ end }}")
def targets_missing(v, values, windows):
    job = values["rules"]["job"]
    labels = f"{JOB}, world_size"
    seen = (f'last_over_time(up{{job=~"{job}", rank!="", world_size!=""}}[{v["memory"]}])')
    count = f"count by ({labels}) (group by ({labels}, rank) ({seen}))"
    # The number of ranks as a label, so that it can be matched with what the job says of itself.
    complete = f'count_values by ({JOB}) ("world_size",\n{indent(count)}\n)'
    result = both(group(without(count, complete, labels)), f"({r.TARGET_UP} == 1)", labels)
    for name in values["rules"]["expected_jobs"]:
        result += f'\nor\nabsent(up{{job="{name}"}})'
    return result


# --- fragmentation --------------------------------------------------------------------------------


@alert("GpupoolFragmentationHigh", POOLS, f"GPU memory of {WHO} is fragmented ({WHERE})",
       "{{ $value | humanizePercentage }} of the memory that the pool could still give out cannot "
       "be given to one request. A large request will fail while memory is free.")
def fragmentation_high(v, values, windows):
    enough = f"({r.AVAILABLE} > {values_file.byte_count(v['min_available'])})"
    return both(over("GpupoolFragmentationHigh", r.FRAGMENTATION, v, values),
                enough)


@alert("GpupoolFragmentationCritical", POOLS,
       f"GPU memory of {WHO} is in small pieces ({WHERE})",
       "{{ $value | humanizePercentage }} of the memory that the pool could still give out cannot "
       "be given to one request, and that is a good part of the device.")
def fragmentation_critical(v, values, windows):
    limit = one_fresh("gpupool_limit_in_force_bytes", windows)
    enough = group(compare(r.AVAILABLE, ">", f"{v['min_available_ratio']} * {limit}"))
    ratio = fresh("gpupool_fragmentation_ratio", windows)
    return both(over("GpupoolFragmentationCritical", ratio, v, values),
                enough)


@alert("GpupoolLargestBlockBelowRequired", POOLS,
       f"The next large GPU allocation of {WHO} will fail ({WHERE})",
       "The pool can serve one request of {{ $value | humanize1024 }}B at most, less than the "
       "largest that this job says it makes (alerts.required_block_bytes).")
def largest_block(v, values, windows):
    largest = fresh("gpupool_largest_satisfiable_bytes", windows)
    required = group(f"{one(f'last_over_time(gpupool_required_block_bytes[{windows.threshold}])')}"
                     " > 0")
    used = one_fresh("gpupool_requested_bytes", windows)
    least = one(f"min_over_time(gpupool_requested_bytes[{v['trough']}])")
    with_trough = group(compare(largest, "+", group(f"{used}\n- on ({POOL})\n{indent(least)}")))
    return both(group(compare(largest, "<", required)),
                group(compare(with_trough, "<", required)))


# --- how much is left -----------------------------------------------------------------------------


@alert("GpupoolOutOfMemory", POOLS,
       f"A GPU allocation of {WHO} failed, cause {{{{ $labels.cause }}}} ({WHERE})",
       "Requests that failed in the last 10 minutes: about {{ $value | humanize }}, cause "
       "{{ $labels.cause }}. The process has the numbers of the last one.", of_the_past=True)
def out_of_memory(v, values, windows):
    return happened("gpupool_out_of_memory_total", v["window"], windows)


@alert("GpupoolNearCapacity", POOLS,
       "Others have filled the GPU of " + WHO + " (device {{ $labels.device }})",
       "{{ $value | humanizePercentage }} of the device is free, and the pool cannot reach its "
       "limit any more: whatever it needs beyond what it holds fails.")
def near_capacity(v, values, windows):
    free = share(fresh("gpupool_device_memory_free_bytes", windows),
                 one_fresh("gpupool_device_memory_total_bytes", windows, DEVICE), DEVICE)
    reach = share(fresh("gpupool_limit_in_force_bytes", windows),
                  one_fresh("gpupool_limit_bytes", windows))
    return both(f"{group(free)} < {v['threshold']}",
                f"({group(reach)} < {v['max_limit_in_force_ratio']})", DEVICE)


@alert("GpupoolPeakNoLongerFits", POOLS,
       f"{WHO} cannot have again what it has had ({WHERE})",
       "The pool can hold {{ $value | humanize1024 }}B now, less than the job had in use at its "
       "peak within the last hour. When it comes to its peak again, a request fails.")
def peak_no_longer_fits(v, values, windows):
    limit = fresh("gpupool_limit_in_force_bytes", windows)
    recent = one(f"max_over_time(gpupool_requested_window_peak_bytes[{v['window']}])")
    # The same address may have been another process within that time.
    own = one_fresh("gpupool_requested_peak_bytes", windows)
    return both(group(compare(limit, "<", recent)), group(compare(limit, "<", own)))


def seen_before(series, v, offset):
    """Where the same process has been as high before: a saw-tooth, however slow. Not where it was
    restarted meanwhile, or a leak would be taken for the memory of the process before."""
    before = f"(max_over_time({series}[{v['memory']}] offset {offset}) >= {series})"
    return group(both(before, f"({r.RESTARTS} == 0)"))


def by_load(name, offset, v):
    """Where requests have become more frequent, by more than memory in use has grown, since `offset`
    before: a server that is asked for more uses more, and no longer than it is asked. Where
    each request uses more, both grow, and memory faster."""
    load, memory = (group(share(series, f"{series} offset {values_file.duration(offset)}") + "\n- 1")
                    for series in r.load_of(name))
    return group(compare(f"({load} > {v['load_ratio']})", ">",
                         group(f"{v['load_factor']} * {memory}")))


@alert("GpupoolMemoryLeakSuspected", POOLS, f"{WHO} uses more and more GPU memory ({WHERE})",
       "The least that was in use has risen in each of the last three spans of time, by "
       "{{ $value | humanize1024 }}B in the last one, and has not come down.")
def memory_leak(v, values, windows):
    span = values_file.seconds(v["span"])
    bound = values_file.byte_count(v["threshold"])
    # The least of a span lags behind by a span: whether it still grows, a shorter one tells, or the
    # most of a span, where the shorter one goes up and down.
    most = f"max_over_time(gpupool_requested_window_peak_bytes[{v['span']}]"
    grows = [group(compare(now, "-", one(then))) + f" > {bound}" for now, then in (
        (r.TROUGH, f"{r.TROUGH} offset {v['span']}"),
        (f"{most})", f"{most} offset {v['span']})"))]
    result = both(f"({r.SPAN_GROWTH} > {bound})", group("\nor\n".join(map(group, grows))))
    for back in (1, 2):
        offset = values_file.duration(back * span)
        result = both(result, f"({r.SPAN_GROWTH} offset {offset} > {bound})")
    # What fills ever more slowly is a cache.
    then = [one(f"{r.SPAN_TROUGH} offset {values_file.duration(back * span)}") for back in (2, 4)]
    before = group(compare(then[0], "-", then[1]))
    lately = group(compare(r.SPAN_TROUGH, "-", then[0]))
    result = both(result, group(compare(lately, ">", f"{v['lasting_ratio']} * {before}")))
    result = without(result, by_load("leak", 3 * span, v))
    return without(result, seen_before(r.SPAN_TROUGH, v, values_file.duration(3 * span)))


@alert("GpupoolExhaustionPredicted", POOLS, f"{WHO} will run out of GPU memory ({WHERE})",
       "At its present pace it is {{ $value | humanizeDuration }} until the job needs "
       "more at its peak than the pool can hold.")
def exhaustion(v, values, windows):
    started = one_fresh("gpupool_start_time_seconds", windows)
    is_old = f"(time() - {started} > {values_file.seconds(v['min_age'])})"
    ways = (needs_more(v, windows, "span", r.NEED_SPAN, v["horizon"]),
            needs_more(v, windows, "long_span", r.NEED_LONG_SPAN, v["long_horizon"]),
            has_less(v, windows))
    return both(group("\nor\n".join(map(group, ways))), is_old)


def needs_more(v, windows, name, series, horizon):
    """Seconds left where the most that is needed in a span, `series`, has grown from span to span."""
    span = values_file.seconds(v[name])
    limit = one_fresh("gpupool_limit_in_force_bytes", windows)
    most = [series + (f" offset {values_file.duration(back * span)}" if back else "")
            for back in range(3)]
    grown = compare(most[0], "-", one(most[2]))
    pace = f"{1 / (2 * span):.9g} * ({grown})"
    room = compare(fresh("gpupool_limit_in_force_bytes", windows), "-", one(most[0]))
    left = share(group(room), one(pace))
    result = f"({group(left)} < {values_file.seconds(horizon)})"
    result = both(result, group(compare(most[0], ">", f"{v['min_used_ratio']} * {limit}")))
    for back in (0, 1):
        growth = group(compare(most[back], "-", one(most[back + 1])))
        growth = group(compare(growth, ">", f"{v['growth_ratio']} * {limit}"))
        # A step up, with a span's edge on it, is no line.
        result = both(result, group(compare(growth, ">", f"{v['line_ratio']} * {one(grown)}")))
    # Whose least has come down is a tooth, even if the span has its top.
    before = one(f"{r.TROUGH} offset {values_file.duration(2 * span)}")
    fallen = group(compare(group(compare(r.TROUGH, "-", before)), "<",
                           f"-{v['fall_ratio']} * {limit}"))
    result = without(result, fallen)
    result = without(result, by_load(name, 2 * span, v))
    return without(result, seen_before(r.NEED, v, values_file.duration(2 * span)))


def has_less(v, windows):
    """Seconds left where the pool can hold less and less, as others on the device grow."""
    span = values_file.seconds(v["span"])
    limit = "gpupool_limit_in_force_bytes"
    pace = one(f"-deriv({limit}[{v['window']}])")
    needed = one(f"max_over_time({r.NEED}[{v['peak_window']}])")
    left = share(group(compare(fresh(limit, windows), "-", needed)), pace)
    result = f"({group(left)} < {values_file.seconds(v['horizon'])})"
    for back in (0, 1):
        now = f"min_over_time({limit}[{v['span']}] offset {values_file.duration(back * span)})" \
            if back else f"min_over_time({limit}[{v['span']}])"
        then = f"min_over_time({limit}[{v['span']}] offset {values_file.duration((back + 1) * span)})"
        fall = group(compare(then, "-", one(now)))
        result = both(result, group(compare(
            fall, ">", f"{v['growth_ratio']} * {one_fresh('gpupool_limit_bytes', windows)}")))
    return result


@alert("GpupoolPendingFreesStuck", POOLS,
       f"GPU memory that {WHO} has freed does not come back ({WHERE})",
       "{{ $value | humanizePercentage }} of what the pool holds has been waiting for work on a "
       "stream all the time: a stream is stuck, or far behind.")
def pending_stuck(v, values, windows):
    least = values_file.byte_count(v["min_bytes"])
    return both(over("GpupoolPendingFreesStuck", r.PENDING_RATIO, v, values),
                f"({r.PENDING} > {least})")


# --- speed ----------------------------------------------------------------------------------------


@alert("GpupoolDriverFallbackRateHigh", POOLS,
       f"{WHO} gets GPU memory past its pool ({WHERE})",
       "{{ $value | humanizePercentage }} of its requests are served by driver allocations of "
       "their own, each of which stops the device for a moment.")
def fallback_rate(v, values, windows):
    started = one_fresh("gpupool_start_time_seconds", windows)
    return both(over("GpupoolDriverFallbackRateHigh", r.FALLBACK_RATIO, v, values),
                f"(time() - {started} > {values_file.seconds(v['min_age'])})")


@alert("GpupoolDriverSlow", POOLS, f"The GPU driver is slow to serve {WHO} ({WHERE})",
       "The slowest hundredth of its driver calls take longer than {{ $value | humanizeDuration }}"
       " each.")
def driver_slow(v, values, windows):
    labels = r.kept_labels(values)
    durations = (f"sum by ({labels}, le) "
                 f"(rate(gpupool_driver_call_duration_seconds_bucket[{v['window']}]))")
    calls = (f"sum by ({POOL}) "
             f"(increase(gpupool_driver_call_duration_seconds_count[{v['window']}]))")
    return both(f"(histogram_quantile({v['quantile']}, {durations}) > {v['threshold']})",
                f"({calls} > {v['min_calls']})")


@alert("GpupoolRetries", POOLS, f"{WHO} is served at the last moment ({WHERE})",
       "{{ $value | humanize }} requests a minute were served, or not, only after memory was given "
       "back to the driver, work was waited for, or the program was asked.")
def retries(v, values, windows):
    rungs = f'gpupool_ladder_rungs_total{{rung=~"trim|wait|callback"}}[{v["window"]}]'
    return f"60 * sum by ({r.kept_labels(values)}) (rate({rungs})) > {v['threshold']}"


@alert("GpupoolRecyclingCostly", POOLS, f"{WHO} spends its time on moving GPU memory ({WHERE})",
       "Threads that allocate waited for the driver for {{ $value | humanizePercentage }} of the "
       "last 10 minutes, while pages were moved.")
def recycling_costly(v, values, windows):
    moving = f"(rate(gpupool_pages_recycled_total[{v['window']}]) > 0)"
    return both(over("GpupoolRecyclingCostly", r.DRIVER_WAIT, v, values),
                moving)


@alert("GpupoolAddressSpaceLow", POOLS,
       f"{WHO} has nearly used up its addresses for GPU memory ({WHERE})",
       "The pool has used {{ $value | humanizePercentage }} of its addresses, and can reserve no "
       "more. A large request may soon fail, or be served outside the pool, while memory is free.")
def address_space(v, values, windows):
    used = share(fresh("gpupool_address_range_used_bytes", windows),
                 one_fresh("gpupool_address_range_bytes", windows))
    return both(f"({group(used)} > {v['threshold']})",
                f"({fresh('gpupool_address_ranges', windows)} >= {v['ranges']})")


# --- worth knowing --------------------------------------------------------------------------------


@alert("GpupoolInternalFragmentationHigh", POOLS,
       f"Much of the GPU memory of {WHO} is lost to rounding ({WHERE})",
       "{{ $value | humanizePercentage }} of the memory in live blocks is more than was asked for.")
def internal_fragmentation(v, values, windows):
    least = values_file.byte_count(v["min_allocated"])
    return both(over("GpupoolInternalFragmentationHigh", r.WASTE_RATIO, v, values),
                f"({fresh('gpupool_allocated_bytes', windows)} > {least})")


@alert("GpupoolRankImbalance", POOLS, f"{WHO} uses more GPU memory than its fellows",
       "Its peak is {{ $value | humanize }} times the mean of the processes of its job: it is the "
       "first that will run out.")
def rank_imbalance(v, values, windows):
    labels = r.kept_labels(values, PROCESS)
    mine = f"sum by ({labels}) ({r.PEAK})"
    mean = f"avg by ({JOB}) (sum by ({PROCESS}) ({r.PEAK}))"
    least = values_file.byte_count(v["min_bytes"])
    return both(f"({group(share(mine, mean, JOB))} > {v['threshold']})",
                group(f"{compare(mine, '-', mean, JOB)} > {least}"), PROCESS)


@alert("GpupoolInvalidFree", POOLS,
       f"{WHO} frees GPU memory that is not its own: {{{{ $labels.kind }}}} ({WHERE})",
       "Calls of this kind in the last 10 minutes: about {{ $value | humanize }}. Each was refused, "
       "and the program that made them is wrong.", of_the_past=True)
def invalid_free(v, values, windows):
    return happened(f'gpupool_misuses_total{{kind=~"{v["kinds"]}"}}', v["window"], windows)


# --- the exporter itself --------------------------------------------------------------------------


@alert("GpupoolCollectErrors", EXPORTER, f"The metrics page of {WHO} could not be made",
       "Pages that failed in the last 10 minutes: about {{ $value | humanize }}.", of_the_past=True)
def collect_errors(v, values, windows):
    return happened("gpupool_collect_errors_total", v["window"], windows, PROCESS)


@alert("GpupoolCollectSlow", EXPORTER, f"The metrics page of {WHO} takes long to make",
       "{{ $value | humanizeDuration }} on average; a page takes under a millisecond.")
def collect_slow(v, values, windows):
    return f"avg_over_time(gpupool_collect_duration_seconds[{v['window']}]) > {v['threshold']}"


@alert("GpupoolSeriesDropped", EXPORTER, f"{WHO} does not show all its series",
       "Series that were left out in the last 10 minutes: about {{ $value | humanize }}, reason "
       "{{ $labels.reason }}.", of_the_past=True)
def series_dropped(v, values, windows):
    return happened("gpupool_series_dropped_total", v["window"], windows, PROCESS)


@alert("GpupoolConfigReloadFailed", EXPORTER, f"{WHO} runs with an older configuration",
       "Its configuration file was read again and refused. The settings of before are in force.")
def config_reload(v, values, windows):
    return f"{fresh('gpupool_config_last_reload_successful', windows)} == 0"
