"""Making the pool PyTorch's allocator, as a whole or for a part of a program."""

import os
import threading

from gpupool.torch import _library

# PyTorch's setter, and what it is given the address of.
_HOOKS = (
    ("set_init_fn", "gpupool_torch_init"),
    ("set_reset_fn", "gpupool_torch_reset"),
    ("set_memory_fraction_fn", "gpupool_torch_memory_fraction"),
    ("set_base_alloc_fn", "gpupool_torch_base_alloc"),
    ("set_record_stream_fn", "gpupool_torch_record_stream"),
    ("set_begin_allocate_to_pool", "gpupool_torch_begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "gpupool_torch_end_allocate_to_pool"),
    ("set_release_pool", "gpupool_torch_release_pool"),
)

_lock = threading.Lock()
_enabled_with = None  # the configuration's path or "", once enabled
_kept = []  # PyTorch keeps plain pointers to these


def _configure(library, config):
    path = None if config is None else os.path.abspath(os.fspath(config))
    if path is not None and not os.path.exists(path):
        raise FileNotFoundError(f"gpupool: there is no configuration {path}")
    library.check(library.gpupool_torch_configure(None if path is None else os.fsencode(path)))
    return path or ""


def enable(config=None):
    """Makes the pool the allocator of all CUDA tensors of this process.

    config: path of a YAML file (configs/gpupool.yaml has every key); None: what GPUPOOL_CONFIG names,
    or the defaults. The exporter starts with the first allocation on a device, where a file was
    named and does not turn it off.

    Must come before the first use of CUDA: PyTorch cannot change an allocator that has given out
    memory. A second call with the same config does nothing; with another it is an error.
    """
    global _enabled_with
    import torch

    with _lock:
        wanted = "" if config is None else os.path.abspath(os.fspath(config))
        if _enabled_with is not None:
            if _enabled_with == wanted:
                return
            raise _library.GpupoolError(
                f"gpupool: enabled already with {_enabled_with or 'the defaults'}, not with"
                f" {wanted or 'the defaults'}")
        if torch.cuda.is_initialized():
            raise _library.GpupoolError(
                "gpupool: CUDA is in use already, and PyTorch cannot change its allocator any more:"
                " call gpupool.torch.enable() before the first CUDA tensor, torch.cuda.init() and"
                " whatever else calls CUDA, best right after the imports")
        library = _library.load()
        _configure(library, config)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library.path, "gpupool_torch_alloc", "gpupool_torch_free")
        for setter, function in _HOOKS:
            getattr(allocator.allocator(), setter)(library.address(function))
        torch.cuda.memory.change_current_allocator(allocator)
        _kept.append(allocator)
        _enabled_with = wanted


def is_enabled():
    return _enabled_with is not None


def mem_pool(config=None):
    """A torch.cuda.MemPool whose memory comes from the pool: for a part of a program, at any time.

        pool = gpupool.torch.mem_pool()
        with torch.cuda.use_mem_pool(pool):
            ...                               # what is allocated here lies in the pool

    PyTorch's own allocator stays in front: it asks for segments of 2 MiB and more, and gives them
    back when the MemPool ends. Where the pool has no memory it frees what it has cached and asks
    again, before it raises torch.OutOfMemoryError.
    """
    import torch

    library = _library.load()
    with _lock:
        # None goes by what the process was told before, if anything.
        if config is not None or not library.gpupool_torch_is_in_use():
            _configure(library, config)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library.path, "gpupool_torch_alloc_or_null", "gpupool_torch_free_or_ignore")
        _kept.append(allocator)
        return torch.cuda.MemPool(allocator.allocator())
