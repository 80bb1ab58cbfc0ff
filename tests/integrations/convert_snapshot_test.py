#!/usr/bin/env python3
"""PyTorch's memory snapshots to traces, and what is no snapshot.

Usage: convert_snapshot_test.py --library PLUGIN --package FOLDER [--gpupool PROGRAM]
"""

import collections
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import tempfile
import time
import tracemalloc
import unittest

import child


def event(action, address, size, stream=0, time=None):
    entry = {"action": action, "addr": address, "size": size, "stream": stream, "frames": []}
    if time is not None:
        entry["time_us"] = time
    return entry


class Hostile:
    """A pickle of it asks whoever reads it to make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class ConvertSnapshotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.snapshot = self.folder / "snapshot.pickle"
        self.trace = self.folder / "job.trace"

    def convert(self, device=0, out=None):
        from gpupool.torch import convert_snapshot
        return convert_snapshot(self.snapshot, out or self.trace, device)

    def write(self, events, segments=(), protocol=pickle.HIGHEST_PROTOCOL):
        self.snapshot.write_bytes(pickle.dumps(
            {"segments": list(segments), "device_traces": [events], "allocator_settings": {}},
            protocol))

    def lines(self):
        return [line for line in self.trace.read_text(encoding="ascii").splitlines()
                if not line.startswith("#")]

    def replay(self, path):
        if child.arguments.gpupool:
            done = subprocess.run(
                [child.arguments.gpupool, "replay", "--device", "sim", "--passes", "1",
                 "--completions", str(path)], check=False, timeout=60,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_events_become_lines(self):
        self.write([
            event("segment_alloc", 0x1000, 2 << 20, time=999),
            event("alloc", 0x1000, 512, time=1000),
            event("alloc", 0x2000, 1024, stream=0xabc0, time=1005),
            event("free_requested", 0x1000, 512, time=1010),
            event("free_completed", 0x1000, 512, time=1010),
            event("free_requested", 0x2000, 1024, stream=0xabc0, time=1020),
            event("alloc", 0x1000, 256, time=1021),
            event("free_completed", 0x2000, 1024, stream=0xabc0, time=1030),
            {"action": "oom", "size": 1 << 40, "stream": 0, "device_free": 5, "time_us": 1031},
            {"action": "snapshot", "time_us": 1040, "frames": []},
        ])
        report = self.convert()
        self.assertEqual(self.lines(), ["a 0 512 0 1", "a 1 1024 1 5", "f 0 5", "f 1 10",
                                        "a 2 256 0 1", "c 1 9"])
        self.assertEqual((report["allocations"], report["frees"], report["completions"]), (3, 2, 1))
        self.assertEqual(report["failed_requests"], 1)
        header = json.loads(self.trace.read_text(encoding="ascii").splitlines()[2][2:])
        self.assertAlmostEqual(header["seconds"], 41e-6)
        self.assertIn("# a request of 1099511627776 bytes failed",
                      self.trace.read_text(encoding="ascii"))
        self.replay(self.trace)

    def test_an_address_is_used_again_only_after_its_free(self):
        self.write([event("alloc", 0x1000, 512), event("free_requested", 0x1000, 512),
                    event("alloc", 0x1000, 1024), event("free_requested", 0x1000, 1024)])
        self.convert()
        self.assertEqual(self.lines(), ["a 0 512 0 1", "f 0 1", "a 1 1024 0 1", "f 1 1"])
        self.write([event("alloc", 0x1000, 512), event("alloc", 0x1000, 512)])
        from gpupool.torch import SnapshotError
        with self.assertRaisesRegex(SnapshotError, "0x1000 is given out twice"):
            self.convert()

    def test_what_was_live_before_comes_first(self):
        segment = {"address": 0x10000, "total_size": 0x3000, "stream": 0xabc0, "device": 0,
                   "blocks": [
                       {"address": 0x10000, "size": 512, "requested_size": 500,
                        "state": "active_allocated"},
                       {"address": 0x10200, "size": 512, "requested_size": 0, "state": "inactive"},
                       {"size": 1024, "requested_size": 1000, "state": "active_allocated",
                        "address": 0x10400}]}
        other_device = dict(segment, device=1)
        self.write([event("free_requested", 0x9000, 2048, time=5),
                    event("alloc", 0x10400, 1000, time=7)], [segment, other_device])
        report = self.convert()
        self.assertEqual(self.lines(), ["a 0 2048 0 0", "a 1 500 1 0", "f 0 0", "a 2 1000 0 2"])
        self.assertEqual(report["live_at_start"], 2)
        self.replay(self.trace)

    def test_packed_in_and_out(self):
        self.write([event("alloc", 0x1000, 512)])
        self.snapshot.write_bytes(gzip.compress(self.snapshot.read_bytes()))
        out = self.folder / "job.trace.gz"
        self.convert(out=out)
        with gzip.open(out, "rt", encoding="ascii") as trace:
            self.assertIn("a 0 512 0 1\n", trace.read())
        self.replay(out)

    def test_every_protocol_is_read(self):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            self.write([event("alloc", 0x1000, 1 << 33)], protocol=protocol)
            self.convert()
            self.assertEqual(self.lines(), ["a 0 8589934592 0 1"])

    def test_no_class_or_function_that_a_pickle_names_is_touched(self):
        marker = self.folder / "made_by_a_pickle"
        for value in (Hostile(str(marker)), collections.OrderedDict(a=1), len):
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                self.snapshot.write_bytes(pickle.dumps(
                    {"segments": [], "device_traces": [[]], "x": value}, protocol))
                with self.assertRaisesRegex(ValueError, "it names .*plain values alone"):
                    self.convert()
        self.assertFalse(marker.exists())
        self.assertFalse(self.trace.exists())

    def test_what_is_no_snapshot_is_said(self):
        for data, text in ((b"", "cannot be read"), (b"\x80\x04", "cannot be read"),
                           (b"text", "cannot be read"), (b"\x1f\x8bxx", "cannot be read"),
                           (pickle.dumps([1]), "no device_traces"),
                           (pickle.dumps({"device_traces": 1}), "no device_traces"),
                           (pickle.dumps({"device_traces": []}), "has 0 devices"),
                           (pickle.dumps({"device_traces": [[]]}), "_record_memory_history"),
                           (pickle.dumps({"device_traces": [[event("alloc", -1, 1)]]}), "addr of"),
                           (pickle.dumps({"device_traces": [[event("alloc", 1, "x")]]}), "size of"),
                           (pickle.dumps({"device_traces": [[1]]}), "event 0 of device 0 is 1;"),
                           (pickle.dumps({"device_traces": [None]}), "device 0 is None;"),
                           (b"\x80\x04}.}", "no device_traces"), (b"\x80\x04}", "ends too early")):
            self.snapshot.write_bytes(data)
            with self.assertRaisesRegex(ValueError, text, msg=data):
                self.convert()
        self.write([event("alloc", 0x1000, 512)])
        with self.assertRaisesRegex(ValueError, "none is number 1"):
            self.convert(device=1)
        self.assertFalse(self.trace.exists())

    def test_every_value_is_looked_at_before_it_is_used(self):
        block = {"address": 4096, "size": 512, "state": "active_allocated"}
        lines = "512 0 0\nf 0 0\n# "
        for events, segments, text in (
                ([event([], 4096, 512)], (), "action of event 0 of device 0 is a list"),
                ([event("alloc", [], 512)], (), "addr of event 0 of device 0 is a list"),
                ([event("alloc", 1 << 64, 512)], (), "addr of event 0 .* from 0 to 1844674407370955"),
                ([event("alloc", 4096, lines)], (), r"size of event 0 .* is '512 0 0\\nf 0 0"),
                ([event("alloc", 4096, True)], (), "size of event 0 .* is True"),
                ([event("alloc", 4096, 1 << 64)], (), "size of event 0"),
                ([event("alloc", 4096, 1 << 80)], (), "more than 64 bits"),
                ([event("alloc", 4096, 1 << 70000)], (), "is no part of a snapshot"),
                ([event("alloc", 4096, 512, stream="0")], (), "stream of event 0"),
                ([event("alloc", 4096, 512, time=1 << 60)], (), "time_us of event 0"),
                ([event("snapshot", 0, 0), {"action": "alloc", "addr": 1}], (),
                 "size of event 1 of device 0 is missing"),
                ([event("snapshot", 0, 0)], ["x"], "segment 0 is 'x'; expected a dict"),
                ([event("snapshot", 0, 0)], [{"address": 1, "blocks": 7}], "blocks of segment 0 is 7"),
                ([event("snapshot", 0, 0)], [{"address": 1, "blocks": [None]}],
                 "block 0 of segment 0 is None"),
                ([event("snapshot", 0, 0)], [{"address": 1, "blocks": [{"state": "inactive"}]}],
                 "size of block 0 of segment 0 is missing"),
                ([event("snapshot", 0, 0)],
                 [{"address": 1, "blocks": [dict(block, requested_size=lines)]}],
                 "requested_size of block 0 of segment 0 is '512"),
                ([event("snapshot", 0, 0)], [{"address": 1, "device": None, "blocks": [block]}],
                 "device of segment 0 is None")):
            self.write(events, segments)
            with self.assertRaisesRegex(ValueError, text, msg=(events, segments)) as raised:
                self.convert()
            self.assertEqual(type(raised.exception).__name__, "SnapshotError")
            self.assertLess(len(str(raised.exception)), 400)
        self.snapshot.write_bytes(pickle.dumps({"device_traces": [[event("snapshot", 0, 0)]],
                                                "segments": 3}))
        with self.assertRaisesRegex(ValueError, "segments of the snapshot is 3; expected a list"):
            self.convert()
        self.assertFalse(self.trace.exists())

    def test_what_is_read_is_bound_by_the_files_size(self):
        blocks = [{"size": 512, "state": "inactive"}] * 2000
        segments = [{"address": i, "blocks": blocks} for i in range(2000)]
        count = (1 << 30).to_bytes(8, "little")
        for data, text in (
                (b"\x80\x02Nr\xff\xff\xff\x02.", "place 50331647 of its memo"),
                (b"\x80\x02Np50331647\n.", "place 50331647 of its memo"),
                (b"\x80\x02Np" + b"1" * 5000 + b"\n.", "no line ends within 64 bytes"),
                (b"L" + b"1" * 5000 + b"L\n.", "no line ends within 64 bytes"),
                (b"\x80\x04\x8e" + count + b".", "ends too early"),
                (b"\x80\x04\x8d" + count + b".", "ends too early"),
                (b"\x80\x04\x95" + count + b".", "ends too early"),
                (b"\x80\x04\x8a\x0a" + b"\x01" * 10 + b".", "more than 64 bits"),
                (b"\x80\x05\x96" + count + b".", "no part of a snapshot"),
                (b"\x80\x04\x8f.", "no part of a snapshot"),      # a set
                (b"\x80\x02\x82\x01.", "no part of a snapshot"),  # a registered extension
                (gzip.compress(b"\x80\x04" + b"N0" * (16 << 20) + b"}."), "unpack to more than"),
                (pickle.dumps({"device_traces": [[event("snapshot", 0, 0)]], "segments": segments}),
                 "one of its blocks is there twice, as one value")):
            self.snapshot.write_bytes(data)
            began = time.monotonic()
            tracemalloc.start()
            with self.assertRaisesRegex(ValueError, text, msg=data[:40]):
                self.convert()
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(time.monotonic() - began, 20, data[:40])
            # What a packed file of 33 KiB may unpack to, and one more time.
            self.assertLess(most, 64 << 20, data[:40])

    def test_keys_are_texts(self):
        # Hashed, these would end the interpreter, take 2^60 steps, or meet in one place.
        deep = b"\x80\x04})" + b"\x85" * 1000000 + b"Ns."
        graph = b"\x80\x04})\x94" + b"h\x00h\x00\x86\x94h\x01h\x01\x86q\x01" * 60 + b"Ns."
        for data in (deep, gzip.compress(deep), graph, b"\x80\x04}(K\x01Nu.",
                     b"\x80\x04(K\x01Nd."):
            self.snapshot.write_bytes(data)
            with self.assertRaisesRegex(ValueError, "a key is not a text"):
                self.convert()

    def test_one_value_is_not_many(self):
        for events, segments in (([event("alloc", 1, 1)] * 2, ()),
                                 ([event("alloc", 1, 1)], [{"address": 0}] * 2)):
            one = {id(entry): entry for entry in (*events, *segments)}
            self.assertLess(len(one), len(events) + len(segments))
            self.write(events, segments)
            with self.assertRaisesRegex(ValueError, "is there twice, as one value"):
                self.convert()

    def test_a_history_of_more_time_than_a_trace_has(self):
        self.write([event("alloc", 1, 1, time=0), event("alloc", 2, 1, time=1 << 53),
                    event("alloc", 3, 1)])
        with self.assertRaisesRegex(ValueError, "longer than"):
            self.convert()

    def test_more_values_than_are_read(self):
        from gpupool.torch import _plain_pickle
        self.write([event("alloc", 0x1000 * i, 512) for i in range(1, 20)])
        most, _plain_pickle.MAX_VALUES = _plain_pickle.MAX_VALUES, 50
        try:
            with self.assertRaisesRegex(ValueError, "more than 50 values"):
                self.convert()
        finally:
            _plain_pickle.MAX_VALUES = most
        with self.assertRaisesRegex(_plain_pickle.PickleError, "more than 100 bytes"):
            _plain_pickle.load(self.snapshot, max_bytes=100)

    def test_more_streams_than_the_format_has(self):
        self.write([event("alloc", 0x1000 * i, 512, stream=i) for i in range(1, 5000)])
        with self.assertRaisesRegex(ValueError, "more than 4096 streams"):
            self.convert()


if __name__ == "__main__":
    child.main()
