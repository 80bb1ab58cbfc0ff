#!/usr/bin/env python3
"""A rank that starts again is no spike in any panel, whatever the time shown and the scrape interval.

    restart_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM

Series of two jobs of eight ranks are made of a page of the real demo and put into a real Prometheus as
its past. In one job a rank dies, is away for minutes and starts again with counters at 0 and memory
that fills; else they are the same. Every expression of every dashboard is run for both as Grafana would
($__rate_interval from step and scrape interval). Where the job with the restart shows more than the
other, less than nothing, or a series that the other has not, that is a spike. GPUPOOL_SOAK=1 fills 24
hours and takes every range with every interval.
"""
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import prometheus_server  # noqa: E402

SOAKS = os.environ.get("GPUPOOL_SOAK") == "1"
RANKS = 8
BACK_BEFORE_END = 1500
# Rank to when it is back, before the end, and for how long it was away: once longer than Prometheus
# looks back for a last value, once shorter than any window.
RESTARTED = {3: (BACK_BEFORE_END, 420), 5: (BACK_BEFORE_END + 120, 40)}
FILL = 180  # seconds in which memory is filled again
LENGTH = 24 * 3600 if SOAKS else 4200
MINUTES_5, HOUR, HOURS_6, DAY = 300, 3600, 6 * 3600, 24 * 3600
RANGES = {15: (MINUTES_5, HOUR, HOURS_6, DAY), 30: (MINUTES_5, HOUR, HOURS_6, DAY),
          60: (MINUTES_5, HOUR, HOURS_6, DAY)} if SOAKS else {
              15: (MINUTES_5, HOUR), 30: (HOURS_6,), 60: (DAY,)}
PIXELS = 1000  # of a panel: as many steps as there are, at the most
STEADY, RESTARTS = "steady", "restarts"
OF_NOTHING = 0.01  # a second, of counters that the demo leaves at 0
# Gauges that begin at 0 when a process does.
FILLED = re.compile(r"gpupool_(requested|reserved|allocated|free|waste|cached|pending_free|"
                    r"tag_requested|requested_window_peak|reserved_window_peak)_bytes$")
COUNTER = re.compile(r"_(total|bucket|count|sum)$")
# What is right to be more where a rank has just started, and why.
MAY_RISE = {
    'panel "The device"': "what a process does not hold yet is free, or another's",
    'panel "The cards"': "the same",
}
# What there is for restarts, and must show this one.
SHOWS_RESTARTS = {'panel "Starts"', 'annotation "Starts"'}
# Expressions that see a spike; the test must, too.
PLANTED = [
    "sum by (tag) (deriv(gpupool_tag_requested_bytes{job=~\"$job\"}[10m]))",
    "sum(delta(gpupool_frees_total{job=~\"$job\"}[5m]))",
    "sum(gpupool_frees_total{job=~\"$job\"} - gpupool_frees_total{job=~\"$job\"} offset 5m)",
]


def page_of_demo(program, folder):
    port = processes.free_port()
    with processes.running("demo", [program, "demo", "--port", port, "--for", 120], folder) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        processes.wait_for("requests", 60, lambda: re.search(
            r"^gpupool_allocation_requests_total\S* [1-9]\d{3}", processes.get(url), re.M), process)
        page = processes.get(url)
        processes.require(process.stop() == 0, process.output())
    return [re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line).groups()
            for line in page.splitlines() if not line.startswith("#")]


def values(name, value, times, since, start):
    """The value of a series at each time; `start` is when its process did, `since` if that is new."""
    if name in ("gpupool_start_time_seconds", "gpupool_config_last_reload_success_timestamp_seconds"):
        return [start] * len(times)
    if COUNTER.search(name):
        rate = value / 10 or OF_NOTHING
        return [rate * (at - start) for at in times]
    if since and FILLED.match(name):
        return [value * min(1.0, (at - start) / FILL) for at in times]
    return [value] * len(times)


def write_series(page, file, end, interval, kind, needed):
    job = f"{kind}-{interval}"
    for rank in range(RANKS):
        # Ranks are not scraped at the same moment.
        times = range(end - LENGTH + rank, end, interval)
        spans = [(times, end - 2 * DAY, False)]
        if kind == RESTARTS and rank in RESTARTED:
            back, away = end - RESTARTED[rank][0], RESTARTED[rank][1]
            spans = [([at for at in times if at < back - away], end - 2 * DAY, False),
                     ([at for at in times if at >= back], back, True)]
        target = f'job="{job}",instance="node:{10064 + rank}",job_id="{kind}",rank="{rank}"'
        file.write("".join(f"up{{{target}}} {int(any(at in span for span, _, _ in spans))} {at}\n"
                           for at in times))
        for name, labels, value in page:
            if name not in needed or name == "gpupool_process_info" and labels is None:
                continue
            labels = re.sub(r'(?:,|^)(?:job_id|rank)="[^"]*"', "", labels or "").strip(",")
            series = f"{name}{{{target}{',' + labels if labels else ''}}} "
            for span, start, since in spans:
                made = values(name, float(value), span, since, start)
                file.write("".join([f"{series}{one:.12g} {at}\n" for one, at in zip(made, span)]))


