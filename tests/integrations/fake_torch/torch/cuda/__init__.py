"""torch.cuda, as far as gpupool.torch uses it."""

from torch.cuda import memory  # noqa: F401

_is_initialized = False


def is_initialized():
    return _is_initialized


def init():
    global _is_initialized
    _is_initialized = True


def current_device():
    return 0


class MemPool:
    def __init__(self, allocator=None):
        self.allocator = allocator
