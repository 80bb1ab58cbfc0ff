"""Rules as YAML text, laid out to be read."""
import textwrap

HEADER = """\
# Written by configs/rules/generate.py from configs/rules/values.yaml; change those.
# Needs Prometheus 2.42 or later (keep_firing_for).
#
#   promtool check rules configs/prometheus/rules/gpupool.rules.yml
#
# Each alert has a page under docs/runbooks/ that says what to do.
"""


def folded(key, text, indent):
    """A text of one paragraph, broken into lines."""
    lines = textwrap.wrap(text, 98 - indent, break_long_words=False, break_on_hyphens=False)
    pad = " " * (indent + 2)
    return f"{' ' * indent}{key}: >-\n" + "".join(f"{pad}{line}\n" for line in lines)


def expression(text, indent):
    if "\n" not in text and len(text) < 90 - indent and not set(text) & set("#\"'"):
        return f"{' ' * indent}expr: {text}\n"
    return f"{' ' * indent}expr: |-\n" + textwrap.indent(text, " " * (indent + 2)) + "\n"


def recording(name, text, why):
    comment = f"      # {why[0].upper()}{why[1:]}.\n" if why else ""
    return f"{comment}      - record: {name}\n" + expression(text, 8)


def alert(values, item, v, text):
    url = values["rules"]["runbook_url"].replace("{alert}", item.name)
    lines = [f"      - alert: {item.name}\n", expression(text, 8)]
    for key in ("for", "keep_firing_for"):
        if str(v[key]) != "0s":
            lines.append(f"        {key}: {v[key]}\n")
    lines += ["        labels:\n", f"          severity: {v['severity']}\n",
              "        annotations:\n", folded("summary", item.summary, 10),
              folded("description", item.description, 10), f"          runbook_url: {url}\n"]
    return "".join(lines)


def groups_text(values, groups):
    parts = ["groups:\n"]
    for name, recorded, fired in groups:
        parts.append(f"  - name: {name}\n    interval: {values['rules']['interval']}\n    rules:\n")
        rules = [recording(*rule) for rule in recorded] + [alert(values, *rule) for rule in fired]
        parts.append("\n".join(rules))
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"
