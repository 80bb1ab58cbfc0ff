"""From a memory snapshot of PyTorch's own allocator to a trace that `gpupool replay` plays.

A snapshot is what torch.cuda.memory._dump_snapshot() writes: a pickle of dicts, lists, strings and
numbers. One from anywhere can be read: the pickle's own dangers are for _plain_pickle.py, and here
every value is looked at before it is used.

    alloc             a ID BYTES STREAM DT
    free_requested    f ID DT
    free_completed    c ID DT, only where it came later than the free: used by other streams
    oom               a remark
"""

import gzip
import operator
import os

from gpupool.torch import _plain_pickle

_MAX_STREAMS = 4096          # of the trace format
_MAX_TIME_US = 1 << 53       # the same
_MAX_NUMBER = (1 << 64) - 1  # the same


class SnapshotError(ValueError):
    """What is wrong with a snapshot."""


def _read(path):
    try:
        snapshot = _plain_pickle.load(path)
    except _plain_pickle.PickleError as error:
        raise SnapshotError(str(error)) from error
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise SnapshotError("it has no device_traces: is it by torch.cuda.memory._dump_snapshot()?")
    return snapshot


def _short(value):
    """It may be anything, and of any size."""
    if isinstance(value, (type(None), bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    return f"a {type(value).__name__}"


class _Entry:
    """A dict of the snapshot, what it holds, and where it is."""

    def __init__(self, value, place):
        self._place = place
        if not isinstance(value, dict):
            raise SnapshotError(f"{place} is {_short(value)}; expected a dict")
        self._value = value

    def _wrong(self, key, expected):
        value = self._value.get(key)
        said = _short(value) if key in self._value else "missing"
        return SnapshotError(f"{key} of {self._place} is {said}; expected {expected}")

    def __contains__(self, key):
        return key in self._value

    def number(self, key, default=None, most=_MAX_NUMBER):
        value = self._value.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self._wrong(key, f"a number from 0 to {most}")
        return value

    def text(self, key):
        value = self._value.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def list(self, key):
        value = self._value.get(key, ())
        if not isinstance(value, (list, tuple)):
            raise self._wrong(key, "a list")
        return value


class _Event(_Entry):
    def __init__(self, value, index, device):
        super().__init__(value, f"event {index} of device {device}")
        self.action = self.text("action")

    @property
    def address(self):
        return self.number("addr")

    @property
    def size(self):
        return self.number("size")

    @property
    def stream(self):
        return self.number("stream", 0)

    @property
    def time(self):
        return self.number("time_us", 0, _MAX_TIME_US)


def _distinct(values, what):
    """A pickle may refer to one value many times: a short file would have any number of them."""
    if len(set(map(id, values))) != len(values):
        raise SnapshotError(f"one of its {what} is there twice, as one value")
    return values


class _Writer:
    def __init__(self, first_time):
        self.lines = []
        self.counts = {"allocations": 0, "frees": 0, "completions": 0, "failed_requests": 0,
                       "live_at_start": 0, "left_out": 0}
        self._time, self._total = first_time, 0
        self._live = {}      # address: ID
        self._freed = {}     # address: ID, free_completed is to come
        self._streams = {0: 0}
        self._next = 0

    def _step(self, entry):
        """Microseconds since the last line. Without a time each event counts 1."""
        step = 1
        if "time_us" in entry:
            step = max(0, entry.time - self._time)
            self._time = max(self._time, entry.time)
        self._total += step
        if self._total > _MAX_TIME_US:
            raise SnapshotError(f"its history is longer than {_MAX_TIME_US} us")
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
        address = entry.address
        if address in self._live:
            raise SnapshotError(f"address {address:#x} is given out twice without a free between")
        self._freed.pop(address, None)
        self._add(address, entry.size, entry.stream, self._step(entry))
        self.counts["allocations"] += 1

    def free_requested(self, entry):
        address = entry.address
        block = self._live.pop(address, None)
        if block is None:
            self.counts["left_out"] += 1  # allocated before the history begins, and unknown
            return
        self._freed[address] = block
        self.lines.append(f"f {block} {self._step(entry)}")
        self.counts["frees"] += 1

    def free_completed(self, entry, follows_its_free):
        block = self._freed.pop(entry.address, None)
        if block is None or follows_its_free:
            return
        self.lines.append(f"c {block} {self._step(entry)}")
        self.counts["completions"] += 1

    def oom(self, entry):
        self.lines.append(f"# a request of {entry.size} bytes failed")
        self.counts["failed_requests"] += 1


def _live_before(snapshot, events, device):
    """Blocks that were there when the history began: live at its end, or freed in it, without having
    been allocated in it. (Of those that were freed the size is in the free's own event.)"""
    seen, before = set(), {}
    for event in events:
        if event.action == "alloc":
            seen.add(event.address)
        elif event.action == "free_requested" and event.address not in seen:
            before[event.address] = (event.size, event.stream)
            seen.add(event.address)
    known = set()
    segments = _distinct(_Entry(snapshot, "the snapshot").list("segments"), "segments")
    for index, value in enumerate(segments):
        segment = _Entry(value, f"segment {index}")
        if segment.number("device", 0) != device:
            continue
        address, stream = segment.number("address"), segment.number("stream", 0)
        blocks = _distinct(segment.list("blocks"), "blocks")
        # A pickle may refer to one list many times: a short file would have any number of blocks.
        if blocks and id(blocks) in known:
            raise SnapshotError(f"the blocks of segment {index} are another segment's, too")
        known.add(id(blocks))
        for place, block in enumerate(blocks):
            block = _Entry(block, f"block {place} of segment {index}")
            start = block.number("address", address)
            size = block.number("size")
            address = start + size
            if "state" in block and block.text("state") == "active_allocated" and start not in seen:
                before[start] = (block.number("requested_size", size), stream)
    return before


def _events_of(snapshot, device):
    traces = snapshot["device_traces"]
    device = operator.index(device)
    if not 0 <= device < len(traces):
        raise SnapshotError(f"it has {len(traces)} devices, none is number {device}")
    if not isinstance(traces[device], list):
        raise SnapshotError(f"the history of device {device} is {_short(traces[device])}; expected"
                            " a list")
    events = [_Event(value, index, device)
              for index, value in enumerate(_distinct(traces[device], "events"))]
    if not events:
        raise SnapshotError(f"it has no history of device {device}: call"
                            " torch.cuda.memory._record_memory_history() before the job")
    return events


def _convert(snapshot, device):
    events = _events_of(snapshot, device)
    writer = _Writer(events[0].time)
    for address, (size, stream) in sorted(_live_before(snapshot, events, device).items()):
        writer.add_live(address, size, stream)
    freed = None  # by the event before, if that was one
    for event in events:
        if event.action == "alloc":
            writer.alloc(event)
        elif event.action == "free_requested":
            writer.free_requested(event)
        elif event.action == "free_completed":
            writer.free_completed(event, freed == event.address)
        elif event.action == "oom":
            writer.oom(event)
        freed = event.address if event.action == "free_requested" else None
    return writer, max(0, events[-1].time - events[0].time) / 1e6


def convert_snapshot(path_in, path_out, device=0):
    """Writes the history of one device in a PyTorch memory snapshot as a gpupool trace, packed where
    path_out ends in .gz; a dict of what is in it. The snapshot's pickle is read without building any
    class that it names, up to 1 GiB of it unpacked and 33 million values; SnapshotError (a
    ValueError) says what is wrong with it, and where. Nothing is written then."""
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
