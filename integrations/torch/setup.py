"""Puts the plug-in into the package: the one that GPUPOOL_TORCH_LIBRARY names; else build/release's;
else the newest that was built in this checkout. Prints which one, as it may be a sanitizer's."""

import os
import pathlib
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

FILE_NAME = "libgpupool_torch.so"
BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


def find_plugin():
    named = os.environ.get("GPUPOOL_TORCH_LIBRARY")
    if named:
        return pathlib.Path(named)
    built = list(BUILD.glob(f"*/integrations/torch/{FILE_NAME}"))
    if not built:
        raise SystemExit(f"there is no {FILE_NAME}: build it first (cmake --build BUILD --target"
                         " gpupool_torch), or name it in GPUPOOL_TORCH_LIBRARY")
    return max(built, key=lambda path: (path.is_relative_to(BUILD / "release"),
                                        path.stat().st_mtime))


class BuildWithPlugin(build_py):
    def run(self):
        super().run()
        plugin = find_plugin()
        print(f"gpupool: the plug-in is {plugin}")
        target = pathlib.Path(self.build_lib) / "gpupool" / "torch" / FILE_NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plugin, target)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True  # the wheel is of this platform


setup(cmdclass={"build_py": BuildWithPlugin}, distclass=WithLibrary)
