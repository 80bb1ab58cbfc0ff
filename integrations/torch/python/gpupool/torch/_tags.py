"""What memory is for."""

import contextlib
import ctypes
import threading

from gpupool.torch import _library


class tag(contextlib.ContextDecorator):  # noqa: N801  (used like a function)
    """What this thread allocates inside counts as `name`, one of the configuration's tags.

        with gpupool.torch.tag("activations"):
            loss = model(batch)

    Scopes nest. The tag is the calling thread's alone: autograd runs the backward pass of a CUDA
    graph of operations on a thread of its own for each device, where no scope of the caller is in
    force, so that gradients are untagged unless a hook that runs there (Tensor.register_hook, a
    custom autograd.Function) opens one.

    As a decorator one object serves every call, also calls of several threads and of a function by
    itself: what was in force before is kept for each thread, the last first.
    """

    def __init__(self, name):
        self._name = name
        self._thread = threading.local()

    def __enter__(self):
        library = _library.load()
        index = ctypes.c_uint32()
        library.check(library.gpupool_torch_find_tag(self._name.encode(), index))
        if not hasattr(self._thread, "previous"):
            self._thread.previous = []
        self._thread.previous.append(library.gpupool_set_tag(index.value))
        return self

    def __exit__(self, *_):
        _library.load().gpupool_set_tag(self._thread.previous.pop())
        return False
