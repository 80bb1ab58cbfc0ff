"""The few things of PyTorch that gpupool.torch touches, with what it does with them: a plug-in is asked
through the addresses that it gave."""

from torch import cuda  # noqa: F401


class OutOfMemoryError(RuntimeError):
    pass
