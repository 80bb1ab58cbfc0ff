#!/usr/bin/env python3
"""Every script can be found, and scripts/gpu-torch says in a line what it has not got.

    scripts_test.py SOURCE_DIRECTORY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def need(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def check_names(source):
    table = (source / "scripts/README.md").read_text()
    usage = subprocess.run([source / "scripts/dev", "help"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout
    script = (source / "scripts/dev").read_text()
    for path in (source / "scripts").iterdir():
        need(path.suffix == ".md" or not path.is_file() or f"| {path.name} |" in table,
             f"scripts/README.md has no {path.name}")
    for name in re.findall(r"^cmd_([\w-]+)\(\)", script, re.M):
        need(re.search(rf"^  {name} ", usage, re.M), f"`scripts/dev help` has no {name}")


def check_machine_without_pytorch(source, folder):
    """With a python3 that fails as one without PyTorch does, and no card."""
    for name, body in (("nvidia-smi", "exit 1"),
                       ("python3", "echo 'Traceback (most recent call last):' >&2; exit 1")):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run([source / "scripts/gpu-torch", folder / "out"], text=True, timeout=30,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    need(done.returncode == 1, f"exit code {done.returncode}:\n{done.stdout}")
    need("no PyTorch" in done.stdout and "no NVIDIA GPU" in done.stdout, done.stdout)
    need("Traceback" not in done.stdout, "a traceback comes first:\n" + done.stdout)


def main():
    source = pathlib.Path(sys.argv[1])
    check_names(source)
    with tempfile.TemporaryDirectory(prefix="gpupool-scripts-") as name:
        check_machine_without_pytorch(source, pathlib.Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
