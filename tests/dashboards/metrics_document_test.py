#!/usr/bin/env python3
"""docs/METRICS.md is what the metric table says.

    metrics_document_test.py SOURCE_DIRECTORY PROGRAM
"""
import difflib
import pathlib
import subprocess
import sys


def main():
    source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    made = subprocess.run([program], stdout=subprocess.PIPE, timeout=10, text=True, check=True).stdout
    if made.count("\n| `gpupool_") < 50:
        sys.exit(f"{program} prints no table:\n{made}")
    file = source / "docs/METRICS.md"
    kept = file.read_text() if file.exists() else ""
    if kept == made:
        print(f"{made.count(chr(10) + '| `gpupool_')} families, as in docs/METRICS.md")
        return 0
    sys.stdout.writelines(difflib.unified_diff(kept.splitlines(True), made.splitlines(True),
                                               "docs/METRICS.md", "the metric table"))
    print(f"docs/METRICS.md is stale: {program} > {file}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
