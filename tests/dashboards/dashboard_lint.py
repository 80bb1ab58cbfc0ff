#!/usr/bin/env python3
"""Rules that every Grafana dashboard of ours keeps, checked without any server.

    dashboard_lint.py SOURCE_DIRECTORY     prints each fault; exit code 1 where there is one
    dashboard_lint.py --self-test SOURCE   breaks a dashboard in each way and must see each fault
"""
import copy
import json
import pathlib
import re
import subprocess
import sys

VARIABLES = ["datasource", "job", "instance", "device", "pool"]
# Units that Grafana knows and that these dashboards use.
UNITS = {"bytes", "percentunit", "short", "reqps", "ops", "binBps", "none"}
# Families that are about a process or a device as a whole have not all four labels.
SELECTOR_LABELS = {
    "gpupool_process_info": ["job", "instance"],
    "gpupool_device_info": ["job", "instance", "device"],
    "gpupool_device_memory_total_bytes": ["job", "instance", "device"],
    "gpupool_device_memory_free_bytes": ["job", "instance", "device"],
}


def expressions(dashboard):
    """(place, expression) of every panel and annotation."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f'panel "{panel["title"]}"', target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f'annotation "{annotation["name"]}"', annotation["expr"]


def lint_expression(place, expr):
    selectors = re.findall(r"(gpupool_[a-z0-9_]+)(\{[^}]*\})?", expr)
    if not selectors:
        yield f"{place}: no metric in {expr}"
    for metric, matchers in selectors:
        for label in SELECTOR_LABELS.get(metric, ["job", "instance", "device", "pool"]):
            if f'{label}=~"${label}"' not in matchers:
                yield f"{place}: {metric} does not select {label}"
        if metric.endswith("_total"):
            if not re.search(rf"(rate|increase)\({metric}\{{", expr):
                yield f"{place}: counter {metric} outside rate and increase"
    for window in re.findall(r"(?:rate|increase)\([^\[]*\[([^\]]*)\]", expr):
        if window not in ("$__rate_interval", "$__range"):
            yield f"{place}: window [{window}] instead of $__rate_interval"
    if expr.count("(") != expr.count(")"):
        yield f"{place}: parentheses do not match"


def lint_panel(panel):
    place = f'panel "{panel.get("title")}"'
    if not panel.get("title"):
        yield f"panel {panel['id']}: no title"
    if panel["type"] == "row":
        return
    if len(panel.get("description", "")) < 20:
        yield f"{place}: no description"
    if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield f"{place}: no unit, or one that is not listed"
    if not panel.get("targets"):
        yield f"{place}: no query"
    for item in [panel] + panel.get("targets", []):
        if item.get("datasource", {}).get("uid") != "${datasource}":
            yield f"{place}: another data source than the variable"


def lint_layout(panels):
    places = [(panel["title"], panel["gridPos"]) for panel in panels]
    for index, (title, a) in enumerate(places):
        if a["x"] + a["w"] > 24:
            yield f'panel "{title}": wider than the page'
        for other, b in places[index + 1:]:
            if (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and
                    a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]):
                yield f'panels "{title}" and "{other}" overlap'


def lint(dashboard):
    """Every fault of one dashboard, in words."""
    if dashboard.get("id") is not None:
        yield "id is not null: an import would replace somebody else's dashboard"
    if not re.fullmatch(r"gpupool-[a-z]+", dashboard.get("uid") or ""):
        yield "no fixed uid"
    if dashboard.get("editable") is not False:
        yield "editable"
    if "gpupool" not in dashboard.get("tags", []):
        yield "no tag gpupool"
    if "${DS_" in json.dumps(dashboard) or "__inputs" in dashboard:
        yield "an input that only an import by hand can fill"
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    if list(variables) != VARIABLES:
        yield f"variables are {list(variables)}, not {VARIABLES}"
    for name, variable in variables.items():
        if name != "datasource" and not (variable["multi"] and variable["includeAll"] and
                                         variable["refresh"] == 2):
            yield f"variable {name}: one value only, or not read again when the time changes"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        yield "panels with the same id"
    for panel in dashboard["panels"]:
        yield from lint_panel(panel)
    yield from lint_layout(dashboard["panels"])
    for place, expr in expressions(dashboard):
        yield from lint_expression(place, expr)


def lint_readme(dashboard, readme):
    """Every panel has its line in the table of questions."""
    for panel in dashboard["panels"]:
        if f"| {panel['title']} |" not in readme:
            yield f'"{panel["title"]}" is not in dashboards/README.md'


def break_everything(dashboard):
    """(what is broken, broken copy) for each rule: lint must see every one."""
    def change(what, edit):
        copied = copy.deepcopy(dashboard)
        edit(copied)
        return what, copied

    def panel(copied):
        return next(item for item in copied["panels"] if item["type"] == "timeseries")

    def target(copied):
        return panel(copied)["targets"][0]

    yield change("id", lambda d: d.update(id=7))
    yield change("uid", lambda d: d.update(uid=None))
    yield change("editable", lambda d: d.update(editable=True))
    yield change("tag", lambda d: d.update(tags=[]))
    yield change("variable", lambda d: d["templating"]["list"].pop())
    yield change("refresh", lambda d: d["templating"]["list"][1].update(refresh=1))
    yield change("title", lambda d: panel(d).update(title=""))
    yield change("description", lambda d: panel(d).update(description=""))
    yield change("unit", lambda d: panel(d)["fieldConfig"]["defaults"].update(unit="bite"))
    yield change("data source", lambda d: target(d)["datasource"].update(uid="abc"))
    yield change("query", lambda d: panel(d).update(targets=[]))
    yield change("overlap", lambda d: panel(d)["gridPos"].update(h=40))
    yield change("width", lambda d: panel(d)["gridPos"].update(w=25))
    yield change("selector", lambda d: target(d).update(expr="sum(gpupool_reserved_bytes)"))
    selector = 'job=~"$job", instance=~"$instance", device=~"$device", pool=~"$pool"'
    yield change("counter", lambda d: target(d).update(
        expr=f"sum(gpupool_frees_total{{{selector}}})"))
    yield change("window", lambda d: target(d).update(
        expr=f"rate(gpupool_frees_total{{{selector}}}[5m])"))
    yield change("parentheses", lambda d: target(d).update(
        expr=f"sum(gpupool_reserved_bytes{{{selector}}}"))
    yield change("input", lambda d: target(d).update(expr="${DS_PROMETHEUS}"))


def main():
    self_test = sys.argv[1] == "--self-test"
    source = pathlib.Path(sys.argv[-1])
    files = sorted((source / "dashboards/grafana").glob("*.json"))
    faults = [] if files else ["no dashboard found"]
    for file in files:
        dashboard = json.loads(file.read_text())
        if self_test:
            faults += [f"{file.name}: a broken {what} is not seen"
                       for what, broken in break_everything(dashboard) if not list(lint(broken))]
        else:
            readme = (source / "dashboards/README.md").read_text()
            faults += [f"{file.name}: {fault}"
                       for fault in [*lint(dashboard), *lint_readme(dashboard, readme)]]
    if not self_test:
        made = subprocess.run([sys.executable, source / "dashboards/grafana/generate.py", "--check"],
                              check=False)
        faults += ["the dashboards are not what generate.py writes"] if made.returncode else []
    print("\n".join(faults) if faults else f"{len(files)} dashboard(s) without fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
