#!/usr/bin/env python3
"""The kernels of the GPU tests assemble, for the oldest card of each module and for a newer one.

Usage: ptx_test.py PROGRAM MODULE=CARD... PTXAS
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PTXAS = sys.argv.pop(1), sys.argv.pop()
MODULES = [module.split("=") for module in sys.argv[1:]]
del sys.argv[1:]


class Kernels(unittest.TestCase):
    def test_they_assemble(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "--write-ptx", folder], check=True, timeout=60)
            for name, card in MODULES:
                path = pathlib.Path(folder) / f"{name}.ptx"
                done = subprocess.run([PTXAS, f"-arch={card}", str(path), "-o", "/dev/null"],
                                      check=False, text=True, timeout=60,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, f"{name}, {card}: {done.stdout}")


if __name__ == "__main__":
    unittest.main()
