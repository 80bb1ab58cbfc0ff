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
import tempfile

# Variables of each dashboard, in order; all but the data source are labels that its queries select.
VARIABLES = {"gpupool-process": ["datasource", "job", "instance", "device", "pool"],
             "gpupool-fleet": ["datasource", "job", "job_id"],
             "gpupool-cost": ["datasource", "job", "job_id"]}
# Units that Grafana knows and that these dashboards use.
UNITS = {"bytes", "percentunit", "short", "reqps", "ops", "binBps", "none", "s",
         "suffix: GiB\u00b7h"}
# Families that are about a process or a device as a whole have not all labels.
WITHOUT_LABELS = {
    **dict.fromkeys(["gpupool_process_info", "gpupool_config_last_reload_successful",
                     "gpupool_config_last_reload_success_timestamp_seconds",
                     "gpupool_collect_errors_total", "gpupool_series_dropped_total", "up"],
                    ["device", "pool"]),
    **dict.fromkeys(["gpupool_device_info", "gpupool_device_memory_total_bytes",
                     "gpupool_device_memory_free_bytes"], ["pool"]),
    # Of targets and of whole jobs, too.
    "ALERTS": ["device", "pool"],
}
SELECTOR = r"(?<![\w:\"])(gpupool_[a-z0-9_]+|ALERTS|up)(?=[{\s\[)]|$)(\{[^}]*\})?"
# Functions that take a past of their own, whatever the scrape interval: it is told in the panel.
OWN_WINDOWS = {"deriv", "min_over_time", "max_over_time", "avg_over_time"}
GRAFANA_WINDOWS = ("$__rate_interval", "$__range", "$__range:$__interval")
COUNTER_FUNCTIONS = r"(?:rate|increase)"


