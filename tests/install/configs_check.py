#!/usr/bin/env python3
"""Every YAML file that is shipped is accepted, and configs/gpupool.yaml shows every key with the
default that is really in force, or in a comment where that comes from the environment.

    configs_check.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SHIPPED = ["configs/gpupool.yaml", "configs/docker.yaml", "examples/training_service/service.yaml"]


def settings(program, file):
    """What check-config prints: key path to value."""
    done = subprocess.run([program, "check-config", file], stdout=subprocess.PIPE, timeout=10,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{file}: exit code {done.returncode}\n{done.stdout}")
    return dict(re.findall(r"^(\S+): +(.*)$", done.stdout, re.M))


def main():
    source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    shown = [settings(program, source / name) for name in SHIPPED][0]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as empty:
        empty.write("version: 1\n")
        empty.flush()
        defaults = settings(program, empty.name)
    faults = [f"{key} is {shown.get(key)!r} in gpupool.yaml, the default is {value!r}"
              for key, value in defaults.items() if shown.get(key) != value]
    text = (source / SHIPPED[0]).read_text()
    faults += [f"{key} is not in gpupool.yaml" for key in defaults
               if not re.search(rf"^ *(?:# +)?{key.split('.')[-1]}:", text, re.M)]
    if len(defaults) < 15:
        faults.append(f"check-config shows {len(defaults)} settings only")
    print("\n".join(faults) if faults else f"{len(defaults)} settings, all as they are by default")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
