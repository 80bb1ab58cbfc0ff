#!/usr/bin/env python3
"""The program gpupool_gpu_replay as scripts/gpu runs it, on the simulated device.

Usage: gpu_replay_program_test.py PROGRAM TRACE
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


def measure(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "results.json"
        done = run("--device", "sim", "--json", str(path), *arguments)
        return done, json.loads(path.read_text())


class Program(unittest.TestCase):
    def test_a_trace_is_measured_beside_the_model(self):
        done, results = measure("--sim-memory", "address", "--settings", "off", TRACE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(results["device"]["is_simulated"])
        run_figures, = results["runs"]
        self.assertEqual((run_figures["setting"], run_figures["idle"]), ("off", None))
        for mode in ("modelled", "busy"):
            cold, warm = run_figures[mode]["passes"]
            self.assertEqual(cold["operations"], 33929)
            self.assertEqual(cold["peak_requested_bytes"], 1249902592)
            self.assertGreater(cold["driver"]["create"]["ns"], 0)
            self.assertEqual(warm["wrong_words"], 0)
        self.assertIn("fsdp_streams-s1, off\n    modelled: held/requested 1.", done.stdout)
        self.assertEqual(results["left_out"] + results["faults"], [])

    def test_completions_are_honoured_where_a_trace_records_them(self):
        _, results = measure("--modes", "modelled", "--passes", "1",
                             "--settings", "off,eager-wait-completions", TRACE)
        self.assertEqual([s["name"] for s in results["settings"]],
                         ["off", "eager-wait-completions"])
        self.assertEqual([r["setting"] for r in results["runs"]],
                         ["off", "eager-wait-completions"])

    def test_what_the_time_does_not_suffice_for_is_named(self):
        done, results = measure("--settings", "off", "--time-limit", "1e-9", TRACE)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(results["left_out"],
                         [{"what": "fsdp_streams-s1, off", "why": "the time was over"}])

    def test_a_wrong_line_is_refused(self):
        self.assertNotEqual(run("--settings", "everything", TRACE).returncode, 0)
        self.assertNotEqual(run("--passes", "0", TRACE).returncode, 0)
        done = run("--device", "sim", TRACE + ".missing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("No such file", done.stderr)


if __name__ == "__main__":
    unittest.main()
