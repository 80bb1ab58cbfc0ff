"""What the dashboards are put together from: queries, panels, their layout, and what all have alike."""

import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RED, ORANGE, YELLOW, GREEN, BLUE, PURPLE = "red", "orange", "yellow", "green", "blue", "purple"
NO_DATA = "no data"  # of a panel that has some wherever a pool is scraped
TILE_HEIGHT = 4
GRAPH_HEIGHT = 9
# Dashboards know each other by these.
PROCESS, FLEET, COST = "gpupool-process", "gpupool-fleet", "gpupool-cost"
MANY_LEGEND_WIDTH = 320  # pixels; the longest name of a rank, and two numbers


def steps(*pairs):
    """Thresholds: a base colour, then (value, colour) upward."""
    first, rest = pairs[0], pairs[1:]
    return {"mode": "absolute", "steps": [{"color": first, "value": None}]
            + [{"color": color, "value": value} for value, color in rest]}


def targets(queries, instant=False, table=False):
    result = []
    for index, (expr, legend) in enumerate(queries):
        result.append({"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expr,
                       "legendFormat": legend, "instant": instant, "range": not instant,
                       "format": "table" if table else "time_series"})
    return result


def panel(kind, title, description, unit, queries, width, height, **extra):
    """`runbook`: the alert whose page says what to do. `no_value`: what is shown where there is
    nothing to show, for what may well be so."""
    defaults = {"unit": unit, "thresholds": extra.get("thresholds", steps(GREEN)),
                "mappings": extra.get("mappings", []), "noValue": extra.get("no_value", NO_DATA)}
    for key in ("min", "max", "decimals", "color", "custom"):
        if key in extra:
            defaults[key] = extra[key]
    result = {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
              "targets": targets(queries, extra.get("instant", False), extra.get("table", False)),
              "fieldConfig": {"defaults": defaults, "overrides": extra.get("overrides", [])},
              "options": extra.get("options", {}),
              "transformations": extra.get("transformations", []), "links": [],
              "gridPos": {"h": height, "w": width, "x": 0, "y": 0}}
    if "interval" in extra:
        result["interval"] = extra["interval"]
    if "runbook" in extra:
        result["runbook"] = extra["runbook"]  # layout() makes a line and a link of it
    return result


