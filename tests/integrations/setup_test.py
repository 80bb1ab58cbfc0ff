#!/usr/bin/env python3
"""Which plug-in setup.py puts into the package, with setuptools stood in for.

Usage: setup_test.py --setup FILE
"""

import argparse
import contextlib
import io
import os
import pathlib
import runpy
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

FILE_NAME = "libgpupool_torch.so"

arguments = None


def modules():
    """What setup.py imports; setup() keeps what it is given."""
    kept = {}
    package = types.ModuleType("setuptools")
    package.Distribution = object
    package.setup = lambda **given: kept.update(given)
    command = types.ModuleType("setuptools.command.build_py")
    command.build_py = type("build_py", (), {"run": lambda self: None})
    return kept, {"setuptools": package, "setuptools.command": types.ModuleType("command"),
                  "setuptools.command.build_py": command}


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = pathlib.Path(folder.name).resolve()
        self.setup_file = self.checkout / "integrations" / "torch" / "setup.py"
        self.setup_file.parent.mkdir(parents=True)
        shutil.copyfile(arguments.setup, self.setup_file)

    def build(self, name, age):
        path = self.checkout / "build" / name / "integrations" / "torch" / FILE_NAME
        path.parent.mkdir(parents=True)
        path.write_text(name, encoding="ascii")
        os.utime(path, (1_700_000_000 - age,) * 2)
        return path

    def package(self, **environment):
        """What is in the package's library, and what was printed."""
        kept, stand_ins = modules()
        with mock.patch.dict(sys.modules, stand_ins), mock.patch.dict(os.environ, environment):
            if not environment:
                os.environ.pop("GPUPOOL_TORCH_LIBRARY", None)
            runpy.run_path(str(self.setup_file))
            command = kept["cmdclass"]["build_py"]()
            command.build_lib = self.checkout / "lib"
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                command.run()
        packed = self.checkout / "lib" / "gpupool" / "torch" / FILE_NAME
        return packed.read_text(encoding="ascii"), printed.getvalue()

    def test_the_release_build_goes_before_a_newer_one(self):
        release = self.build("release", age=100)
        self.build("asan", age=1)
        packed, printed = self.package()
        self.assertEqual(packed, "release")
        self.assertIn(str(release), printed)

    def test_without_one_the_newest_is_taken_and_named(self):
        self.build("released", age=100)
        asan = self.build("asan", age=1)
        self.build("old", age=50)
        packed, printed = self.package()
        self.assertEqual(packed, "asan")
        self.assertIn(str(asan), printed)

    def test_the_one_that_is_named_goes_before_all(self):
        self.build("release", age=1)
        named = self.build("other", age=100)
        self.assertEqual(self.package(GPUPOOL_TORCH_LIBRARY=str(named))[0], "other")

    def test_without_any_it_says_how_to_get_one(self):
        with self.assertRaisesRegex(SystemExit, "--target gpupool_torch"):
            self.package()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--setup", required=True)
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