def collect(source):
    """(place, expression) of everything, each expression once."""
    from dashboard_lint import expressions
    found = {}
    for file in sorted((source / "dashboards/grafana").glob("*.json")):
        for place, expr in expressions(json.loads(file.read_text())):
            found.setdefault(expr, place)
    return [(place, expr) for expr, place in found.items()]


def fill_in(expr, job, step, interval, length):
    """As Grafana does for a range of `length` seconds."""
    rate = max(step + interval, 4 * interval)
    for name, value in (("$__rate_interval", f"{rate}s"), ("$__interval_ms", str(1000 * step)),
                        ("$__interval", f"{step}s"), ("$__range", f"{length}s"),
                        ("$job_id", ".*"), ("$job", job)):
        expr = expr.replace(name, value)
    return re.sub(r"\$(instance|device|pool)\b", ".*", expr)


def ask(prometheus, expr, since, until, step):
    """Labels without those that tell the jobs apart, to the values by time."""
    found = {}
    answer = prometheus.ask("query_range", query=expr, start=since, end=until, step=step)
    for series in answer["result"]:
        labels = tuple(sorted((name, value) for name, value in series["metric"].items()
                              if name not in ("job", "job_id", "__name__")))
        found[labels] = {at: float(value) for at, value in series["values"]}
    return found


def difference(steady, restarted):
    """What the job with the restart shows and the other does not, in words; none: nothing."""
    for labels, points in restarted.items():
        if labels not in steady:
            return f"{dict(labels)} only with the restart"
        usual = [value for value in steady[labels].values() if value == value]
        if not usual:
            continue
        highest, lowest = max(usual), min(*usual, 0)
        slack = 0.03 * max(abs(highest), abs(lowest)) + 1e-6
        for at, value in points.items():
            if value > highest + slack or value < lowest - slack:
                return f"{value:.6g} at {at:.0f}; without the restart {lowest:.6g} to {highest:.6g}"
    return None


def compare(prometheus, expr, interval, length, end):
    """The difference over a range that has the restart in it."""
    until = end - 30 if length > MINUTES_5 else end - BACK_BEFORE_END + 240
    # Grafana's steps are multiples of the interval of the data source, as here.
    step = max(interval, -(-length // PIXELS // interval) * interval)
    both = [ask(prometheus, fill_in(expr, f"{kind}-{interval}", step, interval, length),
                until - length, until, step) for kind in (STEADY, RESTARTS)]
    return difference(*both), both


def run(prometheus, found, end):
    faults, count, risen, shown = [], 0, set(), set()
    for interval, lengths in RANGES.items():
        for length in lengths:
            for place, expr in found:
                count += 1
                fault, (steady, restarted) = compare(prometheus, expr, interval, length, end)
                if place in SHOWS_RESTARTS:
                    if any(value > 0 for points in restarted.values() for value in points.values()):
                        shown.add(place)
                elif fault and place in MAY_RISE:
                    risen.add(place)
                elif fault:
                    faults.append(f"{place}, {length} s by {interval} s: {fault}\n  {expr}")
            for expr in PLANTED:
                if length == HOUR and not compare(prometheus, expr, interval, length, end)[0]:
                    faults.append(f"no spike seen in {expr}")
    faults += [f"{place} does not rise: no exception" for place in sorted(set(MAY_RISE) - risen)]
    faults += [f"{place} does not show the restart" for place in sorted(SHOWS_RESTARTS - shown)]
    return faults, count


def check(source, program, folder):
    found = collect(source)
    text = " ".join([*(expr for _, expr in found), *PLANTED])
    needed = set(re.findall(r"\bgpupool_\w+", text))
    page = page_of_demo(program, folder)
    end = int(time.time()) // 60 * 60 - 60
    series = folder / "series.om"
    with open(series, "w", encoding="utf-8") as file:
        for interval in RANGES:
            for kind in (STEADY, RESTARTS):
                write_series(page, file, end, interval, kind, needed)
        file.write("# EOF\n")
    processes.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", series,
                   folder / "tsdb"], 1200)
    series.unlink()
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    with prometheus_server.running(folder) as prometheus:
        faults, count = run(prometheus, found, end)
    processes.require(not faults, "\n".join(faults))
    print(f"{count} questions about {len(found)} expressions, no spike")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-restart-")