def tile(title, description, unit, queries, **extra):
    options = {"colorMode": extra.pop("colored", "value"), "graphMode": extra.pop("graph", "area"),
               "justifyMode": "auto", "orientation": "horizontal",
               "textMode": extra.pop("text", "value"), "wideLayout": True,
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("stat", title, description, unit, queries, extra.pop("width", 4),
                 extra.pop("height", TILE_HEIGHT), options=options, **extra)


def above_zero(queries):
    """Without what is 0, which would be an empty axis and a line of the legend."""
    return [(f"({expr}) > 0" if re.search(r" [-+*/] ", expr) else f"{expr} > 0", legend)
            for expr, legend in queries]


def graph(title, description, unit, queries, width=12, stack=False, **extra):
    """Lines; filled where they add up (`stack`); bars for what is counted (`bars`). What is mostly 0,
    and well so, is drawn where it is not; `seldom` are the words for where nothing is."""
    bars = extra.pop("bars", False)
    if "seldom" in extra:
        extra["no_value"] = extra.pop("seldom")
        bars, queries = True, above_zero(queries)
    custom = {"drawStyle": "bars" if bars else "line", "lineWidth": 0 if bars else 1,
              "fillOpacity": 80 if bars else 50 if stack else 0, "showPoints": "never",
              "spanNulls": False, "axisSoftMin": 0,
              # Shares of several ranks add up to nothing.
              "stacking": {"mode": "normal" if stack or bars and unit != "percentunit" else "none",
                           "group": "A"}}
    custom.update(extra.pop("custom", {}))
    many = extra.pop("many", None)
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    if many is not None:
        legend.update(displayMode="table", placement="right", width=MANY_LEGEND_WIDTH, calcs=many)
    options = {"legend": legend,
               "tooltip": {"mode": "multi", "sort": "desc" if not stack else "none"}}
    if stack or len(queries) == 1:
        extra["overrides"] = [*extra.get("overrides", []), hidden_where_all_is_zero()]
    return panel("timeseries", title, description, unit, queries, width,
                 extra.pop("height", GRAPH_HEIGHT), custom=custom, options=options, **extra)


def hidden_where_all_is_zero():
    """What is 0 all the time is no line of the legend."""
    return {"matcher": {"id": "byValue", "options": {"reducer": "allIsZero", "op": "gte", "value": 0}},
            "properties": [{"id": "custom.hideFrom",
                            "value": {"legend": True, "tooltip": True, "viz": True}}]}


def override(name, **properties):
    return {"matcher": {"id": "byName", "options": name},
            "properties": [{"id": key.replace("__", "."), "value": value}
                           for key, value in properties.items()]}


def colors(**names):
    """Fixed colours, so that a thing has the same one in every panel."""
    return [override(name, color={"mode": "fixed", "fixedColor": color})
            for name, color in names.items()]


def outside_stack(*names, color="text"):
    """Lines drawn over a stack: a limit is no part of what it limits."""
    return [override(name, custom__stacking={"mode": "none", "group": "A"},
                     custom__fillOpacity=0, custom__lineWidth=2,
                     custom__lineStyle={"fill": "dash", "dash": [8, 6]},
                     color={"mode": "fixed", "fixedColor": color})
            for name in names]


def table(title, description, queries, width, height, columns, **extra):
    """One row for each set of labels. `columns`: (field, heading, properties) from left to right; a
    field is a label, or "Value #A" for the value of the first query. Others are left out."""
    overrides, indexes, names = [], {}, {}
    filters = extra.pop("filters", True)
    for index, (field, heading, properties) in enumerate(columns):
        indexes[field] = index
        names[field] = heading
        # Numbers are ordered by, not filtered by: the mark of a filter takes room.
        overrides.append(override(heading, custom__filterable=filters and not field.startswith("Value"),
                                  **properties))
    options = {"showHeader": True, "cellHeight": "sm"}
    if "sort_by" in extra:
        name, falling = extra.pop("sort_by")
        options["sortBy"] = [{"displayName": name, "desc": falling}]
    return panel("table", title, description, extra.pop("unit", "none"), queries, width, height,
                 instant=True, table=True, options=options, overrides=overrides,
                 custom={"align": "auto", "filterable": False},
                 transformations=[
                     {"id": "merge", "options": {}},
                     {"id": "filterFieldsByName", "options": {"include": {"names": list(indexes)}}},
                     {"id": "organize", "options": {"excludeByName": {}, "indexByName": indexes,
                                                    "renameByName": names}}], **extra)


def colored_cell(thresholds):
    return {"thresholds": thresholds,
            "custom__cellOptions": {"type": "color-background", "mode": "basic"}}


def gauge_cell(thresholds):
    return {"thresholds": thresholds, "min": 0, "max": 1,
            "custom__cellOptions": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}}


def severity_colors():
    order = [("critical", RED), ("warning", ORANGE), ("info", BLUE)]
    return [{"type": "value", "options": {name: {"color": color, "index": index}
                                          for index, (name, color) in enumerate(order)}}]


def process_link(title="This process alone"):
    """From a row of a table about processes to their dashboard."""
    return [{"title": title, "targetBlank": False,
             "url": f"/d/{PROCESS}?var-datasource=${{datasource}}"
                    "&var-job=${__data.fields.scrape}&var-instance=${__data.fields.process}"
                    "&${__url_time_range}"}]


