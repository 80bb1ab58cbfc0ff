#!/usr/bin/env python3
"""Writes the recording rules and alerts, for Prometheus and for Kubernetes, from values.yaml.

    configs/rules/generate.py                    writes the shipped files
    configs/rules/generate.py --check            fails where a shipped file is stale
    configs/rules/generate.py --output FOLDER [--values FILE]... [--set alerts.NAME.for=1m]...
                                                 writes FOLDER/gpupool.rules.yml and the two for
                                                 Kubernetes, with other values

A values file of your own holds only what differs from values.yaml.
"""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # nothing is left beside what is shipped
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import alerts  # noqa: E402
import kubernetes_files  # noqa: E402
import recordings  # noqa: E402
import rules_text  # noqa: E402
import values_file  # noqa: E402
from promql import SCRAPES_FRESH, SCRAPES_THRESHOLD, Windows  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SCRAPES_SHORT = 20  # five minutes of 15 s: longer than most steps, shorter than a phase
# What one recording is for: of which processes all is new, and how far back there was no restart.
SHARED = {"window": ("GpupoolOutOfMemory", "GpupoolInvalidFree", "GpupoolCollectErrors",
                     "GpupoolSeriesDropped"),
          "memory": ("GpupoolMemoryLeakSuspected", "GpupoolExhaustionPredicted")}
SEVERITIES = ("critical", "warning", "info")


def windows_of(values):
    interval = values_file.seconds(values["rules"]["interval"])
    return Windows(*(values_file.duration(count * interval)
                     for count in (SCRAPES_FRESH, SCRAPES_THRESHOLD, SCRAPES_SHORT)))


def check_values(values):
    """Mistakes that Prometheus would not see."""
    known = {alert.name for alert in alerts.ALL}
    if known != set(values["alerts"]):
        raise values_file.ValuesError(f"alerts: {known ^ set(values['alerts'])} without the other")
    shortest = SCRAPES_FRESH * values_file.seconds(values["rules"]["interval"])
    for key, names in SHARED.items():
        if len({values["alerts"][name][key] for name in names}) > 1:
            raise values_file.ValuesError(f"alerts: one {key} for {', '.join(names)}")
    for name, v in values["alerts"].items():
        if v["severity"] not in SEVERITIES:
            raise values_file.ValuesError(f"alerts.{name}.severity: one of {SEVERITIES}")
        if not isinstance(v["enabled"], bool):
            raise values_file.ValuesError(f"alerts.{name}.enabled: true or false")
        for key in ("for", "keep_firing_for"):
            values_file.seconds(v[key])
        for key in ("window", "memory", "settle", "span", "long_span", "peak_window", "trough"):
            if key in v and values_file.seconds(v[key]) < shortest:
                raise values_file.ValuesError(
                    f"alerts.{name}.{key}: less than {SCRAPES_FRESH} scrapes")


def groups_of(values):
    """(name, recording rules, alerts) of each group, in the order of evaluation."""
    windows = windows_of(values)
    records = {alerts.TARGETS: recordings.target_recordings, alerts.POOLS:
               recordings.pool_recordings, "gpupool.jobs": recordings.job_recordings,
               alerts.EXPORTER: None}
    for topic, make in records.items():
        recorded = list(make(values, windows)) if make else []
        fired = [(alert, values["alerts"][alert.name],
                  alert.expression(values["alerts"][alert.name], values, windows))
                 for alert in alerts.ALL
                 if alert.topic == topic and values["alerts"][alert.name]["enabled"]]
        if recorded or fired:
            yield topic, recorded, fired


def files_of(values):
    """Name below configs/ to text."""
    check_values(values)
    groups = rules_text.groups_text(values, list(groups_of(values)))
    return {"prometheus/rules/gpupool.rules.yml": rules_text.HEADER + groups,
            "kubernetes/prometheus-rule.yaml": kubernetes_files.prometheus_rule(values, groups),
            "kubernetes/pod-monitor.yaml": kubernetes_files.pod_monitor(values)}


def set_value(values, text):
    path, found, value = text.partition("=")
    if not found:
        raise values_file.ValuesError(f"--set {text}: PATH=VALUE")
    changes = values_file.scalar(value)
    for key in reversed(path.split(".")):
        changes = {key: changes}
    return values_file.merge(values, changes)


def read_values(arguments):
    values = values_file.load(HERE / "values.yaml")
    for file in arguments.values:
        values = values_file.load(file, values)
    for text in arguments.set:
        values = set_value(values, text)
    return values


def main():
    parser = argparse.ArgumentParser(description="Writes rules and alerts from values.yaml.")
    parser.add_argument("--check", action="store_true", help="fail where a shipped file is stale")
    parser.add_argument("--values", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    if (arguments.values or arguments.set) and arguments.output is None:
        parser.error("other values than the shipped ones take --output FOLDER")
    try:
        files = files_of(read_values(arguments))
    except (values_file.ValuesError, OSError) as error:
        sys.exit(str(error))
    stale = []
    for name, text in files.items():
        file = HERE.parent / name
        if arguments.output is not None:
            file = arguments.output / pathlib.Path(name).name
        if arguments.check:
            if not file.exists() or file.read_text() != text:
                stale.append(f"{file} is stale: run {pathlib.Path(__file__)}")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
