#!/usr/bin/env python3
"""enable() and mem_pool() against a PyTorch of a few lines (fake_torch).

Usage: enable_test.py --library PLUGIN --package FOLDER
"""

import pathlib
import tempfile
import unittest

import child


class EnableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "one.yaml").write_text(
            "pool: {capacity: 64MiB}\nexporter: {enabled: false}\n", encoding="utf-8")
        (self.folder / "two.yaml").write_text("exporter: {enabled: false}\n", encoding="utf-8")
        (self.folder / "wrong.yaml").write_text("pool: {capacitee: 1}\n", encoding="utf-8")

    def run_child(self, code, **environment):
        return child.run(code, self.folder, with_fake_torch=True, **environment)

    def test_becomes_the_allocator_with_every_hook(self):
        self.run_child("""
            import torch
            pool.enable("one.yaml")
            assert pool.is_enabled()
            current = torch.cuda.memory.current
            block = current.alloc(MIB, 0, None)
            assert block and pool.memory_stats(0)["requested_bytes.all.current"] == MIB
            current.free(block, MIB, 0, None)
            assert pool.memory_stats(0)["allocation.all.current"] == 0
            assert pool.memory_stats(0)["gpupool.limit_bytes"] == 64 * MIB
            assert set(current.hooks) == set(current._SETTERS), current.hooks
            assert len(set(current.hooks.values())) == len(current.hooks)
            assert all(current.hooks.values())
            kept = current.alloc(MIB, 0, None)
            current.free(current.alloc(16 * MIB, 0, None), 16 * MIB, 0, None)
            held = pool.memory_stats(0)["reserved_bytes.all.current"]
            ctypes.CFUNCTYPE(None)(current.hooks["set_reset_fn"])()
            assert pool.memory_stats(0)["reserved_bytes.all.current"] < held
            size = ctypes.c_size_t()
            base = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
                current.hooks["set_base_alloc_fn"])
            assert base(kept, ctypes.addressof(size)) == kept and size.value == MIB
        """)

    def test_twice_is_once_with_the_same_file_alone(self):
        self.run_child("""
            pool.enable("one.yaml")
            pool.enable(os.path.abspath("one.yaml"))
            fails(lambda: pool.enable("two.yaml"), "enabled already with", "one.yaml", "two.yaml")
            fails(lambda: pool.enable(), "not with the defaults")
            assert pool.is_enabled()
        """)

    def test_after_cuda_was_initialised_is_a_clear_error(self):
        self.run_child("""
            import torch
            torch.cuda.init()
            fails(lambda: pool.enable("one.yaml"), "CUDA is in use already", "before the first")
            assert not pool.is_enabled() and torch.cuda.memory.current is None
        """)

    def test_a_wrong_file_enables_nothing(self):
        self.run_child("""
            import torch
            fails(lambda: pool.enable("wrong.yaml"), "wrong.yaml:1: pool.capacitee")
            fails(lambda: pool.enable("none.yaml"), "none.yaml", kind=FileNotFoundError)
            assert not pool.is_enabled() and torch.cuda.memory.current is None
            pool.enable("one.yaml")
        """)

    def test_a_file_of_the_environment_that_is_not_there_enables_nothing(self):
        self.run_child("""
            import torch
            fails(lambda: pool.enable(), "/nowhere.yaml: cannot be opened")
            assert not pool.is_enabled() and torch.cuda.memory.current is None
        """, GPUPOOL_CONFIG="/nowhere.yaml")

    def test_a_missing_plug_in_says_how_to_get_one(self):
        self.run_child("""
            from gpupool.torch import _library
            _library._loaded = None
            fails(lambda: pool.enable(), "/nowhere.so", "--target gpupool_torch")
        """.replace("_library._loaded = None",
                    "_library._loaded = None\n            "
                    "os.environ['GPUPOOL_TORCH_LIBRARY'] = '/nowhere.so'"))

    def test_mem_pool_is_given_the_functions_that_return_null(self):
        self.run_child("""
            import torch
            torch.cuda.init()   # at any time
            allocator = pool.mem_pool("one.yaml").allocator
            assert allocator.alloc(128 * MIB, 0, None) is None
            block = allocator.alloc(MIB, 0, None)
            assert block
            allocator.free(block, MIB, 0, None)
            assert torch.cuda.memory.current is None and not pool.is_enabled()
            failure = pool.last_failure(0)
            assert failure["error"] == "limit_exceeded" and failure["requested_bytes"] == 128 * MIB
            assert pool.mem_pool().allocator is not allocator
        """)

    def test_out_of_memory_can_be_raised_as_pytorchs_type(self):
        self.run_child("""
            import torch
            text = "CUDA out of memory. Tried to allocate 1.00 GiB."
            def inside(error):
                with pool.raises_out_of_memory():
                    raise error
            fails(lambda: inside(RuntimeError(text)), text, kind=torch.OutOfMemoryError)
            fails(lambda: inside(torch.OutOfMemoryError(text)), kind=torch.OutOfMemoryError)
            try:
                inside(RuntimeError("something else"))
            except RuntimeError as error:
                assert type(error) is RuntimeError
            assert pool.is_out_of_memory(RuntimeError(text))
            assert not pool.is_out_of_memory(ValueError(text))
            assert not pool.is_out_of_memory(RuntimeError("x " + text))
        """)


if __name__ == "__main__":
    child.main()
