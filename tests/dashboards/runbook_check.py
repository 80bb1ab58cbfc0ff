#!/usr/bin/env python3
"""Every alert has a page, every page an alert, and every page its four parts with real content.

    runbook_check.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

from rule_set import RuleSet

PARTS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
LEAST_WORDS = {"Meaning": 25, "Impact": 20, "Diagnosis": 60, "Mitigation": 25}


def faults_of(name, rule_set, page):
    v = rule_set.values["alerts"][name]
    if f"Severity: {v['severity']}." not in page:
        yield f"{name}: the page gives another severity than the rule ({v['severity']})"
    if not page.startswith(f"# {name}\n"):
        yield f"{name}: the page has another title"
    head = page.partition("## ")[0]
    if v.get("window") not in (None, "10m", "5m", "1h", "30m"):
        yield f"{name}: a window of {v['window']}, which no page names"
    minutes = re.fullmatch(r"(\d+)m", v["for"])
    if minutes and not re.search(rf"\b{minutes[1]}\s+minutes?\b", head):
        yield f"{name}: the page does not say that it takes {minutes[1]} minutes"
    seconds = re.fullmatch(r"([1-9]\d*)s", v["for"])
    if seconds and not re.search(rf"\b{seconds[1]}\s+seconds\b", head):
        yield f"{name}: the page does not say that it takes {seconds[1]} seconds"
    sections = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    if list(sections) != PARTS:
        yield f"{name}: parts are {list(sections)}, not {PARTS}"
    for part, text in sections.items():
        if len(text.split()) < LEAST_WORDS.get(part, 0):
            yield f"{name}: {part} says hardly anything"
    if not re.search(r"gpupool_\w|`up", sections.get("Diagnosis", "")):
        yield f"{name}: the diagnosis looks at no metric"


def check(rule_set, pages):
    yield from (f"{name}: an alert without a page" for name in rule_set.names if name not in pages)
    yield from (f"{name}: a page without an alert" for name in pages if name not in rule_set.names)
    for name in set(rule_set.names) & set(pages):
        yield from faults_of(name, rule_set, pages[name])


def main():
    source = pathlib.Path(sys.argv[1])
    rule_set = RuleSet(source)
    pages = {file.stem: file.read_text() for file in (source / "docs/runbooks").glob("Gpupool*.md")}
    faults = list(check(rule_set, pages))
    rules = (source / "configs/prometheus/rules/gpupool.rules.yml").read_text()
    for name in filter(rule_set.is_on, rule_set.names):
        url = rule_set.values["rules"]["runbook_url"].replace("{alert}", name)
        if f"runbook_url: {url}\n" not in rules or not url.endswith(f"docs/runbooks/{name}.md"):
            faults.append(f"{name}: runbook_url does not lead to its page")
    # The check itself: pages that say less are refused.
    for part in PARTS:
        cut = {name: re.sub(rf"(## {part}\n)[^#]*", r"\1Look.\n\n", text)
               for name, text in pages.items()}
        if len(list(check(rule_set, cut))) < len(pages):
            faults.append(f"a page without {part} was accepted")
    print("\n".join(faults) if faults else f"{len(pages)} alerts, each with its page")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
