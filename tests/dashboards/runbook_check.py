#!/usr/bin/env python3
"""Every alert has a page, every page an alert, and every page its four parts with real content.

    runbook_check.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

PARTS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def faults_of(name, rule, page):
    if f"runbook_url: docs/runbooks/{name}.md" not in rule:
        yield f"{name}: runbook_url is not docs/runbooks/{name}.md"
    severity = re.search(r"severity: (\w+)", rule)
    if not severity or severity[1] not in ("critical", "warning"):
        yield f"{name}: no severity"
    elif f"Severity: {severity[1]}" not in page:
        yield f"{name}: the page gives another severity than the rule ({severity[1]})"
    for annotation in ("summary", "description"):
        if f"{annotation}:" not in rule:
            yield f"{name}: no {annotation}"
    labels = rule.partition("labels:")[2].partition("annotations:")[0]
    if "$value" in labels:
        yield f"{name}: $value in a label makes a new alert at each evaluation"
    sections = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    if list(sections) != PARTS:
        yield f"{name}: parts are {list(sections)}, not {PARTS}"
    for part, text in sections.items():
        if len(text.split()) < 20:
            yield f"{name}: {part} says hardly anything"


def main():
    source = pathlib.Path(sys.argv[1])
    rules = (source / "configs/prometheus/alerts.yml").read_text()
    alerts = dict(re.findall(r"- alert: (\w+)\n(.*?)(?=^ *- alert|\Z)", rules, re.M | re.S))
    pages = {file.stem: file.read_text() for file in (source / "docs/runbooks").glob("Gpupool*.md")}
    faults = [f"{name}: an alert without a page" for name in alerts if name not in pages]
    faults += [f"{name}: a page without an alert" for name in pages if name not in alerts]
    for name in set(alerts) & set(pages):
        faults += faults_of(name, alerts[name], pages[name])
    if not alerts:
        faults.append("no alert found")
    print("\n".join(faults) if faults else f"{len(alerts)} alerts, each with its page")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
