#!/usr/bin/env python3
"""The whole story: recorded operations run through the demo make memory fragment, the alert goes
from pending to firing in a real Prometheus, and later the request that it warned of fails. Pages do
not move here; recycling_test.py has the same operations where they do.

    fragmentation_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import make_fragmenting_trace as trace  # noqa: E402
import processes  # noqa: E402
import prometheus_server  # noqa: E402

# The shipped rules with short times: the trace lasts seconds, not hours.
SHORT_TIMES = ["alerts.GpupoolFragmentationHigh.window=4s",
               "alerts.GpupoolFragmentationHigh.for=3s",
               "alerts.GpupoolFragmentationHigh.keep_firing_for=2s",
               "alerts.GpupoolLargestBlockBelowRequired.for=2s",
               "alerts.GpupoolLargestBlockBelowRequired.trough=4s"]
CONFIG = f"""version: 1
pool:
  capacity: {trace.CAPACITY_BYTES}
  # In large handles, none of which is ever empty: else they would go back before a request fails.
  reserve: {trace.CAPACITY_BYTES}
  recycling: off
alerts:
  fragmentation_ratio: 0.6
  required_block_bytes: {trace.LARGE_BYTES}
"""
FAILED = 'gpupool_out_of_memory_total{cause="fragmented"}'


def value(prometheus, expr):
    result = prometheus.query(expr)
    processes.require(len(result) == 1, f"{expr}: {result}")
    return result[0][1]


def follow(prometheus, demo):
    """The states of the fragmentation alert in the order in which they were seen, until the
    request has failed; and when it fired and when the request failed."""
    states, fired_at, failed_at = [], None, None
    deadline = time.monotonic() + 40
    while failed_at is None and time.monotonic() < deadline:
        processes.require(not demo.ended(), f"the demo ended:\n{demo.output()}")
        state = prometheus.alert_state("GpupoolFragmentationHigh")
        if not states or states[-1] != state:
            states.append(state)
        if state == "firing" and fired_at is None:
            fired_at = time.monotonic()
            # It warns: nothing has failed yet, and there is enough memory for the request.
            processes.require(value(prometheus, FAILED) == 0, "the request has failed before")
            processes.require(value(prometheus, "gpupool_free_bytes") > trace.LARGE_BYTES,
                              "the memory is used up, not fragmented")
        if value(prometheus, FAILED) > 0:
            failed_at = time.monotonic()
        time.sleep(0.2)
    return states, fired_at, failed_at


def check_end(prometheus, demo):
    """What is to be seen after the failure."""
    prometheus.wait_for("alert GpupoolOutOfMemory", 10, lambda: (
        prometheus.alert_state("GpupoolOutOfMemory") == "firing"))
    processes.require(prometheus.query(
        'ALERTS{alertname="GpupoolLargestBlockBelowRequired", alertstate="firing"}'),
        "no alert for the required block")
    asked = (f"{trace.LARGE_BYTES >> 20}.00 MiB requested, at most {trace.LARGE_BYTES >> 21}.00 MiB "
             "would have worked; reason fragmented")
    processes.require(asked in demo.output(), f"no report of the failure:\n{demo.output()}")
    code = demo.stop()
    processes.require(code == 0, f"demo: exit code {code}\n{demo.output()}")


def check(source, program, folder):
    port = processes.free_port()
    (folder / "config.yaml").write_text(CONFIG)
    processes.run([program, "check-config", folder / "config.yaml"], 10)
    recorded = folder / "fragmenting.trace"
    recorded.write_text("".join(trace.lines()))
    prometheus_server.render(source, folder, f"127.0.0.1:{port}", SHORT_TIMES)
    command = [program, "demo", "--port", port, "--for", 90, "--config", folder / "config.yaml",
               "--trace", recorded]
    with prometheus_server.running(folder) as prometheus:
        with processes.running("demo", command, folder) as demo:
            prometheus.wait_for("target", 15, prometheus.is_target_up)
            states, fired_at, failed_at = follow(prometheus, demo)
            processes.require(states[:3] == ["inactive", "pending", "firing"],
                              f"states of the alert: {states}\n{demo.output()}")
            processes.require(failed_at is not None, f"no request failed:\n{demo.output()}")
            processes.require(fired_at is not None and fired_at + 2 < failed_at,
                              "the alert came too late to be a warning")
            print(f"{' -> '.join(states)}; fired {failed_at - fired_at:.1f} s before the failure")
            check_end(prometheus, demo)


if __name__ == "__main__":
    processes.run_check(check, "gpupool-fragmentation-")
