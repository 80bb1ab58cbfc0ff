#!/usr/bin/env python3
"""The Alertmanager example in the distribution's own Alertmanager: amtool accepts it, each severity goes
where it should, and an alert about a whole job keeps those about its ranks from being sent.

    alertmanager_test.py SOURCE_DIRECTORY -
"""
import json
import pathlib
import re
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
from rule_set import RuleSet  # noqa: E402

RECEIVERS = {"critical": "on-call", "warning": "team", "info": "nobody"}
POOL = {"job": "gpupool", "device": "0", "pool": "default", "rank": "3"}
# (alerts that fire, those of them that are sent), all with the labels of one pool.
TOGETHER = [
    (["GpupoolJobDown", "GpupoolTargetsMissing", "GpupoolNearCapacity", "GpupoolOutOfMemory"],
     ["GpupoolJobDown", "GpupoolOutOfMemory"]),
    (["GpupoolFragmentationHigh", "GpupoolFragmentationCritical", "GpupoolRetries"],
     ["GpupoolFragmentationCritical", "GpupoolRetries"]),
    (["GpupoolFragmentationCritical", "GpupoolLargestBlockBelowRequired"],
     ["GpupoolLargestBlockBelowRequired"]),
    (["GpupoolMemoryLeakSuspected", "GpupoolExhaustionPredicted"], ["GpupoolExhaustionPredicted"]),
    (["GpupoolNearCapacity", "GpupoolPeakNoLongerFits"], ["GpupoolPeakNoLongerFits"]),
]


def check_routes(config, rule_set):
    for name in rule_set.names:
        severity = rule_set.values["alerts"][name]["severity"]
        said = processes.run(["amtool", "config", "routes", "test", f"--config.file={config}",
                              f"alertname={name}", f"severity={severity}"], 20)
        processes.require(said.split()[-1] == RECEIVERS[severity],
                          f"{name}, {severity}, goes to {said}")


def post(url, alerts):
    request = urllib.request.Request(f"{url}/api/v2/alerts", json.dumps(alerts).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        processes.require(answer.status == 200, f"HTTP {answer.status}")


def check_inhibition(url, severities, process):
    """One job for each set of alerts, so that they do not meet."""
    for number, (firing, _) in enumerate(TOGETHER):
        post(url, [{"labels": {**POOL, "job_id": str(number), "instance": f"host:{number}",
                               "alertname": name, "severity": severities[name]}} for name in firing])
    # Another job's ranks are not concerned.
    post(url, [{"labels": {**POOL, "job_id": "other", "instance": "host:other",
                           "alertname": "GpupoolNearCapacity", "severity": "warning"}}])
    count = 1 + sum(len(firing) for firing, _ in TOGETHER)
    seen = processes.wait_for("alerts", 15, lambda: (lambda alerts: alerts if len(alerts) == count
                              and all(a["status"]["state"] != "unprocessed" for a in alerts)
                              else None)(json.loads(processes.get(f"{url}/api/v2/alerts"))), process)
    sent = {(alert["labels"]["job_id"], alert["labels"]["alertname"]) for alert in seen
            if not alert["status"]["inhibitedBy"]}
    expected = {(str(number), name) for number, (_, names) in enumerate(TOGETHER) for name in names}
    expected.add(("other", "GpupoolNearCapacity"))
    processes.require(sent == expected, f"sent and not expected {sent - expected}, "
                                        f"expected and not sent {expected - sent}")


def check(source, _, folder):
    config = source / "configs/alertmanager/alertmanager.yml"
    processes.run(["amtool", "check-config", config], 20)
    rule_set = RuleSet(source)
    check_routes(config, rule_set)
    for name in re.findall(r"Gpupool\w+", config.read_text()):
        processes.require(any(alert.startswith(name) for alert in rule_set.names),
                          f"there is no alert {name}")
    # Nobody listens where the shipped one would send to.
    (folder / "alertmanager.yml").write_text(config.read_text().replace(
        "localhost:9095", f"127.0.0.1:{processes.free_port()}"))
    address = f"127.0.0.1:{processes.free_port()}"
    command = ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
               f"--storage.path={folder}/data", f"--web.listen-address={address}",
               "--cluster.listen-address=", "--log.level=error"]
    url = f"http://{address}"
    with processes.serving("alertmanager", command, folder, f"{url}/-/ready") as process:
        severities = {name: rule_set.values["alerts"][name]["severity"] for name in rule_set.names}
        check_inhibition(url, severities, process)
    print(f"{len(rule_set.names)} alerts go where they should, {len(TOGETHER)} inhibitions hold")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-alertmanager-")
