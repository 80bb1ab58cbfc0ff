#!/usr/bin/env python3
"""Eight ranks of a job on one host, each with an exporter of its own, found by the distribution's
Prometheus through the files that they write, and told apart by their labels: two at first, six that
join, one that is killed and named by the alert (case E8), one that ends cleanly and is gone, one that
comes back. The same list by HTTP from `gpupool sd`. At last all are killed: one alert for the job.

    ranks_test.py SOURCE_DIRECTORY GPUPOOL_PROGRAM
"""
import contextlib
import json
import pathlib
import socket
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processes  # noqa: E402
import prometheus_server  # noqa: E402

RANKS = 8
JOB = "e2e-run"
KILLED, ENDED = 5, 3
# Single scrapes of a busy machine may take longer than their second.
SHORT_TIMES = ["alerts.GpupoolTargetDown.for=2s", "alerts.GpupoolTargetDown.keep_firing_for=1s",
               "alerts.GpupoolTargetDown.settle=12s", "alerts.GpupoolJobDown.for=2s"]
WAIT = 20.0  # seconds; most of what is waited for takes one scrape


def free_ports(count):
    """The first of `count` ports in a row that nobody listens on now."""
    for base in range(20000, 32000, count):
        with contextlib.ExitStack() as sockets:
            try:
                for port in range(base, base + count):
                    sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise processes.TestFailure(f"no {count} free ports in a row")


class Job:
    """The ranks, as torchrun starts them."""

    def __init__(self, program, folder, stack):
        self._program, self._folder, self._stack = program, folder, stack
        self.base = free_ports(RANKS)
        self.targets = folder / "targets" / JOB
        self.ranks = {}
        (folder / "gpupool.yaml").write_text(
            f"exporter:\n  port: {self.base}\n  discovery:\n"
            f"    directory: {folder}/targets/{{job_id}}\n")

    def start(self, rank):
        environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
                       "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": JOB}
        command = [self._program, "demo", "--config", self._folder / "gpupool.yaml", "--speed",
                   "0.2", "--for", 90]
        self.ranks[rank] = self._stack.enter_context(
            processes.running(f"rank{rank}", command, self._folder, environment))

    def files(self):
        """The entries: pid to what it says."""
        found = {}
        for path in self.targets.glob("*.json"):
            group = json.loads(path.read_text())[0]
            found[int(path.stem.rsplit("-", 1)[1])] = group
        return found


def up(prometheus, job="gpupool"):
    """rank to 1 or 0."""
    return {int(labels["rank"]): value
            for labels, value in prometheus.query(f'up{{job="{job}"}}')}


def wait_up(prometheus, ranks, what, job="gpupool"):
    prometheus.wait_for(what, WAIT, lambda: up(prometheus, job) == dict(ranks))


def check_labels(prometheus, job, ranks):
    """Each rank is its own process, by what Prometheus knows of its target and by what it exports."""
    for labels, _ in prometheus.query('up{job="gpupool"}'):
        expected = {"job_id": JOB, "world_size": str(RANKS), "local_rank": labels["rank"],
                    "host": socket.gethostname(), "group_rank": "0",
                    "instance": f"127.0.0.1:{job.base + int(labels['rank'])}"}
        wrong = {key: labels.get(key) for key in expected if labels.get(key) != expected[key]}
        processes.require(not wrong, f"labels {wrong}, not {expected}")
        processes.require(not [key for key in labels if "start" in key], f"{labels}")
    info = {int(labels["rank"]): labels
            for labels, _ in prometheus.query('gpupool_process_info{job="gpupool"}')}
    processes.require(sorted(info) == sorted(ranks), f"process_info of {sorted(info)}")
    for rank in ranks:
        processes.require(info[rank]["pid"] == str(job.ranks[rank].pid),
                          f"rank {rank} is process {job.ranks[rank].pid}: {info[rank]}")
        processes.require("exported_rank" not in info[rank], f"{info[rank]}")
    requests = prometheus.query(
        'sum by (rank) (gpupool_allocation_requests_total{job="gpupool"}) > 0')
    processes.require(len(requests) == len(ranks), f"requests by rank: {requests}")


def firing(prometheus, alert):
    """Labels of each alert of that name that fires, of the targets found by files."""
    return [labels for labels, _ in prometheus.query(
        f'ALERTS{{alertname="{alert}", alertstate="firing", job="gpupool"}}')]


def check_all_killed(job, prometheus):
    """One alert, which names the job."""
    for rank in job.ranks.values():
        rank.kill()
    alerts = prometheus.wait_for("alert for the job", WAIT,
                                 lambda: firing(prometheus, "GpupoolJobDown"))
    processes.require(len(alerts) == 1 and alerts[0]["job_id"] == JOB, f"{alerts}")
    prometheus.wait_for("no alert for a rank", WAIT,
                        lambda: not firing(prometheus, "GpupoolTargetDown"))


