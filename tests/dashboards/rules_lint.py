#!/usr/bin/env python3
"""What every recording rule and alert keeps, checked without a server.

    rules_lint.py SOURCE_DIRECTORY     prints each fault; exit code 1 where there is one
    rules_lint.py --self-test SOURCE   breaks rules in each way and must see each fault

Cases E2 (windows), E4 (rates of counters alone, sums of rates), E6 (matches that name their labels) and
E8 (names that exist: names_check.py) of public dashboards and rules are rules here.
"""
import pathlib
import re
import subprocess
import sys

from rule_set import RuleSet

SCRAPES = 4  # the shortest window
CRITICAL = {"GpupoolOutOfMemory", "GpupoolLargestBlockBelowRequired", "GpupoolInvalidFree"}
SUDDEN = {"GpupoolLargestBlockBelowRequired": 30, "GpupoolFragmentationCritical": 30,
          "GpupoolNearCapacity": 30, "GpupoolPeakNoLongerFits": 30, "GpupoolOutOfMemory": 0,
          "GpupoolInvalidFree": 0}
OF_COUNTERS = ("rate", "increase")
OF_GAUGES = ("deriv", "delta", "predict_linear")


def metric_kinds(source):
    """Family to type, from the generated page."""
    page = (source / "docs/METRICS.md").read_text()
    return dict(re.findall(r"^\| `(gpupool_\w+)` \| (\w+) \|", page, re.M))


def family_of(name, kinds):
    short = re.sub(r"_(bucket|sum|count)$", "", name)
    return short if kinds.get(short) == "histogram" else name


def raw_metrics(expr):
    """Names of metrics, not of recording rules."""
    return re.findall(r"(?<![\w:])gpupool_\w+(?![\w:])", expr)


def lint_windows(place, expr, interval, rule_set):
    for window in re.findall(r"\[([^\]]*)\]", expr):
        if not re.fullmatch(r"\d+[smhd]", window):
            yield f"{place}: window [{window}]"
        elif rule_set.seconds(window) < SCRAPES * interval:
            yield f"{place}: window [{window}] is shorter than {SCRAPES} scrapes"


def lint_functions(place, expr, kinds):
    for function, name in re.findall(r"(\w+)\(((?:\w+:)?gpupool_\w+)[^()\[]*\[", expr):
        kind = kinds.get(family_of(name, kinds))
        is_counter = kind in ("counter", "histogram")
        if function in OF_COUNTERS and not is_counter:
            yield f"{place}: {function} of {name}, which is no counter"
        # Its value, for whether it is above 0: `happened` in configs/rules/promql.py.
        if function not in (*OF_COUNTERS, "last_over_time") and is_counter:
            yield f"{place}: {function} of the counter {name}"
        if function in OF_GAUGES and is_counter:
            yield f"{place}: {function} of the counter {name}"
    for name in raw_metrics(expr):
        if not re.search(rf"\w+\({name}(\{{[^}}]*\}})?\[", expr):
            yield f"{place}: {name} is read at an instant, which a lost scrape makes empty"
    if re.search(r"\b(?:rate|increase)\(\s*(?:sum|max|avg)\b", expr):
        yield f"{place}: rate of a sum: a restart of one would be a spike"


def lint_matches(place, expr):
    flat = re.sub(r"\s+", " ", expr)
    for operator, rest in re.findall(r" (and|unless|/) (.{0,24})", flat):
        if not rest.startswith(("on (", "up{")):  # of `up` with itself
            yield f"{place}: '{operator}' does not name the labels that it matches"
    for rest in re.findall(r" / on \([^)]*\) (.{0,400})", flat):
        if not rest.startswith("group_left ()") or " > 0)" not in rest:
            yield f"{place}: a division by what may be 0"


def lint_recording(name, expr, rule_set, kinds, interval):
    if not re.fullmatch(r"[a-z_]+:gpupool_[a-z_]+(:[a-z_]+)?", name):
        yield f"{name}: not level:metric:operation"
    yield from lint_windows(name, expr, interval, rule_set)
    yield from lint_functions(name, expr, kinds)
    yield from lint_matches(name, expr)
    if ("_total[" in expr or "_total{" in expr) and "rate(" not in expr:
        yield f"{name}: a counter outside rate"


def lint_expression(name, expr, rule_set, kinds, interval):
    if not re.search(r"(?<![=<>!])[<>=]=? ?(?:on |\(|[\d.])|absent\(", expr):
        yield f"{name}: compares nothing, and would fire for every series"
    if re.search(r"\b(?:topk|bottomk)\b", expr):
        yield f"{name}: topk lets other series fire at each evaluation"
    yield from lint_windows(name, expr, interval, rule_set)
    if rule_set.is_on(name):
        yield from lint_functions(name, expr, kinds)
    yield from lint_matches(name, expr)
    for recorded in re.findall(r"\b[a-z_]+:gpupool_[a-z_]+(?::[a-z_]+)?", expr):
        if recorded not in rule_set.recordings:
            yield f"{name}: there is no recording rule {recorded}"


