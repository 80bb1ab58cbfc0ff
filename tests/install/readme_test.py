#!/usr/bin/env python3
"""The C++ in README.md is the text between the marks in the example that is built and run.

    readme_test.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys
import textwrap


def example_lines(source):
    text = (source / "examples/training_service/main.cc").read_text()
    found = re.search(r"^ *// README begins\n(.*?)^ *// README ends$", text, re.M | re.S)
    if not found:
        sys.exit("the example has lost its marks")
    return textwrap.dedent(found.group(1))


def main():
    source = pathlib.Path(sys.argv[1])
    lines = example_lines(source)
    if len(lines.strip().splitlines()) > 16:
        sys.exit("the example's lines have become more than the README promises")
    if f"```cpp\n{lines}```\n" not in (source / "README.md").read_text():
        sys.exit("README.md does not show the example's lines; they are:\n" + lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
