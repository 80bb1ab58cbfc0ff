#!/usr/bin/env python3
"""What the plug-in shows the process and what it is linked with: the functions of gpupool.h and
gpupool_torch.h and nothing else; the process's own libstdc++; nothing of PyTorch.

Usage: symbols_test.py --library PLUGIN --package FOLDER
"""

import pathlib
import re
import subprocess
import unittest

import child

SOURCE = child.HERE.parents[1]
HEADERS = ("allocator/include/gpupool/gpupool.h", "integrations/torch/plugin/gpupool_torch.h")


def declared():
    names = []
    for header in HEADERS:
        text = (SOURCE / header).read_text(encoding="utf-8")
        names += re.findall(r"^GPUPOOL_API [\w:* ]*?\b(gpupool_\w+)\(", text, re.M)
    return names


def lines_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


class SymbolsTest(unittest.TestCase):
    def test_exactly_the_declared_functions_are_seen(self):
        names = declared()
        self.assertGreater(len(names), 50)
        self.assertEqual(len(names), len(set(names)))
        symbols = [line.split() for line in
                   lines_of("nm", "-D", "--defined-only", child.arguments.library)]
        self.assertEqual(sorted(symbol[-1] for symbol in symbols), sorted(names))
        self.assertEqual({symbol[-2] for symbol in symbols}, {"T"})

    def test_linked_with_the_processes_own_libstdcxx_and_nothing_of_pytorch(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", "\n".join(
            lines_of("readelf", "-d", child.arguments.library)))
        self.assertIn("libstdc++.so.6", needed)
        for name in needed:
            self.assertIsNone(re.match(r"lib(torch|c10|cuda|cudart)\b", name), name)
        undefined = [line.split()[-1] for line in
                     lines_of("nm", "-D", "--undefined-only", child.arguments.library)]
        for name in undefined:
            self.assertIsNone(re.match(r"_ZNK?3c10|_ZNK?5torch|cu[A-Z]|cuda", name), name)

    def test_thread_local_storage_asks_for_no_room_in_the_static_block(self):
        flags = [line for line in lines_of("readelf", "-d", child.arguments.library)
                 if "FLAGS" in line]
        self.assertFalse(any("STATIC_TLS" in line for line in flags), flags)

    def test_the_python_helper_calls_what_there_is(self):
        from gpupool.torch import _enable, _library
        names = set(declared())
        self.assertLessEqual(set(_library._PROTOTYPES), names)
        self.assertLessEqual({function for _, function in _enable._HOOKS}, names)
        sources = pathlib.Path(child.arguments.package).rglob("*.py")
        for path in sources:
            for name in re.findall(r"\bgpupool_(?:torch_)?[a-z_]+\(", path.read_text()):
                self.assertIn(name[:-1], names, path)


if __name__ == "__main__":
    child.main()