def expressions(dashboard):
    """(place, expression) of every panel and annotation."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f'panel "{panel["title"]}"', target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f'annotation "{annotation["name"]}"', annotation["expr"]


def lint_selectors(place, expr, labels):
    selectors = re.findall(SELECTOR, expr)
    if not selectors:
        yield f"{place}: no metric in {expr}"
    for metric, matchers in selectors:
        for label in labels:
            if label in WITHOUT_LABELS.get(metric, ()):
                continue
            if f'{label}=~"${label}"' not in matchers:
                yield f"{place}: {metric} does not select {label}"
        if re.search(r"_(total|bucket|count|sum)$", metric):
            if not re.search(rf"{COUNTER_FUNCTIONS}\({metric}\{{", expr):
                yield f"{place}: counter {metric} outside rate and increase"


def windows(expr):
    """(function, window) of each range in an expression."""
    expr = re.sub(r'"[^"]*"', '""', expr)
    for match in re.finditer(r"\[([^\]]*)\]", expr):
        depth, at = 0, match.start()
        while depth != 1 and at > 0:
            at -= 1
            depth += {"(": 1, ")": -1}.get(expr[at], 0)
        yield re.search(r"\w*$", expr[:at])[0], match[1]


def lint_expression(place, expr, labels):
    yield from lint_selectors(place, expr, labels)
    for function, window in windows(expr):
        if window not in GRAFANA_WINDOWS and function not in OWN_WINDOWS:
            yield f"{place}: {function} over [{window}] instead of $__rate_interval"
    if re.search(r"\bi?delta\(|\birate\(", expr):
        yield f"{place}: delta sees a restart as a fall, irate misses what is between"
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
    if not panel["fieldConfig"]["defaults"].get("noValue"):
        yield f"{place}: nothing says why it is empty where it is"
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


def lint_links(dashboard):
    others = {f"/d/{uid}" for uid in VARIABLES if uid != dashboard.get("uid")}
    links = dashboard.get("links", [])
    if {link["url"] for link in links} != others:
        yield "no link to each of the other dashboards"
    if not all(link["keepTime"] and link["includeVars"] for link in links):
        yield "a link that forgets time or variables"
    for url in re.findall(r'"url": "/d/([\w-]+)', json.dumps(dashboard)):
        if url not in VARIABLES:
            yield f"a link to {url}, which there is not"
    names = {annotation["name"] for annotation in dashboard["annotations"]["list"]}
    if not {"Out of memory", "Configuration reloads"} <= names:
        yield "no mark where memory ran out, or where a configuration was loaded"
    for annotation in dashboard["annotations"]["list"]:
        if not annotation["expr"].endswith("== 1"):
            yield f"annotation {annotation['name']}: Grafana marks nothing but 1"
        if annotation["datasource"].get("uid") != "${datasource}":
            yield f"annotation {annotation['name']}: another data source than the variable"


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
    expected = VARIABLES.get(dashboard.get("uid"), [])
    if list(variables) != expected:
        yield f"variables are {list(variables)}, not {expected}"
    for name, variable in variables.items():
        if name != "datasource" and not (variable["multi"] and variable["includeAll"] and
                                         variable["refresh"] == 2):
            yield f"variable {name}: one value only, or not read again when the time changes"
    if variables and variables.get("datasource", {}).get("query") != "prometheus":
        yield "the data source is no variable that takes any Prometheus"
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        yield "panels with the same id"
    for panel in dashboard["panels"]:
        yield from lint_panel(panel)
    yield from lint_layout(dashboard["panels"])
    yield from lint_links(dashboard)
    for place, expr in expressions(dashboard):
        yield from lint_expression(place, expr, expected[1:])


def lint_readme(dashboard, readme):
    """Every panel has its line in the table of questions of its dashboard."""
    part = readme.partition(f"### {dashboard['title']}\n")[2].partition("\n### ")[0]
    for panel in dashboard["panels"]:
        if f"| {panel['title']} |" not in part:
            yield f'"{panel["title"]}" is not in dashboards/README.md under {dashboard["title"]}'


def lint_runbooks(source, shipped, generate):
    """What a panel names is a page; with an address for the pages each panel that names one links it."""
    named = set()
    with tempfile.TemporaryDirectory(prefix="gpupool-dashboards-") as folder:
        subprocess.run([sys.executable, generate, "--output", folder, "--runbook-url",
                        "https://wiki.example/{alert}"], check=True, timeout=20)
        for name in shipped:
            for panel in json.loads((pathlib.Path(folder) / name).read_text())["panels"]:
                found = re.findall(r"docs/runbooks/(\w+)\.md", panel.get("description", ""))
                links = [link["url"] for link in panel.get("links", [])]
                if links != [f"https://wiki.example/{alert}" for alert in found]:
                    yield f'{name}, "{panel["title"]}": names {found}, links {links}'
                named.update(found)
    for alert in sorted(named):
        if not (source / f"docs/runbooks/{alert}.md").exists():
            yield f"there is no runbook {alert}"
    if len(named) < 12:
        yield f"panels name {len(named)} runbooks only"


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
    yield change("link", lambda d: d["links"].pop())
    yield change("link target", lambda d: panel(d).update(links=[{"url": "/d/gpupool-none"}]))
    yield change("annotation", lambda d: d["annotations"]["list"].pop(0))
    yield change("annotation's value", lambda d: d["annotations"]["list"][0].update(expr="up"))
    yield change("text of an empty panel",
                 lambda d: panel(d)["fieldConfig"]["defaults"].pop("noValue"))
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
    selector = ", ".join(f'{name}=~"${name}"' for name in VARIABLES[dashboard["uid"]][1:])
    yield change("counter", lambda d: target(d).update(
        expr=f"sum(gpupool_frees_total{{{selector}}})"))
    yield change("window", lambda d: target(d).update(
        expr=f"rate(gpupool_frees_total{{{selector}}}[5m])"))
    yield change("delta", lambda d: target(d).update(
        expr=f"delta(gpupool_free_bytes{{{selector}}}[$__rate_interval])"))
    yield change("parentheses", lambda d: target(d).update(
        expr=f"sum(gpupool_reserved_bytes{{{selector}}}"))
    yield change("input", lambda d: target(d).update(expr="${DS_PROMETHEUS}"))


def main():
    self_test = sys.argv[1] == "--self-test"
    source = pathlib.Path(sys.argv[-1])
    files = sorted((source / "dashboards/grafana").glob("*.json"))
    generate = source / "dashboards/grafana/generate.py"
    faults = []
    if sorted(file.stem for file in files) != sorted(VARIABLES):
        faults.append(f"dashboards are {[file.stem for file in files]}")
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
        faults += lint_runbooks(source, [file.name for file in files], generate)
        made = subprocess.run([sys.executable, generate, "--check"], check=False)
        faults += ["the dashboards are not what generate.py writes"] if made.returncode else []
    print("\n".join(faults) if faults else f"{len(files)} dashboard(s) without fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
