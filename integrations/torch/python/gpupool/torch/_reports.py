"""What a device's pool says of itself. PyTorch's own functions throw for plug-ins."""

import ctypes
import json
import sys

from gpupool.torch import _library

_STATES = ("live", "cached", "pending", "free")
# As torch.cuda.memory_snapshot() names them.
_TORCH_STATES = {"live": "active_allocated", "cached": "inactive", "pending": "active_pending_free",
                 "free": "inactive"}
_NO_TAG = 0xff
_TAG_PREFIX = "tag_live_bytes."


def device_index(device):
    """What PyTorch calls a device, as a number; None: the current one."""
    if isinstance(device, int):
        return device
    if device is None:
        # Without PyTorch there is one device.
        torch = sys.modules.get("torch")
        return torch.cuda.current_device() if torch and torch.cuda.is_initialized() else 0
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        if kind != "cuda" or not (index.isdigit() or index == ""):
            raise ValueError(f"expected a CUDA device, not {device!r}")
        return int(index) if index else device_index(None)
    if getattr(device, "type", "cuda") != "cuda":
        raise ValueError(f"expected a CUDA device, not {device!r}")
    return device_index(None) if device.index is None else device.index


def _numbers(library, pool):
    numbers = {}

    def keep(name, count, value, _):
        numbers[name.decode()] = count if count == value or value > 2**53 else value

    visitor = _library.NUMBER_VISITOR(keep)
    library.check(library.gpupool_visit_stats(pool, visitor, None))
    return numbers


def memory_stats(device=None):
    """A dict of numbers; empty where the device has no pool yet.

    PyTorch's keys where they mean the same (torch.cuda.memory_stats), and under "gpupool." every
    counter of the pool by its name in gpupool/stats.h, "gpupool.misses_by_reason.cold".
    """
    library = _library.load()
    pool = library.find_pool(device_index(device))
    if pool is None:
        return {}
    own = _numbers(library, pool)
    stats = {
        "requested_bytes.all.current": own["live_requested_bytes"],
        "requested_bytes.all.peak": own["peak_requested_bytes"],
        "requested_bytes.all.allocated": own["requested_bytes_total"],
        "requested_bytes.all.freed": own["requested_bytes_total"] - own["live_requested_bytes"],
        "allocated_bytes.all.current": own["live_requested_bytes"] + own["waste_bytes"],
        "reserved_bytes.all.current": own["held_bytes"],
        "reserved_bytes.all.peak": own["peak_held_bytes"],
        "allocation.all.current": own["live_blocks"],
        "allocation.all.allocated": own["requests"] - own["failures"],
        "allocation.all.freed": own["frees"],
        "segment.all.current": own["segments"],
        "num_ooms": own["failures"],
        "num_alloc_retries": own["retries"],
        "num_device_alloc": own["driver_calls_by_operation.create"] +
        own["driver_calls_by_operation.allocate"],
        "num_device_free": own["driver_calls_by_operation.release"] +
        own["driver_calls_by_operation.deallocate"],
    }
    stats.update(("gpupool." + name, value) for name, value in own.items())
    return stats


def reset_peak_memory_stats(device=None):
    library = _library.load()
    library.gpupool_reset_peaks(library.pool(device_index(device)))


def _copy_blocks(library, pool):
    # Copied by the library: a Python function called under the pool's lock could wait for the
    # interpreter, held by a thread that waits for the pool.
    capacity = library.gpupool_copy_blocks(pool, None, ctypes.sizeof(_library.Block), 0) + 64
    while True:
        blocks = (_library.Block * capacity)()
        count = library.gpupool_copy_blocks(pool, blocks, ctypes.sizeof(_library.Block), capacity)
        if count <= capacity:
            return blocks[:count]
        capacity = count + count // 8


def snapshot(device=None):
    """The blocks and free pieces of the device's pool, by rising address: a list of dicts with
    PyTorch's keys (address, size, requested_size, state), and gpupool_state, stream_id,
    stream (torch.cuda.Stream's cuda_stream; None where it has ended), tag, is_fallback. Empty where the device has no pool yet."""
    library = _library.load()
    pool = library.find_pool(device_index(device))
    if pool is None:
        return []
    tags = [name[len(_TAG_PREFIX):] for name in _numbers(library, pool)
            if name.startswith(_TAG_PREFIX)]
    result = []
    for block in _copy_blocks(library, pool):
        state = _STATES[block.state]
        result.append({
            "address": block.address, "size": block.bytes,
            "requested_size": block.requested_bytes, "state": _TORCH_STATES[state],
            "gpupool_state": state, "stream_id": block.stream_id,
            "stream": block.stream_handle if block.has_stream_handle else None,
            "tag": tags[block.tag] if block.tag < len(tags) else None,
            "is_fallback": bool(block.is_fallback),
        })
    return result


def last_failure(device=None):
    """Why the last request of the device failed: its numbers, and the text for a person; None where
    none has."""
    library = _library.load()
    pool = library.find_pool(device_index(device))
    if pool is None:
        return None
    result = json.loads(library.read_text(library.gpupool_failure_json, pool))
    if not result.pop("happened"):
        return None
    result["text"] = library.read_text(library.gpupool_failure_text, pool)
    return result


def trim(device=None, target_held_bytes=0):
    """Gives empty memory back to the driver, the caches' too; the bytes of that."""
    library = _library.load()
    pool = library.find_pool(device_index(device))
    if pool is None:
        return 0
    library.gpupool_drain(pool)
    return library.gpupool_trim(pool, target_held_bytes)


def maintain(device=None, budget_seconds=0.001):
    """One step of upkeep, for programs that turned the plug-in's thread off; whether there is more
    to do."""
    library = _library.load()
    pool = library.find_pool(device_index(device))
    return pool is not None and library.gpupool_maintain(pool, int(budget_seconds * 1e9)) != 0


def url(device=None):
    """Where the device's pool is served by HTTP; None where it is not."""
    library = _library.load()
    return library.read_text(library.gpupool_torch_url, device_index(device)) or None


def plugin_counters():
    """What the plug-in itself counts, all devices together: calls that were wrong or too late.

    Not to be added to memory_stats(): a foreign or second free is in foreign_frees here, and in
    gpupool.misuses.foreign_pointer or .double_free of the device that it named as well.
    """
    library = _library.load()
    counters = _library.Counters()
    library.gpupool_torch_get_counters(counters, ctypes.sizeof(counters))
    return {name: getattr(counters, name) for name in ("devices",) + counters.NUMBERS}
