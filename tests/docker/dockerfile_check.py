#!/usr/bin/env python3
"""What can be checked of the Dockerfile without an engine: the paths that it copies and runs exist
in the repository or were made by a stage before, the configuration that it runs with is accepted,
and the packages script finds packages for the program.

    dockerfile_check.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys


def instructions(text):
    """(name, arguments) with continuation lines joined and comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def check_copy(source, rest, stages, made):
    words = shlex.split(rest)
    stage = next((word.split("=")[1] for word in words if word.startswith("--from=")), None)
    paths = [word for word in words if not word.startswith("--")][:-1]
    for path in paths:
        if stage is None:
            if not (source / path).exists():
                yield f"COPY of {path}, which is not in the repository"
        elif stage not in stages:
            yield f"COPY from unknown stage {stage}"
        elif not any(path == root or path.startswith(root + "/") for root in made):
            yield f"COPY of {path}, which no stage before has made"


def check_run(source, rest):
    for command in re.split(r"&&|\|\||;", rest):
        words = [word for word in shlex.split(command) if "=" not in word.split("/")[0]]
        if words and (source / words[0]).parent != source and not words[0].startswith("/"):
            file = source / words[0]
            if not file.is_file() or not file.stat().st_mode & 0o100:
                yield f"RUN of {words[0]}, which is no program in the repository"


def check(source, text):
    stages, made, names = set(), set(), []
    for name, rest in instructions(text):
        names.append(name)
        if name == "FROM" and " AS " in rest:
            stages.add(rest.split(" AS ")[1].strip())
        elif name == "COPY":
            yield from check_copy(source, rest, stages, made)
        elif name == "RUN":
            yield from check_run(source, rest)
            # What the stage leaves under DESTDIR, and files that it redirects into.
            made |= set(re.findall(r"DESTDIR=(\S+)", rest)) | set(re.findall(r"> (\S+)", rest))
        elif name in ("CMD", "ENTRYPOINT"):
            json.loads(rest)
    if "USER" not in names or "EXPOSE" not in names:
        yield "runs as root, or exposes nothing"
    if names.count("FROM") < 2:
        yield "one stage only: the compiler would be part of the image"


def default_command(text):
    found = dict(instructions(text))
    return json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])


def check_command(source, program, text):
    """The default command names a configuration that is installed and that the program accepts."""
    words = default_command(text)
    config = words[words.index("--config") + 1]
    shipped = source / config.replace("/usr/local/share/gpupool/", "")
    if not shipped.is_file():
        yield f"runs with {config}, which is not installed"
        return
    done = subprocess.run([program, "check-config", shipped], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=10, check=False)
    port = re.search(r"^EXPOSE (\d+)$", text, re.M)[1]
    if done.returncode != 0 or "0.0.0.0" not in done.stdout or port not in done.stdout:
        yield f"{shipped.name} is refused, or not on all addresses and port {port}:\n{done.stdout}"


def check_packages(source, program):
    done = subprocess.run([source / "docker/runtime_packages.sh", program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=20, check=False)
    packages = done.stdout.split()
    if done.returncode != 0 or not all(re.fullmatch(r"[a-z0-9.+-]+", name) for name in packages):
        yield f"runtime_packages.sh: exit code {done.returncode}\n{done.stdout}"
    for part in ("prometheus-cpp", "civetweb", "yaml-cpp", "libstdc++", "libc6"):
        if not any(part in name for name in packages):
            yield f"runtime_packages.sh does not name a package of {part}: {packages}"


def main():
    source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    text = (source / "docker/Dockerfile").read_text()
    faults = list(check(source, text)) + list(check_command(source, program, text))
    faults += check_packages(source, program)
    # The check itself: a Dockerfile with wrong paths is refused.
    for broken in (text.replace("COPY . .", "COPY no-such-file ."),
                   text.replace("scripts/dev", "scripts/no-such-program"),
                   text.replace("/install/packages /tmp", "/elsewhere/packages /tmp"),
                   text.replace("--from=build", "--from=other")):
        if not list(check(source, broken)):
            faults.append("a broken Dockerfile was accepted")
    print("\n".join(faults) if faults else "Dockerfile: paths, command and packages are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
