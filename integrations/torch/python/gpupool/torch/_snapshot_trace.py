"""From a memory snapshot of PyTorch's own allocator to a trace that `gpupool replay` plays.

A snapshot is what torch.cuda.memory._dump_snapshot() writes: a pickle of dicts, lists, strings and
numbers. A pickle can also name classes and functions, which reading it would call: here every such
name is refused, so that a snapshot from anywhere can be read.

    alloc             a ID BYTES STREAM DT
    free_requested    f ID DT
    free_completed    c ID DT, only where it came later than the free: used by other streams
    oom               a remark
"""

import gzip
import io
import os
import pickle

_MAX_STREAMS = 4096  # of the trace format


class SnapshotError(ValueError):
    """What is wrong with a snapshot."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds Python's own containers and values, and nothing that has a name."""

    def find_class(self, module, name):
        raise SnapshotError(f"it names {module}.{name}; a snapshot has plain values alone")

    def persistent_load(self, pid):
        raise SnapshotError("it refers to objects outside the file")


def _read(path):
    with open(path, "rb") as file:
        data = file.read()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        snapshot = _PlainUnpickler(io.BytesIO(data)).load()
    except SnapshotError:
        raise
    except Exception as error:  # whatever a broken pickle may raise
        raise SnapshotError(f"it cannot be read: {error}") from error
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise SnapshotError("it has no device_traces: is it by torch.cuda.memory._dump_snapshot()?")
    return snapshot


def _number(entry, key):
    value = entry.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SnapshotError(f"{key} of an event is {value!r}; expected a number from 0")
    return value


class _Writer:
    def __init__(self, first_time):
        self.lines = []
        self.counts = {"allocations": 0, "frees": 0, "completions": 0, "failed_requests": 0,
                       "live_at_start": 0, "left_out": 0}
        self._time = first_time
        self._live = {}      # address: ID
        self._freed = {}     # address: ID, free_completed is to come
        self._streams = {0: 0}
        self._next = 0

    def _step(self, entry):
        """Microseconds since the last line. Without a time each event counts 1."""
        if "time_us" not in entry:
            return 1
        time = _number(entry, "time_us")
        step = max(0, time - self._time)
        self._time = max(self._time, time)
        return step

    def _stream(self, handle):
        if handle not in self._streams:
            if len(self._streams) == _MAX_STREAMS:
                raise SnapshotError(f"it has more than {_MAX_STREAMS} streams")
            self._streams[handle] = len(self._streams)
        return self._streams[handle]

    def _add(self, address, size, stream, step):
        self._live[address] = self._next
        self.lines.append(f"a {self._next} {size} {self._stream(stream)} {step}")
        self._next += 1

    def add_live(self, address, size, stream):
        self._add(address, size, stream, 0)
        self.counts["live_at_start"] += 1

    def alloc(self, entry):
        address = _number(entry, "addr")
        if address in self._live:
            raise SnapshotError(f"address {address:#x} is given out twice without a free between")
        self._freed.pop(address, None)
        self._add(address, _number(entry, "size"), _number(entry, "stream"), self._step(entry))
        self.counts["allocations"] += 1

    def free_requested(self, entry):
        address = _number(entry, "addr")
        block = self._live.pop(address, None)
        if block is None:
            self.counts["left_out"] += 1  # allocated before the history begins, and unknown
            return
        self._freed[address] = block
        self.lines.append(f"f {block} {self._step(entry)}")
        self.counts["frees"] += 1

    def free_completed(self, entry, follows_its_free):
        block = self._freed.pop(_number(entry, "addr"), None)
        if block is None or follows_its_free:
            return
        self.lines.append(f"c {block} {self._step(entry)}")
        self.counts["completions"] += 1

    def oom(self, entry):
        self.lines.append(f"# a request of {_number(entry, 'size')} bytes failed")
        self.counts["failed_requests"] += 1


def _live_before(snapshot, events, device):
    """Blocks that were there when the history began: live at its end, or freed in it, without having
    been allocated in it. (Of those that were freed the size is in the free's own event.)"""
    seen, before = set(), {}
    for entry in events:
        address = entry.get("addr")
        if entry.get("action") == "alloc":
            seen.add(address)
        elif entry.get("action") == "free_requested" and address not in seen:
            before[address] = (_number(entry, "size"), _number(entry, "stream"))
            seen.add(address)
    for segment in snapshot.get("segments", ()):
        if segment.get("device", 0) != device:
            continue
        address = _number(segment, "address")
        for block in segment.get("blocks", ()):
            start = block.get("address", address)
            address += _number(block, "size")
            if block.get("state") == "active_allocated" and start not in seen:
                size = block.get("requested_size", block["size"])
                before[start] = (size, _number(segment, "stream"))
    return before


def _convert(snapshot, device):
    traces = snapshot["device_traces"]
    if not 0 <= device < len(traces):
        raise SnapshotError(f"it has {len(traces)} devices, none is number {device}")
    events = [entry for entry in traces[device] if isinstance(entry, dict)]
    if not events:
        raise SnapshotError(f"it has no history of device {device}: call"
                            " torch.cuda.memory._record_memory_history() before the job")
    writer = _Writer(_number(events[0], "time_us"))
    for address, (size, stream) in sorted(_live_before(snapshot, events, device).items()):
        writer.add_live(address, size, stream)
    previous = None
    for entry in events:
        action = entry.get("action")
        if action == "alloc":
            writer.alloc(entry)
        elif action == "free_requested":
            writer.free_requested(entry)
        elif action == "free_completed":
            writer.free_completed(entry, previous == ("free_requested", entry.get("addr")))
        elif action == "oom":
            writer.oom(entry)
        previous = (action, entry.get("addr"))
    seconds = (_number(events[-1], "time_us") - _number(events[0], "time_us")) / 1e6
    return writer, max(0.0, seconds)


def convert_snapshot(path_in, path_out, device=0):
    """Writes the history of one device in a PyTorch memory snapshot as a gpupool trace, packed where
    path_out ends in .gz; a dict of what is in it. The snapshot's pickle is read without building any
    class that it names; SnapshotError (a ValueError) says what is wrong with it."""
    try:
        writer, seconds = _convert(_read(path_in), device)
    except SnapshotError as error:
        raise SnapshotError(f"{path_in}: {error}") from None
    path_out = os.fspath(path_out)
    opener = gzip.open if path_out.endswith(".gz") else open
    with opener(path_out, "wt", encoding="ascii") as file:
        file.write("# gpupool allocation trace, version 1\n")
        file.write("# converted from a PyTorch memory snapshot\n")
        file.write(f'# {{"source": "torch snapshot", "seconds": {seconds:.6f}}}\n')
        file.writelines(line + "\n" for line in writer.lines)
    return dict(writer.counts, seconds=seconds)
