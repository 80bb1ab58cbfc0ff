"""Runs `gpupool sd` as a user does: what it lists, serves and removes, bad input.

usage: sd_cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands that this build has)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from cli_test import PROGRAM, Case, run

STALE = '[{"targets":["h:1"],"labels":{"rank":"0","__meta_gpupool_process_start":"boot/1"}}]'


def own_name():
    """The name that an entry of this process would have; it is one of another process by its start."""
    space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    suffix = "" if space == "4026531836" else f"-{space}"
    return f"{os.uname().nodename}-{os.getpid()}{suffix}.json"


def group(target, **labels):
    return json.dumps([{"targets": [target], "labels": labels}])


class Serving:
    def __init__(self, case, *arguments):
        self.process = subprocess.Popen([PROGRAM, "sd", *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.stderr.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        self.url = self.process.stdout.readline().strip().removeprefix("targets: ")

    def get(self, url=None, **headers):
        request = urllib.request.Request(url or self.url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()


class Sd(Case):
    def once(self, *arguments):
        result = run("sd", self.folder, "--once", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout), result.stderr.decode()

    def test_an_empty_directory_is_an_empty_list(self):
        self.assertEqual(run("sd", self.folder, "--once").stdout, b"[]\n")
        serving = Serving(self, self.folder, "--listen", "127.0.0.1:0")
        self.assertEqual(serving.get(), (200, "application/json", "[]\n"))

    def test_lists_what_lies_in_it_and_in_the_directories_of_jobs(self):
        self.write("b.json", group("h:2", rank="1"))
        self.write("a.json", group("h:1", rank="0"))
        (self.folder / "job").mkdir()
        self.write("job/c.json", group("h:3", rank="0", job_id="job"))
        self.write("a.json.bak", group("h:4"))
        self.write(".d.json", group("h:5"))
        (self.folder / "job" / "below").mkdir()
        self.write("job/below/e.json", group("h:6"))
        found, error = self.once()
        self.assertEqual([entry["targets"] for entry in found], [["h:1"], ["h:2"], ["h:3"]])
        self.assertEqual(found[2]["labels"], {"rank": "0", "job_id": "job"})
        self.assertEqual(error, "")

    def test_what_is_no_list_of_targets_is_left_out_and_named(self):
        self.write("good.json", group("h:1"))
        wrong = ['', '{', '{}', '[1]', '[{"targets":"h:1"}]', '[{"targets":[1]}]',
                 '[{"labels":{}}]', '[{"targets":[],"labels":{"rank":0}}]', '\xff[', "x" * 70000]
        for number, text in enumerate(wrong):
            self.write(f"wrong{number}.json", text)
        os.mkfifo(self.folder / "pipe.json")
        found, error = self.once()
        self.assertEqual(found, [{"targets": ["h:1"], "labels": {}}])
        for number in range(len(wrong) - 1):  # the last is too large to be looked at
            self.assertIn(f"wrong{number}.json: no list of targets", error)

    def test_once_removes_what_killed_processes_left(self):
        path = self.write(own_name(), STALE)
        self.assertEqual(len(self.once("--keep", "1h")[0]), 1)
        self.assertTrue(path.exists())
        self.assertEqual(self.once()[0], [])
        self.assertFalse(path.exists())

    def test_serving_it_shows_them_for_a_while(self):
        path = self.write(own_name(), STALE)
        serving = Serving(self, self.folder, "--listen", "127.0.0.1:0")
        for _ in range(2):
            self.assertEqual(len(json.loads(serving.get()[2])), 1)
        self.assertTrue(path.exists())
        at_once = Serving(self, self.folder, "--listen", "127.0.0.1:0", "--keep", "0")
        self.assertEqual(at_once.get()[2], "[]\n")
        self.assertFalse(path.exists())
        self.assertEqual(serving.get()[2], "[]\n")

    def test_serves_only_reads_of_its_path_to_this_machine(self):
        serving = Serving(self, self.folder, "--listen", "127.0.0.1:0")
        base = serving.url.removesuffix("/sd")
        self.assertEqual(serving.get(f"{base}/-/healthy")[0], 200)
        for path in ("/", "/sd/", "/sd/../sd", "/etc/passwd"):
            self.assertEqual(serving.get(base + path)[0], 404, path)
        self.assertEqual(serving.get(Host="example.org")[0], 403)
        self.assertEqual(serving.get(Host="localhost:1")[0], 200)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(serving.url, data=b"x", timeout=5)
        with refused.exception:
            self.assertEqual(refused.exception.code, 405)
        # A directory that goes away is an error, upon which Prometheus keeps what it has.
        self.folder.rename(f"{self.folder}-moved")
        self.assertEqual(serving.get()[0], 500)
        pathlib.Path(f"{self.folder}-moved").rename(self.folder)
        self.assertEqual(serving.get()[2], "[]\n")
        serving.process.send_signal(signal.SIGTERM)
        self.assertEqual(serving.process.wait(10), 0)

    def test_bad_input(self):
        self.expect_refused(run("sd"), "DIRECTORY")
        self.expect_refused(run("sd", self.folder / "missing"), "missing")
        self.expect_refused(run("sd", self.folder / "missing", "--once"), "missing")
        self.expect_refused(run("sd", self.folder, "--once", "--keep", "1"), "--keep")
        for listen in ("10063", "127.0.0.1", "localhost:1", "::1:80", "[127.0.0.1]:80",
                       "127.0.0.1:65536", "127.0.0.1:080", "127.0.0.1:-1", "[::1]", "x[::1]:1",
                       "127.0.0.1:", ""):
            self.expect_refused(run("sd", self.folder, "--listen", listen), "--listen")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
