"""Tables in Markdown, and the part of a document that a program writes, between two comments that name
the program."""
import pathlib
import sys


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def marks(owner):
    """(first line, last line) of OWNER's part."""
    return (f"<!-- begin: written by {owner}, not by hand -->", f"<!-- end: written by {owner} -->")


def replace(document, owner, text):
    """Ends the program, with nothing written, unless the document has that part once."""
    begin, end = marks(owner)
    path = pathlib.Path(document)
    old = path.read_text(encoding="utf-8")
    if old.count(begin) != 1 or old.count(end) != 1 or old.index(begin) > old.index(end):
        sys.exit(f"{document}: there have to be two lines, once each:\n{begin}\n{end}")
    before, rest = old.split(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")
