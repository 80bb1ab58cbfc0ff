#!/usr/bin/env python3
"""What one evaluation of the alert rules takes in Prometheus, for so many ranks.

    python3 -B bench/rules_cost.py [--ranks 1,8,64] [--minutes 30] [--slowest 5] [--rules FILE]

A Prometheus of its own, on loopback, gets a past of so many minutes, a sample each 15 s of every series
that a rule reads, and evaluates the rules as they are shipped. Printed is a Markdown table: the
series, the CPU time of the process for an evaluation of all groups, and the share that this is of one
core; `--slowest` adds the rules that take most, each asked as a query. CPU time, as the time on the
wall is also that of whatever else the machine does.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SOURCE / "tests/support"), str(SOURCE / "tests/dashboards")]

import processes  # noqa: E402
import prometheus_server  # noqa: E402

INTERVAL = 15
EVALUATIONS = 3
QUERIES = 10
SAMPLE = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.M)
ALL_JOBS = 64  # ranks of a job
CONFIG = "global: {{evaluation_interval: 15s}}\nrule_files: ['{}']\n"


def series_of(rules):
    """The series of one process that a rule reads: (name, labels, value), from the page of the tests."""
    page = (SOURCE / "tests/exporter/golden_page.txt").read_text()
    read = set(re.findall(r"(?<![\w:])gpupool_\w+(?![\w:])", rules))
    found = [(name, (labels or "{}")[1:-1], float(value))
             for name, labels, value in SAMPLE.findall(page) if name in read]
    # What the server adds to the page.
    return [("up", "", 1.0), ("gpupool_collect_duration_seconds", "", 0.001),
            ("gpupool_collect_errors_total", "", 0.0),
            ("gpupool_series_dropped_total", 'reason="limit"', 0.0),
            ("gpupool_config_last_reload_successful", "", 1.0), *found]


def write_past(file, series, ranks, times):
    """OpenMetrics text, of which Prometheus makes blocks."""
    for name, labels, value in series:
        step = 1 if name.endswith(("_total", "_bucket", "_count")) else 0
        for rank in range(ranks):
            target = (f'job="gpupool",instance="node{rank // 8}:{10064 + rank % 8}",rank="{rank}",'
                      f'local_rank="{rank % 8}",world_size="{min(ranks, ALL_JOBS)}",'
                      f'job_id="{rank // ALL_JOBS}",host="node{rank // 8}"')
            prefix = f"{name}{{{target}{',' if labels else ''}{labels}}}"
            file.writelines(f"{prefix} {value + step * i:.10g} {moment}\n"
                            for i, moment in enumerate(times))
    file.write("# EOF\n")


def cpu_seconds(pid):
    """Of all threads of the process that there are."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread that has just ended
    return total / 1e9


def wait_until_evaluated(prometheus):
    def is_done():
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        processes.require(all(rule["health"] != "err" for rule in rules), "a rule that fails")
        return all(rule["health"] == "ok" for rule in rules)
    prometheus.wait_for("the first evaluation", 8 * INTERVAL, is_done)


def rule_costs(prometheus, pid):
    """CPU seconds of each rule's expression, asked for at the time of its last evaluation."""
    for group in prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            before = cpu_seconds(pid)
            for _ in range(QUERIES):
                prometheus.ask("query", query=rule["query"], time=rule["lastEvaluation"])
            yield (cpu_seconds(pid) - before) / QUERIES, f"{group['name']} {rule['name']}"


def measure(rules_file, ranks, minutes, slowest):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        series = series_of(rules_file.read_text())
        # A little ahead, so that it is not over before Prometheus has started.
        end = int(time.time()) // INTERVAL * INTERVAL
        times = range(end - 60 * minutes, end + INTERVAL, INTERVAL)
        with (folder / "past.txt").open("w") as file:
            write_past(file, series, ranks, times)
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics",
                        folder / "past.txt", folder / "tsdb"], check=True, timeout=580,
                       stdout=subprocess.DEVNULL)
        (folder / "past.txt").unlink()
        (folder / "prometheus.yml").write_text(CONFIG.format(rules_file))
        with prometheus_server.running(folder) as prometheus:
            wait_until_evaluated(prometheus)
            before = cpu_seconds(prometheus.pid)
            time.sleep(EVALUATIONS * INTERVAL)
            taken = (cpu_seconds(prometheus.pid) - before) / EVALUATIONS
            costs = sorted(rule_costs(prometheus, prometheus.pid), reverse=True) if slowest else []
        return len(series) * ranks, taken, costs[:slowest]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="1,8,64")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--slowest", type=int, default=0)
    parser.add_argument("--rules", type=pathlib.Path,
                        default=SOURCE / "configs/prometheus/rules/gpupool.rules.yml")
    given = parser.parse_args()
    print("| ranks | series that rules read | CPU time of an evaluation | of one core |\n|---|---|---|---|")
    for ranks in map(int, given.ranks.split(",")):
        series, taken, costs = measure(given.rules.resolve(), ranks, given.minutes, given.slowest)
        print(f"| {ranks} | {series} | {1000 * taken:.0f} ms | {taken / INTERVAL:.2%} |", flush=True)
        for seconds, name in costs:
            print(f"    {1000 * seconds:7.2f} ms {name}")


if __name__ == "__main__":
    main()
