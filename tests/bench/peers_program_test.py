#!/usr/bin/env python3
"""The program gpupool_peers as a user runs it, on the simulated device.

Usage: peers_program_test.py PROGRAM TRACE
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, TRACE = sys.argv.pop(1), sys.argv.pop(1)


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=False, text=True, timeout=90,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Program(unittest.TestCase):
    def test_everything_that_needs_no_gpu_is_measured_and_the_rest_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.json"
            done = run("--device", "sim", "--quick", "--json", str(path), TRACE)
            results = json.loads(path.read_text())
        self.assertTrue(results["device"]["is_simulated"])
        self.assertEqual([s["system"] for s in results["systems"]],
                         ["gpupool", "gpupool, maintained in the loop", "gpupool, recycling off",
                          "gpupool, raw stream"])
        for system in results["systems"]:
            self.assertIsNone(system["error"])
            self.assertEqual([p["bytes"] for p in system["pairs"]],
                             [512, 64 << 10, 1 << 20, 16 << 20, 256 << 20])
            self.assertEqual([t["threads"] for t in system["threads"]], [1, 2, 4, 8, 16])
            self.assertEqual(system["traces"][0]["operations"], 33929)
            self.assertEqual(system["burst"]["blocks"], 100)
        self.assertGreater(results["machine"]["mutex_ns"], 0)
        self.assertIn("gpupool\n  512 B pair: ", done.stdout)
        # A build with CUDA has more to measure, which is then said to be left out.
        left_out = [left["what"] for left in results["left_out"]]
        self.assertIn(left_out, ([], ["cudamalloc_facts", "cudaMallocAsync", "cudaMalloc"]))
        self.assertEqual(done.returncode, 1 if left_out else 0)

    def test_only_what_is_asked_for(self):
        done = run("--device", "sim", "--only", "machine")
        self.assertEqual(done.returncode, 0)
        self.assertIn("machine: ", done.stdout)
        self.assertNotIn("gpupool", done.stdout)

    def test_a_wrong_line_is_refused(self):
        self.assertNotEqual(run("--only", "everything").returncode, 0)
        done = run("--device", "sim", TRACE + ".missing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("No such file", done.stderr)


if __name__ == "__main__":
    unittest.main()
