"""Puts the plug-in into the package: the one that GPUPOOL_TORCH_LIBRARY names, else the newest that was
built in this checkout."""

import os
import pathlib
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

FILE_NAME = "libgpupool_torch.so"
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def find_plugin():
    named = os.environ.get("GPUPOOL_TORCH_LIBRARY")
    if named:
        return pathlib.Path(named)
    built = sorted(CHECKOUT.glob(f"build/*/integrations/torch/{FILE_NAME}"),
                   key=lambda path: path.stat().st_mtime)
    if not built:
        raise SystemExit(f"there is no {FILE_NAME}: build it first (cmake --build BUILD --target"
                         " gpupool_torch), or name it in GPUPOOL_TORCH_LIBRARY")
    return built[-1]


class BuildWithPlugin(build_py):
    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib) / "gpupool" / "torch" / FILE_NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(find_plugin(), target)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True  # the wheel is of this platform


setup(cmdclass={"build_py": BuildWithPlugin}, distclass=WithLibrary)