def lint_values(name, v, rule_set):
    if (v["severity"] == "critical") != (name in CRITICAL):
        yield f"{name}: critical is for {sorted(CRITICAL)} alone"
    if name in SUDDEN and rule_set.seconds(v["for"]) > SUDDEN[name]:
        yield f"{name}: for {v['for']} is too long for what happens at once"
    if "threshold" in v and rule_set.seconds(v["keep_firing_for"]) < 300:
        yield f"{name}: a value that hovers would be told again and again (keep_firing_for)"
    for text in rule_set.texts[name]:
        if re.search(r"\$labels\.(?!instance|device|pool|rank|job|job_id|world_size|cause|kind|reason)",
                     text):
            yield f"{name}: a label that it may not have"


def lint(rule_set, kinds):
    interval = rule_set.seconds(rule_set.values["rules"]["interval"])
    for name, expr in rule_set.recordings.items():
        yield from lint_recording(name, expr, rule_set, kinds, interval)
    for name, expr in rule_set.expressions.items():
        yield from lint_expression(name, expr, rule_set, kinds, interval)
        yield from lint_values(name, rule_set.values["alerts"][name], rule_set)


def lint_text(text):
    """Of the file that is shipped."""
    for labels in re.findall(r"^ +labels:\n((?: {10}.*\n)+)", text, re.M):
        if "$value" in labels:
            yield "$value in a label makes a new alert at each evaluation"
    for name, expr in re.findall(r"record: (\S+)\n +expr: (.*)", text):
        if name.startswith("job:") and "avg" in expr:
            yield f"{name}: an average of ratios"


def lint_tests(source, rule_set):
    """Each alert that is switched on has a test in which it fires, and one in which it does not."""
    tests = "".join(file.read_text() for file in sorted((source / "tests/dashboards/rules").glob(
        "*_test.yml")))
    for name in filter(rule_set.is_on, rule_set.names):
        parts = re.findall(rf'name: "{name} (fires|quiet): .*\n((?:(?!  - name:).*\n?)*)', tests)
        if not any(kind == "fires" and "exp_labels" in text for kind, text in parts):
            yield f"{name}: no test in which it fires"
        if not any(kind == "quiet" and ("exp_samples: []" in text or "exp_alerts: []" in text)
                   for kind, text in parts):
            yield f"{name}: no test in which it stays quiet"


def break_everything(rule_set):
    """(what, name of a recording or alert, broken expression): lint must see every one."""
    name = "GpupoolFragmentationHigh"
    yield "comparison", name, "max by (job) (instance_device_pool:gpupool_available_bytes:last)"
    yield "topk", name, "topk(1, instance_device_pool:gpupool_available_bytes:last) > 1"
    yield "window", name, "max_over_time(gpupool_free_bytes[15s]) > 1"
    yield "match", name, "(a > 1) and (b > 1)"
    yield "division", name, "a / on (job) b > 1"
    yield "guard", name, "a / on (job) group_left () (max by (job) (b)) > 1"
    yield "recording", name, "instance:gpupool_nothing:last > 1"
    yield "rate of a gauge", name, "rate(gpupool_free_bytes[5m]) > 1"
    yield "counter", name, "max_over_time(gpupool_frees_total[5m]) > 1"
    yield "instant", name, "gpupool_free_bytes > 1"
    yield "rate of a sum", name, "rate(sum(gpupool_frees_total)[5m:15s]) > 1"


def self_test(rule_set, kinds):
    for what, name, broken in break_everything(rule_set):
        if not list(lint_expression(name, broken, rule_set, kinds, 15)):
            yield f"a broken {what} is not seen"
    changes = {"severity": "critical", "keep_firing_for": "0s"}
    for key, value in changes.items():
        v = dict(rule_set.values["alerts"]["GpupoolFragmentationHigh"], **{key: value})
        if not list(lint_values("GpupoolFragmentationHigh", v, rule_set)):
            yield f"a broken {key} is not seen"
    v = dict(rule_set.values["alerts"]["GpupoolLargestBlockBelowRequired"], **{"for": "2m"})
    if not list(lint_values("GpupoolLargestBlockBelowRequired", v, rule_set)):
        yield "a long `for` is not seen"
    if not list(lint_text("        labels:\n          severity: '{{ $value }}'\n")):
        yield "$value in a label is not seen"
    if list(lint_recording("bytes", "max(x)", rule_set, kinds, 15)) == []:
        yield "a name without a level is not seen"


def main():
    source = pathlib.Path(sys.argv[-1])
    rule_set, kinds = RuleSet(source), metric_kinds(source)
    if sys.argv[1] == "--self-test":
        faults = list(self_test(rule_set, kinds))
    else:
        shipped = (source / "configs/prometheus/rules/gpupool.rules.yml").read_text()
        faults = [*lint(rule_set, kinds), *lint_text(shipped), *lint_tests(source, rule_set)]
        made = subprocess.run([source / "configs/rules/generate.py", "--check"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        faults += made.stdout.splitlines() if made.returncode else []
    print("\n".join(faults) if faults else
          f"{len(rule_set.recordings)} recording rules, {len(rule_set.names)} alerts without fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