def with_runbook(item, pattern):
    """The page of an alert: named in the description, and linked where `pattern` is an address that
    a browser can open from anywhere."""
    alert = item.pop("runbook", None)
    if alert is not None:
        item["description"] += f" Runbook: docs/runbooks/{alert}.md"
        if "://" in pattern:
            item["links"].append({"title": f"Runbook {alert}", "targetBlank": True,
                                  "url": pattern.replace("{alert}", alert)})
    return item


def layout(rows, pattern):
    """Rows from top to bottom, panels from left to right, 24 columns wide."""
    result, y = [], 0
    for title, panels in rows:
        result.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        x, y, line_height = 0, y + 1, 0
        for item in panels():
            place = item["gridPos"]
            if x + place["w"] > 24:
                x, y, line_height = 0, y + line_height, 0
            place.update(x=x, y=y)
            x, line_height = x + place["w"], max(line_height, place["h"])
            result.append(with_runbook(item, pattern))
        y += line_height
    for index, item in enumerate(result):
        item["id"] = index + 1
    return result


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "definition": query, "query": {"query": query, "refId": f"variable-{name}"},
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}, "hide": 0, "regex": "",
            "options": []}


def just_started(selector):
    """1 where a process is younger than two points of the panel: it is seen one scrape after its
    start at the latest, and shown one point after that. What compares two values of a series would
    not see one that was away for longer."""
    return f"(time() - gpupool_start_time_seconds{{{selector}}} <= bool 2 * $__interval_ms / 1000)"


def annotation(name, color, expr, title, text, **extra):
    """Grafana marks the times at which a series is exactly 1."""
    return {"name": name, "enable": extra.get("enable", True), "hide": False, "iconColor": color,
            "datasource": DATASOURCE, "expr": f"({expr} > bool 0) == 1", "step": "60s",
            "titleFormat": title, "textFormat": text}


def annotations(selector, process_selector):
    """Failed requests, and what changes a process at once. A configuration is also loaded when a
    process starts; that is a start."""
    changed = f"changes(gpupool_start_time_seconds{{{selector}}}[$__rate_interval])"
    loaded = ("changes(gpupool_config_last_reload_success_timestamp_seconds"
              f"{{{process_selector}}}[$__rate_interval])")
    who = "{{job_id}} {{rank}} {{instance}}"
    return [
        annotation("Out of memory", RED,
                   f"increase(gpupool_out_of_memory_total{{{selector}}}[$__rate_interval])",
                   "out of memory: {{cause}}", who + " {{device}}/{{pool}}"),
        annotation("Configuration reloads", BLUE,
                   f"({loaded} unless on (job, instance) ({changed} > 0))",
                   "configuration loaded", who),
        annotation("Starts", PURPLE, just_started(selector), "process started", who, enable=False),
    ]


def links(own):
    """To the other dashboards, with the same time and the variables that they share."""
    titles = {FLEET: "Fleet: who fails first", PROCESS: "Process: why is memory lost",
              COST: "Cost: held against used"}
    return [{"type": "link", "title": title, "url": f"/d/{uid}", "icon": "dashboard",
             "keepTime": True, "includeVars": True, "asDropdown": False, "targetBlank": False,
             "tags": [], "tooltip": ""} for uid, title in titles.items() if uid != own]


def dashboard(uid, title, description, variables, rows, pattern, **extra):
    source = {"name": "datasource", "label": "Data source", "type": "datasource",
              "query": "prometheus", "hide": 0, "includeAll": False, "multi": False,
              "options": [], "refresh": 1, "regex": ""}
    return {"id": None, "uid": uid, "title": title, "description": description,
            "tags": ["gpupool", "gpu", "memory"], "schemaVersion": 39, "version": 1,
            "editable": False, "graphTooltip": 1, "refresh": extra["refresh"], "timezone": "",
            "time": {"from": extra["since"], "to": "now"}, "timepicker": {}, "weekStart": "",
            "fiscalYearStartMonth": 0, "links": links(uid),
            "annotations": {"list": annotations(*extra["selectors"])},
            "templating": {"list": [source, *variables]}, "panels": layout(rows, pattern)}
