"""The gpupool memory pool as PyTorch's CUDA allocator.

    import gpupool.torch
    gpupool.torch.enable("gpupool.yaml")     # before the first use of CUDA

From then on every CUDA tensor of the process lies in the pool. mem_pool() puts only a part of a
program there. The rest is for looking at it: memory_stats(), snapshot(), tag(), record(),
last_failure(), trim(), url(). integrations/torch/README.md has the details and the limits.

Importing this loads neither PyTorch nor the plug-in; the first call does.
"""

from gpupool.torch._enable import enable, is_enabled, mem_pool
from gpupool.torch._errors import is_out_of_memory, raises_out_of_memory
from gpupool.torch._library import GpupoolError
from gpupool.torch._recording import Recording, record
from gpupool.torch._reports import (last_failure, maintain, memory_stats, plugin_counters,
                                    reset_peak_memory_stats, snapshot, trim, url)
from gpupool.torch._snapshot_trace import SnapshotError, convert_snapshot
from gpupool.torch._tags import tag

__all__ = [
    "GpupoolError", "Recording", "SnapshotError", "convert_snapshot", "enable", "is_enabled",
    "is_out_of_memory", "last_failure", "maintain", "mem_pool", "memory_stats", "plugin_counters",
    "raises_out_of_memory", "record", "reset_peak_memory_stats", "snapshot", "tag", "trim", "url",
]
