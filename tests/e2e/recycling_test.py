#!/usr/bin/env python3
"""The operations that fail in fragmentation_test.py, with recycling as it is by default: the memory is
as full of holes, no alert so much as becomes pending, and the large request is served by moving pages.

    recycling_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import make_fragmenting_trace as trace  # noqa: E402
import processes  # noqa: E402
import prometheus_server  # noqa: E402

SPEED = 2  # nothing is to happen, for which that is long enough
SHORT_TIMES = ["alerts.GpupoolFragmentationHigh.window=4s",
               "alerts.GpupoolFragmentationHigh.for=1s",
               "alerts.GpupoolFragmentationCritical.for=1s",
               "alerts.GpupoolLargestBlockBelowRequired.for=1s",
               "alerts.GpupoolLargestBlockBelowRequired.trough=4s",
               "alerts.GpupoolAddressSpaceLow.for=1s"]
CONFIG = f"""version: 1
pool:
  capacity: {trace.CAPACITY_BYTES}
alerts:
  fragmentation_ratio: 0.6
  required_block_bytes: {trace.LARGE_BYTES}
"""
ALERTS = ["GpupoolFragmentationHigh", "GpupoolFragmentationCritical",
          "GpupoolLargestBlockBelowRequired", "GpupoolOutOfMemory",
          "GpupoolAddressSpaceLow"]


def value(prometheus, expr):
    result = prometheus.query(expr)
    processes.require(len(result) == 1, f"{expr}: {result}")
    return result[0][1]


def follow(prometheus, demo):
    """The highest raw fragmentation that was seen before pages moved; returns once they have."""
    raw = 0
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        processes.require(not demo.ended(), f"the demo ended:\n{demo.output()}")
        states = {name: prometheus.alert_state(name) for name in ALERTS}
        processes.require(set(states.values()) == {"inactive"}, f"{states}\n{demo.output()}")
        if value(prometheus, "gpupool_pages_recycled_total") > 0:
            return raw
        raw = max(raw, value(prometheus, "gpupool_raw_fragmentation_ratio"))
        time.sleep(0.2)
    raise processes.TestFailure(f"no page moved:\n{demo.output()}")


def check_end(prometheus, demo):
    """The request was served, out of what was empty, and what that took can be seen."""
    peak = value(prometheus, "gpupool_reserved_peak_bytes")
    full = (trace.CAPACITY_BYTES - trace.LARGE_BYTES // 2)
    processes.require(peak <= 1.006 * full, f"{peak} bytes held, {full} were occupied at most")
    processes.require(value(prometheus, "sum(gpupool_out_of_memory_total)") == 0,
                      f"a request failed:\n{demo.output()}")
    moved = value(prometheus, "gpupool_pages_recycled_total")
    processes.require(moved >= trace.LARGE_BYTES // (4 << 20), f"{moved} pages moved")
    processes.require(value(prometheus, "gpupool_recycle_seconds_total") > 0, "it took no time")
    processes.require(value(prometheus, "gpupool_driver_wait_seconds_total") > 0, "nobody waited")
    processes.require(prometheus.query('gpupool_pool_info{recycling="eager", alias_reuse="wait"}'),
                      "the settings in force are not to be seen")
    code = demo.stop()
    processes.require(code == 0, f"demo: exit code {code}\n{demo.output()}")
    processes.require(" 0 allocations failed" in demo.output(), demo.output())
    return moved


def check(source, program, folder):
    port = processes.free_port()
    (folder / "config.yaml").write_text(CONFIG)
    recorded = folder / "fragmenting.trace"
    recorded.write_text("".join(trace.lines()))
    prometheus_server.render(source, folder, f"127.0.0.1:{port}", SHORT_TIMES)
    command = [program, "demo", "--port", port, "--for", 90, "--speed", SPEED, "--config",
               folder / "config.yaml", "--trace", recorded]
    with prometheus_server.running(folder) as prometheus:
        with processes.running("demo", command, folder) as demo:
            prometheus.wait_for("target", 15, prometheus.is_target_up)
            raw = follow(prometheus, demo)
            processes.require(raw > 0.9, f"the memory was not full of holes: {raw}")
            print(f"holes in {raw:.0%}, {check_end(prometheus, demo):.0f} pages moved, no alert")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-recycling-")
