#!/usr/bin/env python3
"""A build of the program alone can be installed as a whole.

What `cmake --build BUILD --target gpupool` makes is copied into a folder, the install scripts with it,
and installed from there: whatever else they ask for is missing. Where the generator does not say
what belongs to a target, only the PyTorch plug-in is left out."""
import argparse
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "cmake", "generator"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("make-program", "plugin"):
        parser.add_argument(f"--{name}", default="")
    return parser.parse_args()


def made_files(options, build):
    """Paths below the build folder that the target `gpupool` has made, which may be installed."""
    if options.generator == "Ninja":
        listed = processes.run([options.make_program, "-C", build, "-t", "inputs", "gpupool"], 60)
        paths = [pathlib.PurePath(line) for line in listed.splitlines()]
        yield from (path for path in paths if path.suffix == ".a" or ".so" in path.name)
        yield pathlib.PurePath("bin/gpupool")
        return
    for path in [build / "bin/gpupool", *build.rglob("*.a"), *build.rglob("*.so*")]:
        if str(path) != options.plugin:
            yield path.relative_to(build)


def install_scripts(build):
    yield from (path.relative_to(build) for path in build.rglob("cmake_install.cmake"))
    yield from (path.relative_to(build) for path in build.glob("*.cmake"))
    yield from (path.relative_to(build) for path in build.glob("CMakeFiles/Export/**/*.cmake"))


def copy(build, target, paths):
    for path in paths:
        if path.is_absolute() or not (build / path).is_file():
            continue  # a library of the system
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / path, target / path, follow_symlinks=False)


def main():
    options = arguments()
    build = pathlib.Path(options.build)
    with tempfile.TemporaryDirectory(prefix="gpupool-program-alone-") as name:
        copied, prefix = pathlib.Path(name) / "build", pathlib.Path(name) / "prefix"
        copy(build, copied, made_files(options, build))
        copy(build, copied, install_scripts(build))
        for script in copied.rglob("*.cmake"):
            script.write_text(script.read_text().replace(str(build), str(copied)))
        output = processes.run([options.cmake, "--install", copied, "--prefix", prefix], 100)
        processes.run([prefix / "bin/gpupool", "--version"], 20)
        processes.require(not list(prefix.rglob("libgpupool_torch.so")),
                          "the plug-in is there, so this test shows nothing")
        processes.require(list(prefix.rglob("gpupool-config.cmake")), "no package was installed")
        processes.require((prefix / "share/gpupool/runbooks").is_dir(), "the installation ends early")
        if options.plugin:
            processes.require("PyTorch plug-in" in output, "nothing says what is missing:\n" + output)
    print("installed without the plug-in")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except processes.TestFailure as failure:
        sys.exit(f"FAILED: {failure}")
