#!/usr/bin/env python3
"""Every name that rules, dashboards, runbooks and documents use exists, and every family that is
exported is used by one of them, or stands below with the reason why not.

    names_check.py SOURCE_DIRECTORY

Families are those of docs/METRICS.md, which is made from the metric table; keys of the YAML file those
of configs/gpupool.yaml, which has them all. Both are tests of their own.
"""
import pathlib
import re
import sys

from rule_set import RuleSet
from rules_lint import metric_kinds, raw_metrics

# Families that nothing looks at by itself, and why they are there all the same.
UNUSED = {
    "gpupool_build_info": "named when a fault is reported, and joined by hand",
    "gpupool_guard_postponed_total": "for an audit of tenants that must not read each other",
    "gpupool_allocation_bytes_total": "its rate is churn: for comparing jobs, nothing to act on",
    "gpupool_allocation_duration_seconds": "sampled, for comparing releases; no level is a fault",
    "gpupool_block_merges_total": "of use only beside a recording, for how placement works",
    "gpupool_block_splits_total": "the same",
    "gpupool_reserved_window_peak_bytes": "for who sizes a card; the gauge beside it has a panel",
    "gpupool_segments": "of use only beside a recording, for how large handles are",
}
# Words that begin like a metric and are none: programs, targets, labels of the build.
NO_METRICS = {"gpupool_allocator", "gpupool_bench", "gpupool_exporter", "gpupool_gpu_replay",
              "gpupool_metrics_document", "gpupool_peers", "gpupool_scenarios", "gpupool_target",
              "gpupool_test"}
# First parts of keys; what follows a dot behind them must be one.
SECTIONS = ("pool", "exporter", "alerts", "torch")
FOLDERS = ("dashboards", "configs", "docs", "docker", "examples")
SUFFIXES = (".md", ".json", ".yml", ".yaml", ".py")


def texts(source):
    yield source / "README.md"
    for folder in FOLDERS:
        yield from (file for file in sorted((source / folder).rglob("*"))
                    if file.suffix in SUFFIXES and file.is_file()
                    and "node_modules" not in file.parts)


def series_names(kinds):
    names = set(kinds)
    for name, kind in kinds.items():
        if kind == "histogram":
            names.update({f"{name}_bucket", f"{name}_sum", f"{name}_count"})
    return names


def named_metrics(text):
    """Not the names of recording rules (colons), and no cut-off names like gpupool_<noun>."""
    return set(re.findall(r"(?<![\w:])gpupool_[a-z0-9_]+(?![\w:<{*]|\.[a-z])|"
                          r"(?<![\w:])gpupool_[a-z0-9_]+(?=\{)", text))


def yaml_keys(source):
    """Full paths of all keys in configs/gpupool.yaml, sections included."""
    keys, path = set(), []
    for line in (source / "configs/gpupool.yaml").read_text().splitlines():
        match = re.match(r"^( *)([a-z_]+):", line)
        if match:
            path = path[:len(match[1]) // 2] + [match[2]]
            keys.add(".".join(path))
    return keys


def named_keys(text):
    return set(re.findall(rf"(?<![\w.`/-])`?((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)(?![\w(/])", text))


def check_metrics(files, known, later):
    for file, text in files.items():
        for name in named_metrics(text) - known - NO_METRICS:
            if not (name in later and file.startswith(("configs/rules/", "docs/runbooks/"))):
                yield f"{file} names {name}, which is not exported"


def check_keys(files, keys):
    for file, text in files.items():
        if not file.startswith(("docs/runbooks/", "docs/METRICS.md", "configs/", "dashboards/")):
            continue
        for key in named_keys(text):
            if key not in keys and not key.startswith("torch.cuda."):
                yield f"{file} names the key {key}, which there is not"


def check_recordings(files, rule_set):
    for file, text in files.items():
        for name in set(re.findall(r"\b(?:instance|job|instance_device_pool):gpupool_[a-z_:]+", text)):
            if name.rstrip(":") not in rule_set.recordings:
                yield f"{file} names {name}, which no rule records"


def check_use(files, kinds):
    used = "".join(text for file, text in files.items()
                   if file.startswith(("dashboards/grafana/", "docs/runbooks/",
                                       "configs/prometheus/rules/")))
    names = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name
             for name in re.findall(r"gpupool_\w+", used)}
    for name in sorted(set(kinds) - names - set(UNUSED)):
        yield f"{name}: no panel, rule or runbook uses it, and it is not listed as unused"
    yield from (f"{name}: listed as unused, and used" for name in sorted(set(UNUSED) & names))
    yield from (f"{name}: listed as unused, and not exported" for name in set(UNUSED) - set(kinds))


def check_switches(rule_set, known):
    """An alert that is switched off for want of a family is switched on once that is there."""
    for name in rule_set.names:
        missing = [metric for metric in raw_metrics(rule_set.expressions[name])
                   if metric not in known]
        if not rule_set.is_on(name) and not missing:
            yield f"{name}: switched off, although all that it reads is exported"


def check_all(files, kinds, keys, rule_set):
    known = series_names(kinds)
    later = {metric for name in rule_set.names if not rule_set.is_on(name)
             for metric in raw_metrics(rule_set.expressions[name])}
    yield from check_metrics(files, known, later)
    yield from check_keys(files, keys)
    yield from check_recordings(files, rule_set)
    yield from check_use(files, kinds)
    yield from check_switches(rule_set, known)


def main():
    source = pathlib.Path(sys.argv[1])
    kinds, keys, rule_set = metric_kinds(source), yaml_keys(source), RuleSet(source)
    files = {str(file.relative_to(source)): file.read_text() for file in texts(source)}
    faults = list(check_all(files, kinds, keys, rule_set))
    # The check itself.
    page = "docs/runbooks/GpupoolOutOfMemory.md"
    for broken in ("`gpupool_no_such_bytes`", "`pool.no_such_key`", "job:gpupool_nothing:sum"):
        if not list(check_all({**files, page: files[page] + broken}, kinds, keys, rule_set)):
            faults.append(f"{broken} in a runbook was accepted")
    if not list(check_use({}, kinds)):
        faults.append("families that nothing uses were accepted")
    print("\n".join(faults) if faults else
          f"{len(kinds)} families, {len(keys)} keys: what is named exists, what exists is used")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
