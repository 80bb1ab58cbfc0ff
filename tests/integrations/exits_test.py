#!/usr/bin/env python3
"""A process with the plug-in in it ends as it is told to: by return, exit(), an uncaught exception,
SIGTERM, and from Python. No crash, no hang; 50 times each on a card and under GPUPOOL_SOAK, else 10.

Usage: exits_test.py --program EXIT_PROGRAM --library PLUGIN --package FOLDER [--rounds N]
                     [--device cuda]
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

arguments = None
PATIENCE_SECONDS = 5

CONFIG = "exporter: {port: 0}\ntorch: {maintain_every: 1ms}\n"

# Memory is live, a recording goes on, and a thread still allocates.
PYTHON = """
import ctypes, threading
import gpupool.torch as pool
library = pool._library.load()
alloc = library._library.gpupool_torch_alloc_or_null
alloc.restype = ctypes.c_void_p
alloc.argtypes = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
free = library._library.gpupool_torch_free
free.restype = None
free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
kept = alloc(1 << 20, 0, None)
assert kept
pool.record("ending.trace.gz")
class Freed:
    def __del__(self):
        free(kept, 1 << 20, 0, None)
freed = Freed()
def work():
    while True:
        free(alloc(1 << 20, 0, None), 1 << 20, 0, None)
threading.Thread(target=work, daemon=True).start()
"""
PYTHON_ENDS = {
    "end": ("", 0),
    "sys.exit": ("import sys; sys.exit(3)", 3),
    "exception": ("raise KeyError('nobody catches this')", 1),
    "sigterm": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
}


class ExitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        config = pathlib.Path(self.folder.name) / "gpupool.yaml"
        config.write_text(CONFIG if arguments.has_exporter else "torch: {maintain_every: 1ms}\n",
                          encoding="utf-8")
        self.environment = dict(
            os.environ, GPUPOOL_DEVICE=arguments.device, GPUPOOL_CONFIG=str(config),
            GPUPOOL_TORCH_LIBRARY=arguments.library, PYTHONPATH=arguments.package)

    def check_ends(self, command, expected):
        for number in range(arguments.rounds):
            started = time.monotonic()
            done = subprocess.run(command, env=self.environment, cwd=self.folder.name, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60)
            seconds = time.monotonic() - started
            self.assertEqual(done.returncode, expected, f"round {number}: {done.stdout}")
            self.assertLess(seconds, PATIENCE_SECONDS, f"round {number}: {done.stdout}")

    def test_return(self):
        self.check_ends([arguments.program, "return"], 0)

    def test_exit(self):
        self.check_ends([arguments.program, "exit"], 0)

    def test_uncaught_exception(self):
        self.check_ends([arguments.program, "throw"], -signal.SIGABRT)

    def test_sigterm(self):
        self.check_ends([arguments.program, "sigterm"], -signal.SIGTERM)

    def check_python(self, name):
        code, expected = PYTHON_ENDS[name]
        self.check_ends([sys.executable, "-B", "-c", PYTHON + code], expected)

    def test_python_end(self):
        self.check_python("end")
        trace = pathlib.Path(self.folder.name) / "ending.trace.gz"
        self.assertTrue(trace.exists(), "the recording was not brought to its end")

    def test_python_sys_exit(self):
        self.check_python("sys.exit")

    def test_python_exception(self):
        self.check_python("exception")

    def test_python_sigterm(self):
        self.check_python("sigterm")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--device", default="simulated")
    parser.add_argument("--has-exporter", type=int, default=1)
    arguments, rest = parser.parse_known_args()
    if arguments.rounds is None:
        is_whole = arguments.device == "cuda" or os.environ.get("GPUPOOL_SOAK")
        arguments.rounds = 50 if is_whole else 10
    unittest.main(argv=sys.argv[:1] + rest)
