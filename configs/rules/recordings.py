"""Recording rules: what alerts and dashboards read, (name, expression, why)."""
import values_file
from promql import (ENDED, JOB, LEVEL, NEWS, POOL, PROCESS, THRESHOLD, compare, fresh, group,
                    indent, living, news, one, one_fresh, share)

AVAILABLE = f"{LEVEL}:gpupool_available_bytes:last"
FRAGMENTATION = f"{LEVEL}:gpupool_fragmentation_ratio:avg"
TROUGH = f"{LEVEL}:gpupool_requested_bytes:min"
PEAK = f"{LEVEL}:gpupool_requested_bytes:peak"
NEED = f"{LEVEL}:gpupool_needed_bytes:peak"
NEED_SPAN = f"{LEVEL}:gpupool_needed_bytes:max_span"
NEED_LONG_SPAN = f"{LEVEL}:gpupool_needed_bytes:max_long_span"
HEADROOM = f"{LEVEL}:gpupool_headroom_bytes:last"
SPAN_TROUGH = f"{LEVEL}:gpupool_requested_bytes:min_span"
SPAN_GROWTH = f"{LEVEL}:gpupool_requested_bytes:growth_span"
WASTE_RATIO = f"{LEVEL}:gpupool_internal_fragmentation:ratio"
PENDING = f"{LEVEL}:gpupool_unpinned_pending_bytes:min"
PENDING_RATIO = f"{LEVEL}:gpupool_pending_free:ratio_min"
RESTARTS = f"{LEVEL}:gpupool_start_time:changes"
REQUEST_RATE = f"{LEVEL}:gpupool_allocation_requests:rate"
FALLBACK_RATE = f"{LEVEL}:gpupool_fallbacks:rate"
FALLBACK_RATIO = f"{LEVEL}:gpupool_fallbacks_per_allocation_requests:ratio_rate"
HIT_RATIO = f"{LEVEL}:gpupool_allocation_hits_per_allocation_requests:ratio_rate"
DRIVER_WAIT = f"{LEVEL}:gpupool_driver_wait_seconds:rate"
TARGET_UP = "instance:gpupool_up:last"
TARGET_SETTLED = "instance:gpupool_up:max"


def load_of(name):
    """Requests a second, and memory in use, of so long as load_windows says."""
    return (f"{LEVEL}:gpupool_allocation_requests:rate_{name}",
            f"{LEVEL}:gpupool_requested_bytes:avg_{name}")


def load_windows(values):
    """Over how long requests and memory in use are compared (`by_load`, where the alerts are)."""
    leak, exhaustion = (values["alerts"][name] for name in (
        "GpupoolMemoryLeakSuspected", "GpupoolExhaustionPredicted"))
    return {"leak": leak["span"],
            **{name: values_file.duration(2 * values_file.seconds(exhaustion[name]))
               for name in ("span", "long_span")}}


def kept_labels(values, base=POOL):
    """Labels that a sum keeps: what tells its series apart, and what discovery says of them."""
    labels = [*base.split(", "), *values["rules"]["target_labels"]]
    return ", ".join(dict.fromkeys(labels))


