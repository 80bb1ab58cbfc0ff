#!/usr/bin/env python3
"""The objects for the Prometheus operator: the rules in PrometheusRule are those of Prometheus, byte for
byte and to promtool, and PodMonitor has a named port for each rank, with the bounds of the scrape job. The ConfigMap has every
dashboard, as it is shipped, under the label that Grafana's sidecar looks for.

    kubernetes_check.py SOURCE_DIRECTORY
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from rule_set import RuleSet


def spec_of(text):
    return textwrap.dedent(text.partition("\nspec:\n")[2])


def check_rules(source, text):
    if not re.search(r"^apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule$", text, re.M):
        yield "no PrometheusRule"
    shipped = (source / "configs/prometheus/rules/gpupool.rules.yml").read_text()
    if spec_of(text) != shipped[shipped.index("groups:"):]:
        yield "PrometheusRule has other rules than configs/prometheus/rules"
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(spec_of(text))
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=20, check=False)
    if done.returncode != 0:
        yield done.stdout


def check_monitor(source, text, values):
    if not re.search(r"^apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor$", text, re.M):
        yield "no PodMonitor"
    ports = re.findall(r"^    - port: (\S+)$", text, re.M)
    if ports != [f"gpupool-{rank}" for rank in range(values["kubernetes"]["ports"])]:
        yield f"ports are {ports}"
    ranks = re.findall(r'targetLabel: local_rank\n +replacement: "(\d+)"', text)
    if [f"gpupool-{rank}" for rank in ranks] != ports:
        yield f"local ranks are {ranks}"
    for label in ("job_id", "host"):
        if text.count(f"targetLabel: {label}\n") != len(ports):
            yield f"not every port has the label {label}"
    scrape = (source / "configs/prometheus/prometheus.yml").read_text()
    bounds = dict(re.findall(r"^    (\w+_limit): (\S+)$", scrape, re.M))
    for name, value in bounds.items():
        camel = re.sub(r"_(\w)", lambda match: match[1].upper(), name)
        if f"\n  {camel}: {value}\n" not in text:
            yield f"{camel} is not {value}"
    if len(bounds) != 5:
        yield f"bounds of the scrape job: {bounds}"


def check_dashboards(source, text):
    head, _, data = text.partition("\ndata:\n")
    if 'grafana_dashboard: "1"' not in head or "\nkind: ConfigMap\n" not in head:
        yield "no ConfigMap with the label grafana_dashboard"
    held = dict(re.findall(r"^  (\S+\.json): \|\n    (.*)$", data, re.M))
    shipped = {file.name: file for file in (source / "dashboards/grafana").glob("*.json")}
    if set(held) != set(shipped):
        yield f"the ConfigMap has {sorted(held)}"
    for name in set(held) & set(shipped):
        if json.loads(held[name]) != json.loads(shipped[name].read_text()):
            yield f"{name} in the ConfigMap is another one"
    if len(text) > 2 ** 20:
        yield f"{len(text)} bytes: more than a ConfigMap may have"


def main():
    source = pathlib.Path(sys.argv[1])
    values = RuleSet(source).values
    rules = (source / "configs/kubernetes/prometheus-rule.yaml").read_text()
    monitor = (source / "configs/kubernetes/pod-monitor.yaml").read_text()
    faults = [*check_rules(source, rules), *check_monitor(source, monitor, values)]
    dashboards = (source / "configs/kubernetes/dashboards.yaml").read_text()
    faults += check_dashboards(source, dashboards)
    for broken in (dashboards.replace("gpupool-fleet.json", "fleet.json"),
                   dashboards.replace("gpupool_reserved_bytes", "gpupool_held_bytes", 1)):
        if not list(check_dashboards(source, broken)):
            faults.append("another dashboard was accepted")
    if not list(check_rules(source, rules.replace("> 0.5", "> 0.4"))):
        faults.append("another threshold was accepted")
    if not list(check_monitor(source, monitor.replace("port: gpupool-7", "port: gpupool-8"), values)):
        faults.append("another port was accepted")
    print("\n".join(faults) if faults else "PrometheusRule, PodMonitor and dashboards are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
