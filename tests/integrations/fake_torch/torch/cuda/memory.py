"""torch.cuda.memory: a plug-in's functions by address, with PyTorch's own names for the setters."""

import ctypes

current = None


class _Allocator:
    """What PyTorch keeps: addresses, and no name of a function."""

    _SETTERS = ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn",
                "set_record_stream_fn", "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn",
                "set_release_pool")

    def __init__(self, alloc, free):
        self.hooks = {}
        self.alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                      ctypes.c_void_p)(alloc)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                     ctypes.c_void_p)(free)

    def __getattr__(self, name):
        if name not in self._SETTERS:
            raise AttributeError(name)
        return lambda address: self.hooks.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, alloc_name, free_name):
        library = ctypes.CDLL(path)
        self._allocator = _Allocator(
            *(ctypes.cast(getattr(library, name), ctypes.c_void_p).value
              for name in (alloc_name, free_name)))

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    global current
    current = allocator.allocator()