def served(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        processes.require(answer.status == 200, f"{url}: {answer.status}")
        processes.require(answer.headers["Content-Type"] == "application/json",
                          f"{url}: {answer.headers['Content-Type']}")
        return json.loads(answer.read())


def served_ranks(url):
    return sorted(int(group["labels"]["rank"]) for group in served(url))


def check_killed(program, job, prometheus, url):
    """Its target is down and says whose it is; the others and the list go on."""
    job.ranks[KILLED].kill()
    wait_up(prometheus, {rank: float(rank != KILLED) for rank in range(RANKS)}, "rank down")
    down = prometheus.query('up{job="gpupool"} == 0')
    labels = down[0][0]
    processes.require(len(down) == 1 and labels["rank"] == str(KILLED) and
                      labels["job_id"] == JOB and labels["host"] == socket.gethostname(),
                      f"what is down: {down}")
    alerts = prometheus.wait_for("alert for the rank", WAIT,
                                 lambda: firing(prometheus, "GpupoolTargetDown"))
    processes.require([labels["rank"] for labels in alerts] == [str(KILLED)] and
                      alerts[0]["job_id"] == JOB, f"{alerts}")
    processes.require(served_ranks(url) == list(range(RANKS)), "sd hides what was killed")
    kept = processes.run([program, "sd", job.targets, "--once", "--keep", "1h"], 10)
    processes.require(len(json.loads(kept)) == RANKS, kept)
    processes.require(job.ranks[KILLED].pid in job.files(), "its file is gone")


def check_ended(job, prometheus, url):
    """Its file is gone at once, and so is its target: nothing is down that is not missed."""
    code = job.ranks[ENDED].stop()
    processes.require(code == 0, f"exit code {code}\n{job.ranks[ENDED].output()}")
    processes.require(job.ranks[ENDED].pid not in job.files(), "its file is still there")
    wait_up(prometheus, {rank: float(rank != KILLED) for rank in range(RANKS) if rank != ENDED},
            "target gone")
    processes.require(ENDED not in served_ranks(url), "sd still has it")


def check_return(job, prometheus, url):
    """The new one removes what the killed one left."""
    old = job.ranks[KILLED].pid
    job.start(KILLED)
    wait_up(prometheus, {rank: 1.0 for rank in range(RANKS) if rank != ENDED}, "rank back")
    # It may be scraped, under the target that the old one left, just before it gets there.
    prometheus.wait_for("its file instead of the old one's", WAIT, lambda: old not in job.files()
                        and job.ranks[KILLED].pid in job.files())
    processes.require(len(served(url)) == RANKS - 1, f"sd has {served(url)}")


def check(source, program, folder):
    (folder / "targets" / JOB).mkdir(parents=True)
    url = f"http://127.0.0.1:{processes.free_port()}/sd"
    sd = [program, "sd", folder / "targets", "--listen", url.split("/")[2]]
    with contextlib.ExitStack() as stack:
        lister = stack.enter_context(processes.running("sd", sd, folder))
        processes.wait_for("list", 5, lambda: served(url) == [], lister)
        job = Job(program, folder, stack)
        prometheus_server.render_discovery(source, folder, job.targets / "*.json", url,
                                           SHORT_TIMES)
        for rank in (0, 1):
            job.start(rank)
        prometheus = stack.enter_context(prometheus_server.running(folder))
        wait_up(prometheus, {0: 1.0, 1: 1.0}, "two ranks")
        check_labels(prometheus, job, [0, 1])
        for rank in range(2, RANKS):
            job.start(rank)
        wait_up(prometheus, {rank: 1.0 for rank in range(RANKS)}, "eight ranks")
        wait_up(prometheus, {rank: 1.0 for rank in range(RANKS)}, "eight ranks by http_sd",
                "gpupool-http")
        check_labels(prometheus, job, range(RANKS))
        check_killed(program, job, prometheus, url)
        check_ended(job, prometheus, url)
        check_return(job, prometheus, url)
        prometheus.wait_for("end of the rank's alert", WAIT,
                            lambda: not firing(prometheus, "GpupoolTargetDown"))
        # Half of them in good order, the others not.
        for rank in range(RANKS // 2):
            job.ranks[rank].ask_to_stop()
        for rank in range(RANKS // 2):
            code = job.ranks[rank].wait(10)
            processes.require(code == 0, f"rank {rank}: exit code {code}\n{job.ranks[rank].output()}")
        left = {job.ranks[rank].pid for rank in range(RANKS // 2, RANKS)}
        processes.require(set(job.files()) == left, f"{set(job.files())}, not {left}")
        check_all_killed(job, prometheus)
        processes.require(lister.stop() == 0, lister.output())
        print(f"{RANKS} ranks found, {KILLED} named when killed, {ENDED} gone when ended")


if __name__ == "__main__":
    processes.run_check(check, "gpupool-ranks-")
