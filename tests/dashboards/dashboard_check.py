#!/usr/bin/env python3
"""Every expression in dashboards and rules against what is really exported.

    dashboard_check.py SOURCE_DIRECTORY GPUPOOL_PROGRAM

Starts the demo and a Prometheus that scrapes it. Then:
- every expression of every panel and annotation runs, as do the variables, and returns a series where
  the panel does not say why there may be none;
- every rule is evaluated without an error, and every selector in it finds a series, but those of
  textfiles;
- every recording rule that needs no long past records something.
Names are checked by names_check.py.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import prometheus_server  # noqa: E402
from dashboard_lint import expressions  # noqa: E402

# Recording rules that compare with a past of minutes, and why that is not there.
NEEDS_PAST = {"instance_device_pool:gpupool_requested_bytes:growth_span"}
# What the page of a process has not, since only a textfile has (tests/dashboards/rules/).
OF_TEXTFILES = {"gpupool_textfile_end_time_seconds", "process:gpupool_textfile_end_time:passed"}
# What Grafana puts in place of its variables; windows of seconds, as the scrapes here are.
# The longest first, as one is the beginning of another.
VARIABLES = {"$__rate_interval": "5s", "$__interval_ms": "1000", "$__interval": "1s",
             "$__range": "30s", "$job_id": ".*", "$job": ".*", "$instance": ".*", "$device": ".*",
             "$pool": ".*"}
RANK = {"RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "SLURM_JOB_ID": "demo"}


def fill_in(text):
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    # $1 is a group of label_replace, which Grafana leaves alone.
    processes.require("$" not in text.replace('"$1"', ""), f"unknown variable in {text}")
    return text


def may_be_empty(dashboard):
    """Places whose panel says in words of its own why there may be nothing, and marks."""
    yield from (f'panel "{panel["title"]}"' for panel in dashboard["panels"]
                if panel["type"] != "row"
                and panel["fieldConfig"]["defaults"]["noValue"] != "no data")
    yield from (f'annotation "{mark["name"]}"' for mark in dashboard["annotations"]["list"])


def check_variables(prometheus, dashboard):
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        processes.require(match, f"variable {variable['name']}: {variable['definition']}")
        values = prometheus.ask(f"label/{match[2]}/values", **{"match[]": fill_in(match[1])})
        processes.require(values, f"variable {variable['name']} has no value")


def is_optional_column(dashboard, place, expr):
    """A column of a table whose cells have words for where there is no value."""
    for panel in dashboard["panels"]:
        if place == f'panel "{panel["title"]}"' and panel["type"] == "table":
            [query] = [item["refId"] for item in panel["targets"] if item["expr"] == expr]
            names = panel["transformations"][-1]["options"]["renameByName"]
            return any(item["matcher"]["options"] == names.get(f"Value #{query}") and
                       any(value["id"] == "noValue" for value in item["properties"])
                       for item in panel["fieldConfig"]["overrides"])
    return False


def check_expressions(prometheus, file):
    dashboard = json.loads(file.read_text())
    check_variables(prometheus, dashboard)
    excused = set(may_be_empty(dashboard))
    faults, count = [], 0
    for place, expr in expressions(dashboard):
        count += 1
        found = prometheus.query(fill_in(expr))
        if place.startswith("annotation"):
            faults += [f"{file.name}, {place}: {value}, not 1" for _, value in found if value != 1]
        if not found and place not in excused and not is_optional_column(dashboard, place, expr):
            faults.append(f"{file.name}, {place}: no series for {expr}")
    processes.require(not faults, "\n".join(faults))
    return count


def check_rules(prometheus):
    count = 0
    for group in prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            processes.require(rule["health"] == "ok", f"{rule['name']}: {rule.get('lastError')}")
            selectors = re.findall(r"(?<![\w:])gpupool_[a-z0-9_]+(?:\{[^}]*\})?(?![\w:])",
                                   rule["query"])
            if rule["type"] == "recording" and rule["name"] not in NEEDS_PAST:
                selectors.append(rule["name"])
            for selector in set(selectors) - OF_TEXTFILES:
                # What is made of rates, which are made of scrapes, takes an evaluation more.
                prometheus.wait_for(f"series for {selector} in {rule['name']}", 10,
                                    lambda: prometheus.query(selector))
            count += 1
    processes.require(count, "no rule was loaded")
    return count


def check(source, program, folder):
    port = processes.free_port()
    demo = [program, "demo", "--port", port, "--for", 100]
    prometheus_server.render(source, folder, f"127.0.0.1:{port}")
    # As discovery labels a target; the page says the same of itself.
    config = folder / "prometheus.yml"
    config.write_text(prometheus_server.replace(
        config.read_text(), rf"^( +)- 127.0.0.1:{port}\n",
        rf"\g<0>        labels: {{job_id: demo, rank: '3', local_rank: '0'}}\n"))
    with processes.running("demo", demo, folder, RANK) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        processes.wait_for("metrics page", 15, lambda: processes.get(url), process)
        with prometheus_server.running(folder) as prometheus:
            prometheus.wait_for("target", 20, prometheus.is_target_up)
            # Rates need two scrapes inside their window, rules one evaluation after the first.
            prometheus.wait_for("rate of requests", 20, lambda: prometheus.query(
                "rate(gpupool_allocation_requests_total[5s])"))
            prometheus.wait_for("evaluation of the rules", 10, lambda: all(
                rule["health"] == "ok" for group in prometheus.ask("rules")["groups"]
                for rule in group["rules"]))
            count = sum(check_expressions(prometheus, file)
                        for file in sorted((source / "dashboards/grafana").glob("*.json")))
            print(f"{count} expressions ran, {check_rules(prometheus)} rules evaluated")
        code = process.stop()
        processes.require(code == 0, f"demo: exit code {code}\n{process.output()}")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-dashboards-")
