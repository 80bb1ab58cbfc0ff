"""Reads values files: the part of YAML that they use, strictly.

Mappings by indentation of two, scalars, lists in brackets on one line, comments. Anything else is an
error with its line. The standard library has no YAML, and a generator that runs wherever Python does
is worth these lines.
"""
import copy
import re

KEY = re.compile(r"^( *)([A-Za-z_][A-Za-z0-9_]*):(?: +(.*))?$")
UNITS = {"": 1, "KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30, "TiB": 2 ** 40}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ValuesError(Exception):
    """What is wrong, with file and line."""


def scalar(text):
    if text.startswith("[") and text.endswith("]"):
        return [scalar(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    return text


def parse(text, name):
    """The file's mapping of mappings."""
    root = {}
    open_mappings = [(-2, root)]
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if not line:
            continue
        match = KEY.match(line)
        if not match:
            raise ValuesError(f"{name}:{number}: neither `key: value` nor a comment")
        indent, key, value = len(match[1]), match[2], match[3]
        while open_mappings[-1][0] >= indent:
            open_mappings.pop()
        parent_indent, parent = open_mappings[-1]
        if indent != parent_indent + 2:
            raise ValuesError(f"{name}:{number}: indentation of two a level")
        if key in parent:
            raise ValuesError(f"{name}:{number}: {key} stands here twice")
        if value is None:
            parent[key] = {}
            open_mappings.append((indent, parent[key]))
        else:
            parent[key] = scalar(value)
    return root


def merge(base, changes, path=""):
    """`base` with what `changes` says; a key that base has not is an error."""
    merged = copy.deepcopy(base)
    for key, value in changes.items():
        where = f"{path}{key}"
        if key not in merged:
            raise ValuesError(f"{where}: there is no such value")
        if isinstance(merged[key], dict) != isinstance(value, dict):
            raise ValuesError(f"{where}: a value where a group of them is, or the other way round")
        merged[key] = merge(merged[key], value, where + ".") if isinstance(value, dict) else value
    return merged


def load(file, base=None):
    values = parse(file.read_text(), str(file))
    return values if base is None else merge(base, values)


def byte_count(value):
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB|TiB)?", str(value))
    if not match:
        raise ValuesError(f"{value}: no size (bytes, KiB, MiB, GiB, TiB)")
    return int(match[1]) * UNITS[match[2] or ""]


def seconds(value):
    match = re.fullmatch(r"(\d+)([smhd])", str(value))
    if not match:
        raise ValuesError(f"{value}: no duration (15s, 5m, 1h, 1d)")
    return int(match[1]) * SECONDS[match[2]]


def duration(total):
    """Seconds as Prometheus writes them."""
    for unit in ("d", "h", "m"):
        if total >= SECONDS[unit] and total % SECONDS[unit] == 0:
            return f"{total // SECONDS[unit]}{unit}"
    return f"{total}s"
