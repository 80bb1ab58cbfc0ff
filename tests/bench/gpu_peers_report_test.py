#!/usr/bin/env python3
"""What gpu_peers_report.py writes into a document, and what it does not.

usage: gpu_peers_report_test.py BENCH_FOLDER
"""
import json
import pathlib
import sys
import tempfile
import unittest

BENCH = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(BENCH))
import gpu_peers_report  # noqa: E402


def step(name, mode):
    return {"step": name, "mode": mode, "rounds": 1000, "wanted_rounds": 1000, "calls": 1, "others": 1,
            "pages_moved": [1, 1], "faults": 0}


def timing():
    return {"operation": "all-reduce", "mode": "eager", "is_registered": False, "bytes": 1 << 20,
            "pool_us": 1.0, "plain_us": 1.0, "ratio": 1.0, "plain_spread": 0.01}


class WriteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.document = self.folder / "DOCUMENT.md"
        self.text = ("<!-- begin: written by bench/gpu_peers_report.py, not by hand -->\n"
                     "<!-- end: written by bench/gpu_peers_report.py -->\n")
        self.document.write_text(self.text)
        self.parts = {
            "devices": {"machine": {"device 0": "a", "device 1": "b"}, "fault_count": 0,
                        "steps": [step(*which) for which in sorted(gpu_peers_report.STEPS)]},
            "collectives": {"machine": {}, "steps": [], "fault_count": 0},
            "times": {"machine": {}, "steps": [], "fault_count": 0,
                      "timings": [timing() for _ in range(gpu_peers_report.TIMINGS)]}}

    def write(self):
        for name, part in self.parts.items():
            (self.folder / f"{name}.json").write_text(json.dumps(part))
        gpu_peers_report.main(["write", str(self.folder), str(self.document)])

    def test_a_whole_run_is_written(self):
        self.write()
        self.assertIn("| copies | cudamalloc | 1000 of 1000 |", self.document.read_text())

    def refused(self, text):
        with self.assertRaisesRegex(SystemExit, text):
            self.write()
        self.assertEqual(self.document.read_text(), self.text)

    def test_one_device(self):
        del self.parts["devices"]["machine"]["device 1"]
        self.refused("not the results of two devices")

    def test_a_step_that_was_left_out(self):
        self.parts["devices"]["steps"].pop()
        self.refused("1 steps were not run")

    def test_a_timing_that_was_left_out(self):
        self.parts["times"]["timings"].pop()
        self.refused("35 of 36 timings")

    def test_a_fault_of_no_step(self):
        self.parts["collectives"]["fault_count"] = 1
        self.refused("not all passed")

    def test_a_step_that_failed(self):
        self.parts["devices"]["steps"][0]["faults"] = 1
        self.refused("not all passed")

    def test_fewer_rounds(self):
        for one in self.parts["devices"]["steps"]:
            one["rounds"] = one["wanted_rounds"] = 10
        self.refused("fewer than 1000 rounds")

    def test_slower_than_is_promised(self):
        self.parts["times"]["timings"][7]["ratio"] = 1.04
        self.refused("more than 1.03")


if __name__ == "__main__":
    unittest.main()
