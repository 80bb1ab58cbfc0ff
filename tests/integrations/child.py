"""Runs Python code in a process of its own with the plug-in and the package, since what the plug-in is
told in a process holds until its end."""

import argparse
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent

arguments = None

# What PyTorch would call, through ctypes.
PRELUDE = """
import ctypes, json, os, sys, threading
import gpupool.torch as pool
library = pool._library.load()
def function(name, result, *types):
    found = getattr(library._library, name)
    found.restype, found.argtypes = result, types
    return found
alloc = function("gpupool_torch_alloc_or_null", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                 ctypes.c_void_p)
free = function("gpupool_torch_free", None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                ctypes.c_void_p)
MIB = 1 << 20
def fails(call, *texts, kind=pool.GpupoolError):
    try:
        call()
    except kind as error:
        for text in texts:
            assert text in str(error), (text, str(error))
        return
    raise AssertionError("nothing was raised")
"""


def run(code, folder, prelude=PRELUDE, with_fake_torch=False, **environment):
    """What it wrote on standard output, and on standard error; its failure is the test's."""
    path = [arguments.package] + ([str(HERE / "fake_torch")] if with_fake_torch else [])
    full = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")}
    full.update(PYTHONPATH=os.pathsep.join(path), GPUPOOL_TORCH_LIBRARY=arguments.library,
                GPUPOOL_DEVICE="simulated")
    full.update(environment)
    done = subprocess.run([sys.executable, "-B", "-c", prelude + textwrap.dedent(code)], env=full,
                          cwd=folder, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"the child ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--gpupool", help="the gpupool program")
    arguments, rest = parser.parse_known_args()
    sys.path.insert(0, arguments.package)
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1] + rest)
