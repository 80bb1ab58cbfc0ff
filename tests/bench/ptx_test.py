#!/usr/bin/env python3
"""The kernels of the GPU tests assemble, for the oldest card of each module and for a newer one.

Usage: ptx_test.py PROGRAM PTXAS
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PTXAS = sys.argv.pop(1), sys.argv.pop(1)


class Kernels(unittest.TestCase):
    def test_they_assemble(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "--write-ptx", folder], check=True, timeout=60)
            for name, card in (("general", "sm_80"), ("general", "sm_90"), ("dependent", "sm_90")):
                path = pathlib.Path(folder) / f"{name}.ptx"
                done = subprocess.run([PTXAS, f"-arch={card}", str(path), "-o", "/dev/null"],
                                      check=False, text=True, timeout=60,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, f"{name}, {card}: {done.stdout}")


if __name__ == "__main__":
    unittest.main()
