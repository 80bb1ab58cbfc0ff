#!/usr/bin/env python3
"""Installs this build into a folder of its own, builds the examples against that folder alone, runs
them and scrapes the service."""
import argparse
import os
import pathlib
import re
import shlex
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "source", "cmake", "generator", "cxx"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("cc", "cudart", "launcher", "cxx-flags", "config"):
        parser.add_argument(f"--{name}", default="")
    return parser.parse_args()


def install(options, prefix):
    command = [options.cmake, "--install", options.build, "--prefix", prefix]
    processes.run(command + (["--config", options.config] if options.config else []), 120)
    for name in ("bin/gpupool", "include/gpupool/pool.h", "include/gpupool/exporter/exporter.h",
                 "share/gpupool/configs/prometheus/rules/gpupool.rules.yml",
                 "share/gpupool/dashboards/grafana/gpupool-process.json",
                 "share/gpupool/runbooks/GpupoolOutOfMemory.md"):
        processes.require((prefix / name).is_file(), f"not installed: {name}")
    processes.require(list((prefix / "share/gpupool/traces").glob("*.trace.gz")),
                      "no sample trace was installed")
    # What was installed must not point back at where it was built.
    for file in prefix.rglob("*.cmake"):
        processes.require(options.build not in file.read_text(),
                          f"{file.name} names the build folder")


def build_example(options, prefix, folder):
    binary_dir = folder / "example"
    processes.run([options.cmake, "-S", pathlib.Path(options.source) / "examples/training_service",
                   "-B", binary_dir, "-G", options.generator, f"-DCMAKE_PREFIX_PATH={prefix}",
                   f"-DCMAKE_CXX_COMPILER={options.cxx}", f"-DCMAKE_CXX_FLAGS={options.cxx_flags}",
                   f"-DCMAKE_CXX_COMPILER_LAUNCHER={options.launcher}",
                   f"-DCMAKE_BUILD_TYPE={options.config}"], 60)
    processes.run([options.cmake, "--build", binary_dir], 180)
    return binary_dir / "training_service"


def build_c_example(options, prefix, folder):
    """With C as the only language: what the library needs of C++ has to come with it."""
    binary_dir = folder / "example_c"
    processes.run([options.cmake, "-S", pathlib.Path(options.source) / "examples/c",
                   "-B", binary_dir, "-G", options.generator, f"-DCMAKE_PREFIX_PATH={prefix}",
                   f"-DCMAKE_C_COMPILER={options.cc}", f"-DCMAKE_C_FLAGS={options.cxx_flags}",
                   f"-DCMAKE_BUILD_TYPE={options.config}"], 60)
    processes.run([options.cmake, "--build", binary_dir], 60)
    return binary_dir / "pool_in_c"


def link_c_example_by_hand(options, prefix, folder):
    """The gcc line of examples/README.md, with this prefix, this toolkit and this compiler."""
    source = pathlib.Path(options.source)
    found = re.search(r"^    gcc ((?:.*\\\n)*.*)$", (source / "examples/README.md").read_text(), re.M)
    processes.require(found, "examples/README.md has no gcc line")
    program = folder / "pool_in_c"
    line = found.group(1).replace("\\\n", " ").replace("~/gpupool", str(prefix))
    line = line.replace("-o pool_in_c", f"-o {program}")
    if options.cudart:
        line = line.replace("/usr/local/cuda/lib64", str(pathlib.Path(options.cudart).parent))
    else:
        line = line.replace(" -lcudart_static", "")
    processes.run([options.cc, *shlex.split(options.cxx_flags), *shlex.split(line)], 60, cwd=source)
    return program


def run_c_example(program, prefix):
    # Where the libraries are shared, a program that was linked by hand has to be told where they are.
    output = processes.run([program], 60, env={**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib"})
    processes.require(re.search(r"^100 requests, \d+ of them without the driver, \d+ MiB held$",
                                output, re.M), f"{program} printed:\n{output}")


def write_config(folder, port):
    path = folder / "service.yaml"
    path.write_text("version: 1\n"
                    "pool:\n  name: training\n  capacity: 4GiB\n"
                    f"exporter:\n  port: {port}\n  port_count: 1\n"
                    "tags: [weights, activations, gradients]\n")
    return path


def value(page, family, label):
    found = re.search(rf"^{family}{{[^}}]*{label}[^}}]*}} ([0-9.e+]+)$", page, re.M)
    processes.require(found, f"no sample of {family} with {label}")
    return float(found.group(1))


def run_example(program, folder):
    port = processes.free_port()
    command = [program, write_config(folder, port), "--for", 60]
    with processes.running("training_service", command, folder) as service:
        url = f"http://127.0.0.1:{port}/metrics"

        def page_with_work():
            page = processes.get(url)
            busy = value(page, "gpupool_allocation_requests_total", 'pool="training"') > 100
            return page if busy else None

        page = processes.wait_for("page of a working service", 15, page_with_work, service)
        processes.check_metrics_page(page)
        weights = value(page, "gpupool_tag_requested_bytes", 'tag="weights"')
        processes.require(weights == 12 * 28e6, f"{weights} bytes of weights")
        code = service.stop()
        processes.require(code == 0, f"exit code {code} after SIGTERM:\n{service.output()}")
        processes.require(" steps, " in service.output(), "no closing line:\n" + service.output())


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="gpupool-install-") as name:
        folder = pathlib.Path(name)
        prefix = folder / "prefix"
        install(options, prefix)
        run_c_example(build_c_example(options, prefix, folder), prefix)
        run_c_example(link_c_example_by_hand(options, prefix, folder), prefix)
        run_example(build_example(options, prefix, folder), folder)
    print("installed, built, ran, scraped")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except processes.TestFailure as failure:
        sys.exit(f"FAILED: {failure}")
