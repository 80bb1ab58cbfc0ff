#!/usr/bin/env python3
"""The distribution's Prometheus scrapes the real demo with the shipped configuration: the target is
up, promtool accepts the page, and every exported family arrives with samples, as OpenMetrics.

    scrape_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import prometheus_server  # noqa: E402

SERIES_A_PROCESS = 300  # more than this is a label that grows


def check_families(prometheus, page):
    families = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)
    processes.require(len(families) > 40, f"only {len(families)} families:\n{page}")
    empty = [name for name, kind in families
             if not prometheus.query(name + ("_count" if kind == "histogram" else ""))]
    processes.require(not empty, f"exported, but not in Prometheus: {empty}")
    for name, _ in families:
        processes.require(re.search(rf"^# HELP {name} \S.{{10}}", page, re.M), f"{name}: no help")
    return len(families)


def check_openmetrics(prometheus):
    """The distribution's Prometheus prefers OpenMetrics: the unit is in no other format."""
    for metric, kind, unit in (("gpupool_reserved_bytes", "gauge", "bytes"),
                               ("gpupool_driver_seconds_total", "counter", "seconds"),
                               ("gpupool_build_info", "info", "")):
        family = metric.removesuffix("_total").removesuffix("_info")
        got = [(item["type"], item["unit"]) for name in {metric, family}
               for item in prometheus.ask("targets/metadata", metric=name)]
        processes.require(got == [(kind, unit)], f"{metric}: {got}")


def check_identities(prometheus):
    """The definitions hold in what Prometheus got."""
    parts = ["requested", "waste", "cached", "pending_free", "free"]
    total = " + ".join(f"gpupool_{part}_bytes" for part in parts)
    misses = "sum without (reason) (gpupool_allocation_misses_total)"
    for expr in (f"gpupool_reserved_bytes - ({total})",
                 f"gpupool_allocation_requests_total - gpupool_allocation_hits_total - {misses}"):
        result = prometheus.query(expr)
        processes.require(result and result[0][1] == 0, f"not 0: {expr}: {result}")


def check(source, program, folder):
    port = processes.free_port()
    prometheus_server.render(source, folder, f"127.0.0.1:{port}")
    demo = [program, "demo", "--port", port, "--for", 60]
    with processes.running("demo", demo, folder) as process:
        url = f"http://127.0.0.1:{port}"
        page = processes.wait_for("metrics page", 5, lambda: processes.get(f"{url}/metrics"),
                                  process)
        processes.require(f":{port}" in process.output(),
                          "the demo does not print its address:\n" + process.output())
        processes.check_metrics_page(page)
        with prometheus_server.running(folder) as prometheus:
            prometheus.wait_for("target", 15, prometheus.is_target_up)
            prometheus.wait_for("requests", 10, lambda: prometheus.query(
                "gpupool_allocation_requests_total > 0"))
            page = processes.get(f"{url}/metrics")
            count = check_families(prometheus, page)
            check_openmetrics(prometheus)
            check_identities(prometheus)
            failed = prometheus.query("sum(gpupool_out_of_memory_total)")[0][1]
            processes.require(failed == 0, f"{failed:.0f} requests failed:\n{process.output()}")
            series = prometheus.query("scrape_samples_scraped")[0][1]
            processes.require(series < SERIES_A_PROCESS, f"{series} series a process")
            print(f"{count} families, {series:.0f} series")
        code = process.stop()
        processes.require(code == 0, f"demo: exit code {code}\n{process.output()}")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-scrape-")
