"""C++ source as the rules need it: comments and literals blanked, includes, function bodies.

Line numbers stay right everywhere: what is taken out is replaced by spaces, never by nothing.
"""

import re

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
_PREPROCESSOR = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)

_INITIALISER = "initialiser"
_MEMBER_INITIALISER = re.compile(r"\)[\w\s]*:(?!:)(?:.*[,\s])?[\w:<>]+\s*$", re.S)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """The text with comments, strings and character literals blanked."""
    return _TOKEN.sub(lambda match: _blank(match.group()), text)


def without_comments(text):
    """The text with comments blanked and literals kept."""
    return _TOKEN.sub(
        lambda match: _blank(match.group()) if match.group()[0] == "/" else match.group(), text)


def comments(text):
    """(line, comment text) of each // comment."""
    for match in _TOKEN.finditer(text):
        if match.group().startswith("//"):
            yield line_of(text, match.start()), match.group()


def includes(text):
    """(line, '<' or '"', path) of each include."""
    for match in _INCLUDE.finditer(without_comments(text)):
        yield line_of(text, match.start(1)), match.group(1), match.group(2)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def functions(text):
    """(first line, last line, name) of each function with a body, also GoogleTest's TEST(...).

    A brace opens a function where it stands at namespace or class level after a head with a
    parameter list; lambdas and classes inside a function belong to that function.
    """
    code = _PREPROCESSOR.sub(lambda match: _blank(match.group()), code_only(text))
    opened = []  # per open brace: None, _INITIALISER, or (first line, name) of a function
    inside = 0   # open functions: 0 or 1
    head_start = 0
    parentheses = 0
    for offset, char in enumerate(code):
        if char in "()":
            parentheses += 1 if char == "(" else -1
        elif char == "{":
            head = code[head_start:offset]
            if _INITIALISER in opened or (not inside and _MEMBER_INITIALISER.search(head)):
                opened.append(_INITIALISER)  # part of the head, which goes on behind it
                continue
            name = None if inside or parentheses else _function_name(head)
            if name:
                first = head_start + len(head) - len(head.lstrip())
                opened.append((line_of(code, first), name))
                inside = 1
            else:
                opened.append(None)
            if not parentheses:
                head_start = offset + 1
        elif char == "}" and opened:
            function = opened.pop()
            if function is _INITIALISER:
                continue
            if function:
                inside = 0
                yield function[0], line_of(code, offset), function[1]
            if not parentheses:
                head_start = offset + 1
        elif char == ";" and not parentheses:
            head_start = offset + 1


def _function_name(head):
    """The name that a head such as `int f(int x) const` gives, or None if it is no function's."""
    head = re.sub(r"^\s*(?:public|private|protected)\s*:(?!:)", "", head)
    head = re.sub(r"\[\[.*?\]\]", " ", head, flags=re.S)
    if re.match(r"\s*(?:inline\s+)?namespace\b|\s*extern\s*$", head):
        return None
    if re.match(r"\s*(?:template\s*<.*>\s*)?(?:typedef\s+)?(?:class|struct|union|enum)\b"
                r"(?![^{]*\)\s*(?:const|noexcept|->|\{|$))", head, re.S):
        return None
    if re.search(r"(?<![=!<>])=\s*(?:[\w:<>, ]*)$", head):
        return None  # a braced initialiser
    match = re.search(r"(operator\s*(?:\(\s*\)|[^\s(]+)|~?[A-Za-z_][\w:~]*)\s*\(", head)
    return match.group(1) if match else None
