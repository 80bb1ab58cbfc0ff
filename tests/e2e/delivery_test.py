#!/usr/bin/env python3
"""An alert on its whole way: the memory of a real process fragments, the real Prometheus fires, the real
Alertmanager tells a webhook; recycling is switched on while the process runs, by its YAML file and a
SIGHUP, and the webhook is told that it is over. The request of which the alert had warned is served.

    delivery_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import contextlib
import http.server
import json
import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import make_fragmenting_trace as trace  # noqa: E402
import processes  # noqa: E402
import prometheus_server  # noqa: E402

ALERT = "GpupoolFragmentationHigh"
SHORT_TIMES = [f"alerts.{ALERT}.window=4s", f"alerts.{ALERT}.for=1s",
               f"alerts.{ALERT}.keep_firing_for=1s"]
# Without a reserve: memory is got in handles as it is needed, which can move later.
CONFIG = """version: 1
pool:
  capacity: {capacity}
  recycling: {recycling}
exporter:
  reload_on_sighup: true
alerts:
  fragmentation_ratio: 0.6
"""
WAIT = 25.0  # seconds


class Receiver:
    """A webhook: what it was told, in order."""

    def __init__(self, stack):
        self.messages = []
        messages = self.messages

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((self.path, json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)

    def alerts(self, status):
        return [(path, alert) for path, message in list(self.messages)
                for alert in message["alerts"]
                if alert["status"] == status and alert["labels"]["alertname"] == ALERT]


def start_alertmanager(source, folder, receiver, stack):
    """The shipped example, which waits no longer than a second."""
    config = (source / "configs/alertmanager/alertmanager.yml").read_text()
    for old, new in (("group_wait: 30s", "group_wait: 1s"), ("group_interval: 5m", "group_interval: 1s"),
                     ("localhost:9095", f"127.0.0.1:{receiver.port}")):
        config = prometheus_server.replace(config, old, new)
    (folder / "alertmanager.yml").write_text(config)
    address = f"127.0.0.1:{processes.free_port()}"
    command = ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
               f"--storage.path={folder}/alertmanager", f"--web.listen-address={address}",
               "--cluster.listen-address=", "--log.level=warn"]
    stack.enter_context(processes.serving("alertmanager", command, folder,
                                          f"http://{address}/-/ready"))
    return address


def check_message(path, alert, address):
    labels = alert["labels"]
    processes.require(path == "/gpupool" and labels["severity"] == "warning" and
                      labels["instance"] == address, f"{path}: {labels}")
    annotations = alert["annotations"]
    processes.require(annotations["runbook_url"] == f"docs/runbooks/{ALERT}.md" and
                      address in annotations["summary"] and "%" in annotations["description"],
                      f"{annotations}")


def write_config(folder, recycling):
    (folder / "config.yaml").write_text(
        CONFIG.format(capacity=trace.CAPACITY_BYTES, recycling=recycling))


def check(source, program, folder):
    address = f"127.0.0.1:{processes.free_port()}"
    write_config(folder, "off")
    (folder / "fragmenting.trace").write_text("".join(trace.lines()))
    command = [program, "demo", "--port", address.split(":")[1], "--for", 90, "--config",
               folder / "config.yaml", "--trace", folder / "fragmenting.trace"]
    with contextlib.ExitStack() as stack:
        receiver = Receiver(stack)
        alertmanager = start_alertmanager(source, folder, receiver, stack)
        prometheus_server.render(source, folder, address, SHORT_TIMES, alertmanager)
        prometheus = stack.enter_context(prometheus_server.running(folder))
        demo = stack.enter_context(processes.running("demo", command, folder))
        told = prometheus.wait_for("message", WAIT, lambda: receiver.alerts("firing"))
        check_message(*told[0], address)
        processes.require(not receiver.alerts("resolved"), "over before anything was done")
        write_config(folder, "eager")
        demo.send(signal.SIGHUP)
        prometheus.wait_for("message that it is over", WAIT, lambda: receiver.alerts("resolved"))
        # Buckets are four times as large as the one before: all requests, less those below.
        smaller = f'gpupool_allocation_size_bytes_bucket{{le=~"{trace.LARGE_BYTES // 4}|1.34217728e.08"}}'
        prometheus.wait_for("large request", WAIT, lambda: prometheus.query(
            f"(gpupool_allocation_size_bytes_count - ignoring (le) {smaller}) > 0"))
        failed = prometheus.query("sum(gpupool_out_of_memory_total)")[0][1]
        processes.require(failed == 0, f"{failed:.0f} requests failed:\n{demo.output()}")
        code = demo.stop()
        processes.require(code == 0, f"demo: exit code {code}\n{demo.output()}")
        print(f"{len(receiver.messages)} messages: firing, then resolved by recycling")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-delivery-")
