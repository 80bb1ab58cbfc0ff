"""The distribution's own VictoriaMetrics, which scrapes by a Prometheus configuration, takes what a
Prometheus sends it, and answers the same queries."""
import contextlib
import json
import pathlib
import urllib.parse

import processes


class VictoriaMetrics:
    def __init__(self, process, url):
        self._process = process
        self.url = url

    def query(self, expr):
        """The series of an instant query: (labels, value) pairs."""
        question = urllib.parse.urlencode({"query": expr})
        answer = json.loads(processes.get(f"{self.url}/api/v1/query?{question}"))
        processes.require(answer["status"] == "success", f"{expr}: {answer}")
        return [(item["metric"], float(item["value"][1])) for item in answer["data"]["result"]]

    def wait_for(self, what, seconds, ask):
        return processes.wait_for(what, seconds, ask, self._process)


@contextlib.contextmanager
def running(folder, config):
    """One that scrapes by `config`, of which it leaves out what is Prometheus' alone, with its data in
    `folder`, on loopback."""
    folder = pathlib.Path(folder)
    address = f"127.0.0.1:{processes.free_port()}"
    command = ["victoria-metrics", f"-promscrape.config={config}",
               "-promscrape.config.strictParse=false", f"-storageDataPath={folder}/victoria",
               f"-httpListenAddr={address}", "-search.latencyOffset=1s", "-loggerLevel=WARN",
               "-memory.allowedBytes=64MB"]
    url = f"http://{address}"
    with processes.serving("victoria-metrics", command, folder, f"{url}/health") as process:
        yield VictoriaMetrics(process, url)
