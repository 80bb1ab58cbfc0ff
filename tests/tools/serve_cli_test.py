"""Runs `gpupool replay --serve` and `gpupool snapshot` as a user does: what is served, to whom, how it
ends, bad input and bad files.

usage: serve_cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands that this build has)
"""
import gzip
import json
import signal
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from cli_test import FSDP, PROGRAM, Case, run

TRACE = "".join(f"a {i} 4194304 0 1000\n" for i in range(8)) + "f 3 1000\nf 5 1000\n"


class Serving:
    def __init__(self, case, *arguments):
        self.process = subprocess.Popen([PROGRAM, *map(str, arguments), "--bind", "127.0.0.1:0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.stderr.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        first = self.process.stdout.readline()
        assert first.startswith("page:   http://127.0.0.1:"), first + self.process.stderr.read()
        self.url = first.removeprefix("page:").strip()
        self.about = self.process.stdout.readline()

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, path):
        status, body = self.get(path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def stop(self, number):
        self.process.send_signal(number)
        return self.process.wait(10)


class Served(Case):
    def check_server(self, serving):
        """What is so of every server of a recording."""
        status, page = serving.get("")
        self.assertEqual(status, 200)
        self.assertIn(b"<title>gpupool", page)
        self.assertEqual(serving.get("-/healthy"), (200, b"healthy\n"))
        for path in ("metrics", "api/v1", "api/v1/stats/", "../etc/passwd", "api/v1/reset"):
            self.assertEqual(serving.get(path)[0], 404, path)
        self.assertEqual(serving.get("api/v1/stats", Host="example.org")[0], 403)
        self.assertEqual(serving.get("api/v1/stats?pool=other")[0], 404)
        self.assertEqual(serving.get("api/v1/stats?at=1&at=1")[0], 400)
        self.assertEqual(serving.get("api/v1/stats?since=1")[0], 400)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(serving.url + "api/v1/stats", data=b"x", timeout=5)
        with refused.exception:
            self.assertEqual(refused.exception.code, 405)

    def test_a_replay_is_served_at_each_place(self):
        serving = Serving(self, "replay", self.write("small.trace", TRACE), "--serve")
        self.assertIn("small, 10 operations in 0.01 s, 0 failed", serving.about)
        self.check_server(serving)
        self.assertEqual(serving.json("api/v1/pools"),
                         {"pools": [{"pool": "default", "device": 0}], "recording": "replay"})
        blocks = [serving.json(f"api/v1/stats?at={at}")["stats"]["live_blocks"]
                  for at in (10, 0, 4, 8, 9, 3)]
        self.assertEqual(blocks, [6, 0, 4, 8, 7, 3])
        self.assertEqual(serving.json("api/v1/recording")["operations"], 10)
        self.assertEqual(serving.get("api/v1/stats?at=11")[0], 400)
        self.assertEqual(serving.get("api/v1/stats?at=x")[0], 400)
        self.assertEqual(serving.stop(signal.SIGTERM), 0)
        self.assertEqual(serving.process.stderr.read(), "")

    def test_the_end_of_a_replay_is_what_replay_prints(self):
        table = json.loads(run("replay", FSDP, "--device", "sim", "--passes", 1, "--json").stdout)[0]
        serving = Serving(self, "replay", FSDP, "--serve")
        stats = serving.json("api/v1/stats")["stats"]
        for key in ("hits", "misses", "fallbacks", "peak_held_bytes", "peak_requested_bytes"):
            self.assertEqual(stats[key], table[key], key)
        recording = serving.json("api/v1/recording")
        self.assertEqual(recording["operations"], table["operations"])
        self.assertEqual(recording["peak_held"]["value"], table["peak_held_bytes"])
        self.assertEqual(serving.stop(signal.SIGINT), 0)

    def test_a_snapshot_that_was_saved_is_served_and_printed(self):
        replay = Serving(self, "replay", self.write("small.trace", TRACE), "--serve",
                         "--cache-large", "0")
        status, body = replay.get("api/v1/snapshot")
        self.assertEqual(status, 200)
        path = self.write("snap.json.gz", gzip.compress(body))
        printed = run("snapshot", path)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        for text in (b"largest free block", b"live ", b"untagged", b"24.0 MiB"):
            self.assertIn(text, printed.stdout)
        serving = Serving(self, "snapshot", path, "--serve")
        self.check_server(serving)
        self.assertEqual(serving.json("api/v1/snapshot"), json.loads(body))
        recording = serving.json("api/v1/recording")
        self.assertEqual((recording["kind"], recording["name"]), ("snapshot", "snap.json.gz"))
        free = serving.json("api/v1/stats")["stats"]["largest_free_block_bytes"]
        self.assertEqual(serving.json(f"api/v1/would_fit?bytes={free}")["fit"], "now")
        self.assertEqual(serving.get("api/v1/would_fit?bytes=0")[0], 400)
        # One moment: no past, no other places.
        for path, status in (("history", 404), ("events", 404), ("stats?at=1", 400)):
            self.assertEqual(serving.get(f"api/v1/{path}")[0], status, path)
        self.assertEqual(serving.stop(signal.SIGTERM), 0)

    def test_a_port_that_is_taken(self):
        trace = self.write("small.trace", TRACE)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            bind = f"127.0.0.1:{taken.getsockname()[1]}"
            self.expect_refused(run("replay", trace, "--serve", "--bind", bind), bind, "in use")

    def test_bad_input(self):
        trace = self.write("small.trace", TRACE)
        serve = lambda *more: run("replay", trace, "--serve", *more)
        self.expect_refused(serve("--json"), "--json")
        self.expect_refused(serve("--find-capacity"), "--find-capacity")
        self.expect_refused(serve("--passes", 2), "--passes")
        self.expect_refused(serve("--device", "cuda"), "--device sim")
        self.expect_refused(serve(trace), "one trace")
        self.expect_refused(run("replay", self.folder / "none", "--serve"), "none")
        self.expect_refused(run("replay", self.write("bad", "a 0 8\n"), "--serve"), "bad:1")
        for bind in ("0.0.0.0:1", "192.0.2.1:80", "[::]:1"):
            self.expect_refused(serve("--bind", bind), "--bind", "this machine alone")
        for bind in ("80", "localhost:1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:080", ""):
            self.expect_refused(serve("--bind", bind), "--bind")
        note = run("replay", trace, "--device", "sim", "--bind", "127.0.0.1:0")
        self.assertEqual(note.returncode, 0)
        self.assertIn(b"--bind has no effect without --serve", note.stderr)

    def test_bad_files(self):
        self.expect_refused(run("snapshot"), "FILE")
        self.expect_refused(run("snapshot", self.folder / "none.json"), "none.json")
        self.expect_refused(run("snapshot", self.folder), str(self.folder))
        for name, content, reason in (
                ("empty.json", "", "is empty"), ("half.json", '{"schema":', "no JSON"),
                ("trace.json", TRACE, "no JSON"), ("list.json", "[]", "schema"),
                ("stats.json", '{"schema":"gpupool.stats","version":1}', "gpupool.stats"),
                ("next.json", '{"schema":"gpupool.snapshot","version":2}', "version is 2"),
                ("bare.json", '{"schema":"gpupool.snapshot","version":1}', "pool is missing"),
                ("torch.pickle", b"\x80\x04]", "convert_snapshot")):
            path = self.write(name, content)
            for more in ((), ("--serve", "--bind", "127.0.0.1:0")):
                result = run("snapshot", path, *more)
                self.expect_refused(result, name, reason)
                self.assertEqual(result.stderr.count(b"\n"), 1, "one line")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
