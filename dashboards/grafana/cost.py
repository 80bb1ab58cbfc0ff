"""gpupool: cluster cost. Who holds memory that nobody uses?"""
from fleet import JOBS, job_variables
from panels import (BLUE, COST, GREEN, ORANGE, RED, YELLOW, colors, dashboard, gauge_cell, graph,
                    outside_stack, panel, steps, table, tile)

JOB = "job, job_id"
GIB = 2 ** 30
HOUR_MS = 3600 * 1000
HELD = f"gpupool_reserved_bytes{{{JOBS}}}"
USED = f"gpupool_requested_bytes{{{JOBS}}}"
UNUSED = f"({HELD} - {USED})"
LIMIT = f"gpupool_limit_bytes{{{JOBS}}}"
PEAK = f"gpupool_requested_window_peak_bytes{{{JOBS}}}"
GIB_HOURS = "suffix: GiB\u00b7h"
# The finest step at which GiB hours are added up.
FINEST = "1m"
ADDED_UP = ("one value each step of the panel, a minute or longer, is added up: a GiB held for an hour "
            "is 1")
# Of a share that is used: all is best.
USED_SHARES = steps(RED, (0.5, ORANGE), (0.7, YELLOW), (0.85, GREEN))
# A card by its uuid, so that what several processes share counts once; simulated ones have all the
# same, and are told apart by process.
CARD = ('label_replace(label_replace(gpupool_device_info{%s}, "card", "$1", "instance", "(.*)"), '
        '"card", "$1", "uuid", "([^S].*)")' % JOBS)


def over_time(expr):
    """Sum of one value a step in the time shown; times the step it is an integral."""
    return f"sum_over_time(({expr})[$__range:$__interval])"


def hours(expr, by=""):
    return f"{over_time(f'sum{by} ({expr})')} * $__interval_ms / {HOUR_MS} / {GIB}"


def used_share(by=""):
    return f"{over_time(f'sum{by} ({USED})')} / ({over_time(f'sum{by} ({HELD})')} > 0)"


def cards(metric):
    """Sum over cards of a family about devices."""
    return (f"sum(max by (card) ({metric}{{{JOBS}}} * on (job, instance, device) "
            f"group_left (card) {CARD}))")


def never_used(window):
    """Held now, and more than was in use at once by that pool in the window."""
    return f"clamp_min({HELD} - max_over_time({PEAK}[{window}]), 0)"


def summary():
    total = cards("gpupool_device_memory_total_bytes")
    instant = {"instant": True, "graph": "none", "interval": FINEST}
    return [
        tile("Held now", "Memory that the jobs hold from the driver, used or not. Sum over ranks.",
             "bytes", [(f"sum({HELD})", "held")], thresholds=steps("text")),
        tile("Used now", "What their programs have asked for and not given back. Sum over ranks.",
             "bytes", [(f"sum({USED})", "used")], thresholds=steps(BLUE)),
        tile("Used of held", "Over the time shown: GiB hours used, of GiB hours held.", "percentunit",
             [(used_share(), "used")], thresholds=USED_SHARES, min=0, max=1, decimals=1, **instant),
        tile("Held", f"GiB hours held in the time shown: {ADDED_UP}.", GIB_HOURS,
             [(hours(HELD), "held")], thresholds=steps("text"), decimals=1, **instant),
        tile("Held and not used", "GiB hours held in the time shown, less those in use: rounding, "
             f"caches, pending frees and free pieces. As for Held, {ADDED_UP}.", GIB_HOURS,
             [(hours(UNUSED), "not used")], thresholds=steps(ORANGE), decimals=1, **instant),
        tile("Of the cards' memory", "Memory held by the jobs, of all memory of the cards that they "
             "run on. A card that several processes share counts once.", "percentunit",
             [(f"sum({HELD}) / ({total} > 0)", "held")], thresholds=steps(BLUE), min=0, max=1,
             decimals=1),
        jobs(), ranks(),
    ]


