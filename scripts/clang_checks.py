#!/usr/bin/env python3
"""Clang's view of the code: lock annotations (-Wthread-safety) and clang-tidy, all as errors.

Usage: clang_checks.py BUILD/compile_commands.json [PATH_PART...]
Takes the commands of our own sources from the file, as CMake wrote them for GCC, two at a time.
With PATH_PARTs only sources whose path contains one of them are looked at.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def clang_arguments(entry):
    """The compile command's arguments that mean something to a syntax check."""
    words = shlex.split(entry["command"])
    while not os.path.basename(words[0]).startswith(("g++", "c++", "clang++")):
        words.pop(0)  # a compiler launcher
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD", "-Werror", entry["file"]):
            kept.append(word)
    return kept


def check_locks(entry):
    command = ["clang++", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety"]
    return command + clang_arguments(entry) + [entry["file"]]


def check_tidy(entry, build_dir):
    del build_dir  # the flags are given whole, so that no launcher or GCC-only flag gets in
    return ["clang-tidy", "--quiet", entry["file"], "--", *clang_arguments(entry),
            "-Wno-unknown-warning-option"]


def check(entry, build_dir):
    """Returns what clang has to say about one source; an empty string is good."""
    output = []
    for command in (check_locks(entry), check_tidy(entry, build_dir)):
        done = subprocess.run(command, cwd=entry["directory"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            output.append(done.stdout)
    return "\n".join(output)


def main():
    database = pathlib.Path(sys.argv[1]).resolve()
    parts = sys.argv[2:]
    entries = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and not path.is_relative_to(database.parent):
            name = str(path.relative_to(ROOT))
            if not parts or any(part in name for part in parts):
                entries[name] = entry
    failed = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as workers:
        results = {name: workers.submit(check, entry, database.parent)
                   for name, entry in sorted(entries.items())}
        for name, result in results.items():
            output = result.result()
            print(f"{'FAILED' if output else 'ok':6} {name}", flush=True)
            if output:
                print(output)
                failed.append(name)
    print(f"clang: {len(entries)} sources, {len(failed)} with findings")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
