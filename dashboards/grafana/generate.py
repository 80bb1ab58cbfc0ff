#!/usr/bin/env python3
"""Writes the Grafana dashboards, and the ConfigMap with all of them for Kubernetes.

    dashboards/grafana/generate.py                    writes the shipped files
    dashboards/grafana/generate.py --check            fails where a shipped file is stale
    dashboards/grafana/generate.py --output FOLDER [--runbook-url https://wiki/gpupool/{alert}]
                                                      writes them into FOLDER, with links to your
                                                      copy of docs/runbooks

They are made, not drawn, so that every panel has the same data source, variables, legend and units,
and a change to a metric is a change to one line in process.py, fleet.py or cost.py. Without
--runbook-url the address is that of the alerts, in configs/rules/values.yaml; one that no browser can
open is not linked. tests/dashboards runs every expression against a real Prometheus.
"""
import argparse
import json
import pathlib
import sys
import textwrap

sys.dont_write_bytecode = True  # nothing is left beside what is shipped
HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"
sys.path[:0] = [str(HERE), str(CONFIGS / "rules")]

import cost  # noqa: E402
import fleet  # noqa: E402
import process  # noqa: E402
import values_file  # noqa: E402

CONFIG_MAP = """\
# Written by dashboards/grafana/generate.py. Grafana's sidecar loads what has this label; a ConfigMap
# that is mounted into a provider's path does as well.
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpupool-dashboards
  labels:
    app.kubernetes.io/name: gpupool
    grafana_dashboard: "1"
data:
"""


def config_map(texts):
    """As `kubectl create configmap` would hold them, each on one line."""
    result = CONFIG_MAP
    for name, dashboard in texts.items():
        line = json.dumps(dashboard, ensure_ascii=True, separators=(",", ":"))
        result += f"  {name}: |\n" + textwrap.indent(line + "\n", "    ")
    return result


def files(pattern):
    """Path to text, of everything that is written."""
    made = {f"{dashboard['uid']}.json": dashboard
            for dashboard in (maker.make(pattern) for maker in (fleet, process, cost))}
    texts = {HERE / name: json.dumps(dashboard, indent=1, ensure_ascii=True) + "\n"
             for name, dashboard in made.items()}
    texts[CONFIGS / "kubernetes/dashboards.yaml"] = config_map(made)
    return texts


def main():
    parser = argparse.ArgumentParser(description="Writes the Grafana dashboards.")
    parser.add_argument("--check", action="store_true", help="fail where a shipped file is stale")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--runbook-url", metavar="URL", help="with {alert} in it")
    arguments = parser.parse_args()
    if arguments.runbook_url and arguments.output is None:
        parser.error("another address than the shipped one takes --output FOLDER")
    values = values_file.load(CONFIGS / "rules/values.yaml")
    stale = []
    for file, text in files(arguments.runbook_url or values["rules"]["runbook_url"]).items():
        if arguments.check:
            if not file.exists() or file.read_text() != text:
                stale.append(f"{file} is stale: run {pathlib.Path(__file__)}")
            continue
        if arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            file = arguments.output / file.name
        file.write_text(text)
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