def pool_recordings(values, windows):
    alerts = values["alerts"]
    labels = kept_labels(values)
    fallback_window = alerts["GpupoolDriverFallbackRateHigh"]["window"]
    span = alerts["GpupoolMemoryLeakSuspected"]["span"]
    # An alert that looks back sees what was in the file after that was removed, too.
    yield ENDED, (f"{one('last_over_time(gpupool_textfile_end_time_seconds[1h])', PROCESS)}"
                  " <= bool time() > 0"), "processes whose textfile says nothing of the present"
    yield NEWS, news(alerts["GpupoolOutOfMemory"]["window"], windows), (
        "pools that have counted nothing but what is new")
    yield THRESHOLD, one(f"last_over_time(gpupool_alert_threshold[{windows.threshold}])",
                         f"{POOL}, alert"), "thresholds of the processes, over lost scrapes"
    yield AVAILABLE, compare(
        fresh("gpupool_limit_in_force_bytes", windows), "-",
        "(\n" + indent("\n+ ".join(one_fresh(f"gpupool_{part}_bytes", windows)
                                   for part in ("allocated", "pending_free", "cached"))) + "\n)"
    ), "what the pool could still give out, in one piece or many"
    yield FRAGMENTATION, (f"avg_over_time(gpupool_fragmentation_ratio"
                          f"[{alerts['GpupoolFragmentationHigh']['window']}])"), (
        "the ratio moves with every step; its mean does not")
    yield TROUGH, f"min_over_time(gpupool_requested_bytes[{windows.short}])", (
        "the least in use: what does not come and go with the steps")
    yield PEAK, f"max_over_time(gpupool_requested_window_peak_bytes[{windows.short}])", (
        "the most in use, also between scrapes")
    exhaustion = alerts["GpupoolExhaustionPredicted"]
    stuck = one(f"min_over_time(gpupool_pending_free_bytes[{exhaustion['span']}])")
    yield NEED, compare(PEAK, "+", (
        f"({one_fresh('gpupool_waste_bytes', windows)}\n+ {stuck})")), (
        "what the job needs at its peak: what is in use, and what never comes back from a stream "
        "or a captured graph")
    yield RESTARTS, f"changes(gpupool_start_time_seconds[{exhaustion['memory']}])", (
        "for what looks back so far")
    yield NEED_SPAN, f"max_over_time({NEED}[{exhaustion['span']}])", "the most of that in a span"
    yield NEED_LONG_SPAN, f"max_over_time({NEED}[{exhaustion['long_span']}])", "and in a long one"
    for name, window in load_windows(values).items():
        load, memory = load_of(name)
        yield load, (f"sum by ({POOL}) (rate(gpupool_allocation_requests_total[{window}]))"), (
            "how much the job is asked for")
        yield memory, one(f"avg_over_time(gpupool_requested_bytes[{window}])"), (
            "and what it has in use meanwhile")
    yield HEADROOM, compare(
        fresh("gpupool_limit_in_force_bytes", windows), "-", one(NEED)), (
        "what is left at the peak of a step")
    yield SPAN_TROUGH, f"min_over_time(gpupool_requested_bytes[{span}])", "the least of a long span"
    yield SPAN_GROWTH, compare(SPAN_TROUGH, "-", one(f"{SPAN_TROUGH} offset {span}")), (
        "by how much that has risen since the span before")
    window = alerts["GpupoolInternalFragmentationHigh"]["window"]
    yield WASTE_RATIO, share(f"avg_over_time(gpupool_waste_bytes[{window}])",
                             one(f"avg_over_time(gpupool_allocated_bytes[{window}])")), (
        "lost to rounding, of what is in live blocks")
    window = alerts["GpupoolPendingFreesStuck"]["window"]
    yield PENDING, f"min_over_time(gpupool_unpinned_pending_bytes[{window}])", (
        "always waiting for a stream; what graphs keep waits for nothing, and is not in it")
    yield PENDING_RATIO, share(PENDING, one_fresh("gpupool_reserved_bytes", windows)), (
        "the same, of what is held")
    yield REQUEST_RATE, (f"sum by ({labels}) "
                         f"(rate(gpupool_allocation_requests_total[{fallback_window}]))"), ""
    yield FALLBACK_RATE, (f"sum by ({labels}) "
                          f"(rate(gpupool_fallbacks_total[{fallback_window}]))"), ""
    yield FALLBACK_RATIO, share(FALLBACK_RATE, f"sum by ({POOL}) ({REQUEST_RATE})"), ""
    yield HIT_RATIO, share(
        f"sum by ({labels}) (rate(gpupool_allocation_hits_total[{fallback_window}]))",
        f"sum by ({POOL}) ({REQUEST_RATE})"), ""
    window = alerts["GpupoolRecyclingCostly"]["window"]
    yield DRIVER_WAIT, f"rate(gpupool_driver_wait_seconds_total[{window}])", (
        "seconds a second in which an allocating thread waited for the driver")


def job_recordings(values, windows):
    """Sums over a job. Ratios are made of sums again, never averaged."""
    for metric in ("gpupool_reserved_bytes", "gpupool_requested_bytes",
                   "gpupool_limit_in_force_bytes", "gpupool_free_bytes"):
        yield f"job:{metric}:sum", f"sum by ({JOB}) {group(living(fresh(metric, windows)))}", ""
    yield "job:gpupool_allocation_requests:rate", f"sum by ({JOB}) ({REQUEST_RATE})", ""
    yield "job:gpupool_fallbacks:rate", f"sum by ({JOB}) ({FALLBACK_RATE})", ""
    yield "job:gpupool_fallbacks_per_allocation_requests:ratio_rate", share(
        "job:gpupool_fallbacks:rate", "job:gpupool_allocation_requests:rate", JOB), ""
    yield "job:gpupool_requested_per_reserved_bytes:ratio", share(
        "job:gpupool_requested_bytes:sum", "job:gpupool_reserved_bytes:sum", JOB), (
        "memory used of memory held")


def target_recordings(values, windows):
    up = f'up{{job=~"{values["rules"]["job"]}"}}'
    ranks = f'up{{job=~"{values["rules"]["job"]}", rank!=""}}'
    v = values["alerts"]["GpupoolTargetDown"]
    yield TARGET_SETTLED, f"max_over_time({up}[{v['settle']}])\nand\n{indent(up)}", (
        "0 where a target that is listed has been down for a while")
    # Whoever leaves in good order may be asked once or twice more before discovery knows.
    gone = group(f"(last_over_time({TARGET_SETTLED}{{rank!=\"\"}}[{v['memory']}]) == 0)\n"
                 f"unless on ({JOB}, rank)\n{indent(ranks)}")
    yield TARGET_UP, f"{up}\nor\n{gone}", (
        "whether each target answers; ranks that were down when discovery dropped them stay, as 0")
