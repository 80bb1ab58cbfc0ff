#!/usr/bin/env python3
"""The distribution's VictoriaMetrics takes the demo's metrics both ways, by scraping them itself with
the shipped configuration, and from a Prometheus that scrapes and sends them on: every family arrives,
the definitions hold in what it answers, and its vmalert takes the shipped rules.

    victoria_metrics_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import prometheus_server  # noqa: E402
import victoria_metrics  # noqa: E402

# What the series that were sent on have, and those that were scraped here have not.
SENT = 'via="prometheus"'
SCRAPED = 'via=""'


def exported(page):
    """Each family's name, as its first series has it."""
    return [name + ("_count" if kind == "histogram" else "")
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)]


def check_arrived(victoria, page, selector):
    names = exported(page)
    processes.require(len(names) > 40, f"only {len(names)} families:\n{page}")
    missing = [name for name in names if not victoria.query(f"{name}{{{selector}}}")]
    processes.require(not missing, f"{selector}: exported, but not there: {missing}")
    return len(names)


def check_identities(victoria, selector):
    parts = ["requested", "waste", "cached", "pending_free", "free"]
    total = " + ".join(f"gpupool_{part}_bytes{{{selector}}}" for part in parts)
    result = victoria.query(f"gpupool_reserved_bytes{{{selector}}} - ({total})")
    processes.require(result and result[0][1] == 0, f"{selector}: not 0: {result}")


def check_rules(folder):
    """The expressions: vmalert knows `keep_firing_for` from 1.90 on, distributions have older ones."""
    rules = sorted((folder / "rules").rglob("*.rules.yml"))
    processes.require(rules, "no rules were made")
    for file in rules:
        text = prometheus_server.replace(file.read_text(), r"^ *keep_firing_for: .*\n", "")
        older = folder / f"older-{file.name}"
        older.write_text(text)
        processes.run(["vmalert", "-dryRun", f"-rule={older}"], 20)


def send_on(folder, url):
    """The Prometheus' configuration with what it has to send, and to whom."""
    config = folder / "prometheus.yml"
    text = prometheus_server.replace(config.read_text(), r"^global:\n",
                                     "global:\n  external_labels: {via: prometheus}\n")
    config.write_text(text + "\nremote_write:\n"
                      f"  - url: {url}/api/v1/write\n"
                      "    queue_config: {batch_send_deadline: 1s}\n")
    processes.run(["promtool", "check", "config", config], 20)


def check(source, program, folder):
    port = processes.free_port()
    prometheus_server.render(source, folder, f"127.0.0.1:{port}")
    check_rules(folder)
    demo = [program, "demo", "--port", port, "--for", 80]
    with processes.running("demo", demo, folder) as process:
        page = processes.wait_for("metrics page", 5,
                                  lambda: processes.get(f"http://127.0.0.1:{port}/metrics"), process)
        with victoria_metrics.running(folder, folder / "prometheus.yml") as victoria:
            send_on(folder, victoria.url)
            with prometheus_server.running(folder):
                for selector in (SCRAPED, SENT):
                    victoria.wait_for(f"requests with {selector}", 25, lambda: victoria.query(
                        f"gpupool_allocation_requests_total{{{selector}}} > 0"))
                    count = check_arrived(victoria, page, selector)
                    check_identities(victoria, selector)
                    print(f"{selector}: {count} families")
        code = process.stop()
        processes.require(code == 0, f"demo: exit code {code}\n{process.output()}")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-victoria-")