def jobs():
    by = f" by ({JOB})"
    wide = {"unit": GIB_HOURS, "decimals": 1, "custom__width": 115}
    columns = [("job_id", "job", {}),
               ("Value #A", "ranks", {"custom__width": 60, "decimals": 0}),
               ("Value #B", "held and not used", {**wide, "custom__width": 165}), ("Value #C", "held", wide),
               ("Value #D", "used of held", {"unit": "percentunit", "decimals": 1,
                                             "custom__width": 130, **gauge_cell(USED_SHARES)}),
               ("Value #E", "limit", {"unit": "bytes", "custom__width": 80}),
               ("Value #F", "never used", {"unit": "bytes", "custom__width": 95}),
               ("job", "scrape", {"custom__width": 130})]
    counted = f"max_over_time(count{by} ({HELD})[$__range:$__interval])"
    return table(
        "Jobs, the most unused memory on top", "Over the time shown, jobs that have ended included. "
        f"GiB hours: {ADDED_UP}. ranks: pools, the most at once. used of held: GiB hours used of GiB "
        "hours held. limit: what the pools may hold. never used: held now, less the most that each "
        "pool had in use at once in the time shown: a lower limit (pool.capacity) or another trim "
        "would give so much back.",
        [(query, "") for query in (
            counted, hours(UNUSED, by), hours(HELD, by), used_share(by), f"sum{by} ({LIMIT})",
            f"sum{by} ({never_used('$__range')})")],
        15, 10, columns, interval=FINEST, sort_by=("held and not used", True))


def ranks():
    return panel("bargauge", "Ranks that hold most unused", "Held and not used now, the fifteen pools "
                 "with most.", "bytes",
                 [(f"sort_desc(topk(15, {UNUSED}))", "{{job_id}} #{{rank}} {{instance}}")], 9, 10,
                 instant=True, min=0, thresholds=steps(ORANGE),
                 options={"orientation": "horizontal", "displayMode": "basic", "showUnfilled": True,
                          "valueMode": "text", "sizing": "auto", "namePlacement": "left",
                          "minVizHeight": 12, "minVizWidth": 8, "maxVizHeight": 40,
                          "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                            "values": False}})


def by_time():
    by = f" by ({JOB})"
    total = cards("gpupool_device_memory_total_bytes")
    free = cards("gpupool_device_memory_free_bytes")
    return [
        graph("Held by job", "Memory that each job holds from the driver. Sum over its ranks.",
              "bytes", [(f"sum{by} ({HELD})", "{{job_id}}")], stack=True, min=0, many=["lastNotNull", "max"]),
        graph("Held and not used by job", "What of that no program has asked for: rounding, caches, "
              "pending frees and free pieces. In a training it rises and falls with each step.",
              "bytes", [(f"sum{by} ({UNUSED})", "{{job_id}}")], stack=True, min=0, many=["lastNotNull", "max"]),
        graph("Used share by job", "Used of held, at each moment.", "percentunit",
              [(f"sum{by} ({USED}) / (sum{by} ({HELD}) > 0)", "{{job_id}}")], min=0, max=1,
              many=["lastNotNull", "max"]),
        graph("Never used within an hour", "Held, less the most that each pool had in use at once in "
              "the last hour: what neither a peak nor the next step needs, and another job could "
              "have.", "bytes", [(f"sum{by} ({never_used('1h')})", "{{job_id}}")], stack=True, min=0,
              many=["lastNotNull", "max"]),
        graph("The cards", "Memory of the cards that the jobs run on: held by the jobs, taken by "
              "others, free. A card that several processes share counts once.", "bytes",
              [(f"sum({HELD})", "held by jobs"),
               (f"clamp_min({total} - {free} - sum({HELD}), 0)", "taken by others"),
               (free, "free"), (total, "all cards")], stack=True, min=0,
              overrides=[*colors(**{"held by jobs": BLUE, "taken by others": ORANGE, "free": GREEN}),
                         *outside_stack("all cards")]),
        graph("Held, needed and allowed", "All jobs: the limits of their pools, what is held, the "
              "most in use within a minute, and what is in use now. From limit down to peak is what "
              "could be promised to others.", "bytes",
              [(f"sum({LIMIT})", "limit"), (f"sum({HELD})", "held"), (f"sum({PEAK})", "peak"),
               (f"sum({USED})", "used")], min=0,
              overrides=[*outside_stack("limit"),
                         *colors(held=ORANGE, peak=RED, used=BLUE)]),
    ]


ROWS = [("Which job holds memory that it does not use?", summary),
        ("When, and how much?", by_time)]


def make(pattern):
    return dashboard(COST, "gpupool: cluster cost", "Memory held against memory used, by job: GiB "
                     "hours, shares of the cards, and what could be given back.",
                     job_variables(), ROWS, pattern, refresh="1m", since="now-6h",
                     selectors=(JOBS, JOBS))
