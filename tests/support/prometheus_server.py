"""The distribution's own Prometheus, scraping one target with the shipped configuration.

The configuration is that of configs/prometheus, the rules are made by configs/rules/generate.py: only
the targets and the values change, and what is not found is a failure, so that the shipped files
cannot drift away from what is tested.
"""
import contextlib
import json
import pathlib
import re
import urllib.parse

import processes


def replace(text, old, new):
    processes.require(re.search(old, text, re.M), f"not found in the shipped file: {old}")
    return re.sub(old, new, text, flags=re.M)


def render(source, folder, target, settings=(), alertmanager=None):
    """Writes prometheus.yml and the rules into `folder`, with scrapes each second.

    settings: PATH=VALUE in configs/rules/values.yaml, as `alerts.GpupoolRetries.for=2s`.
    """
    config = (source / "configs/prometheus/prometheus.yml").read_text()
    config = replace(config, r"scrape_interval: 15s", "scrape_interval: 1s")
    config = replace(config, r"scrape_timeout: 10s", "scrape_timeout: 1s")
    config = replace(config, r"evaluation_interval: 15s", "evaluation_interval: 1s")
    config = replace(config, r"(?:^ +- localhost:100\d+\n)+", f"          - {target}\n")
    write(source, folder, config, settings, alertmanager)


def write(source, folder, config, settings=(), alertmanager=None):
    """The configuration and the rules that it names; nobody is told where no Alertmanager is given."""
    if alertmanager is None:
        config = replace(config, r"^alerting:\n(^ .*\n)+", "")
    else:
        config = replace(config, r"localhost:9093", alertmanager)
    (folder / "prometheus.yml").write_text(config)
    command = [source / "configs/rules/generate.py", "--output", folder / "rules"]
    for setting in ("rules.interval=1s", *settings):
        command += ["--set", setting]
    processes.run(command, 20)
    processes.run(["promtool", "check", "config", folder / "prometheus.yml"], 20)


def render_discovery(source, folder, files, url, settings=(), alertmanager=None):
    """Writes prometheus.yml from file_sd.yml: the targets of `files`, and once more, as the job
    gpupool-http, those of `url`, by the form that the shipped file has in its comment."""
    config = (source / "configs/prometheus/file_sd.yml").read_text()
    for time in ("scrape_interval: 15s", "scrape_timeout: 10s", "evaluation_interval: 15s",
                 "refresh_interval: 30s"):
        config = replace(config, time, time.split(":")[0] + ": 1s")
    config = replace(config, r"/var/lib/gpupool/targets/\*\.json", str(files))
    config = replace(config, r"^  # ( *- job_name: gpupool)$", r"  \1-http")
    head, commented = config.split("gpupool-http\n")
    commented = replace(commented, r"^  # ", "  ")
    commented = replace(commented, r"http://127\.0\.0\.1:10063/sd", url)
    write(source, folder, head + "gpupool-http\n" + commented, settings, alertmanager)


class Prometheus:
    def __init__(self, process, url):
        self._process = process
        self._url = url

    @property
    def pid(self):
        return self._process.pid

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        answer = json.loads(processes.get(f"{self._url}/api/v1/{path}?{query}"))
        processes.require(answer["status"] == "success", f"{path}: {answer}")
        return answer["data"]

    def query(self, expr):
        """The series of an instant query: (labels, value) pairs."""
        return [(item["metric"], float(item["value"][1]))
                for item in self.ask("query", query=expr)["result"]]

    def alert_state(self, name):
        """inactive, pending or firing."""
        for group in self.ask("rules", type="alert")["groups"]:
            for rule in group["rules"]:
                if rule["name"] == name:
                    processes.require(rule["health"] in ("ok", "unknown"),
                                      f"{name}: {rule.get('lastError')}")
                    return rule["state"]
        raise processes.TestFailure(f"no such alert: {name}")

    def is_target_up(self):
        targets = self.ask("targets")["activeTargets"]
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def wait_for(self, what, seconds, ask):
        return processes.wait_for(what, seconds, ask, self._process)


@contextlib.contextmanager
def running(folder):
    """A Prometheus with the configuration in `folder`, its data there, too, on loopback."""
    folder = pathlib.Path(folder)
    address = f"127.0.0.1:{processes.free_port()}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml",
               f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={address}",
               "--log.level=warn"]
    url = f"http://{address}"
    with processes.serving("prometheus", command, folder, f"{url}/-/ready") as process:
        yield Prometheus(process, url)
