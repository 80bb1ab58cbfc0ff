#!/usr/bin/env python3
"""The program gpupool_gpu_peers on a machine without a device, and with command lines that are wrong.

Usage: gpu_peers_program_test.py PROGRAM
"""
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def run(*arguments):
    # No device is visible, whatever the machine has.
    return subprocess.run([PROGRAM, *arguments], check=False, text=True, timeout=60,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Program(unittest.TestCase):
    def test_without_a_device_it_says_in_one_line_that_nothing_was_run(self):
        done = run("--rounds", "10")
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertRegex(done.stdout,
                         r"^gpupool_gpu_peers: nothing was run: there is no CUDA device \(.+\)\n$")

    def test_a_wrong_line_is_refused(self):
        for line in (("--steps", "everything"), ("--modes", "vmm"), ("--rounds", "0"),
                     ("--devices", "0"), ("--seconds", "x"), ("1",)):
            self.assertEqual(run(*line).returncode, 2, line)
        self.assertEqual(run("--help").returncode, 0)

    def test_a_child_that_is_told_nonsense_ends_and_says_so(self):
        done = run("--child", "0 0 8388608 1 00")
        self.assertEqual(done.returncode, 4)
        self.assertIn("a wrong --child", done.stderr)


if __name__ == "__main__":
    unittest.main()
