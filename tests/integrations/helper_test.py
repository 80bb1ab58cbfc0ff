#!/usr/bin/env python3
"""gpupool.torch on the simulated device, without PyTorch: reports, tags, recordings.

Usage: helper_test.py --library PLUGIN --package FOLDER [--gpupool PROGRAM]
"""

import gzip
import json
import pathlib
import subprocess
import tempfile
import unittest

import child


class HelperTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_child(self, code, **environment):
        return child.run(code, self.folder, **environment)

    def test_importing_loads_nothing(self):
        child.run("""
            import sys
            import gpupool.torch
            assert "torch" not in sys.modules and gpupool.torch._library._loaded is None
        """, self.folder, prelude="", GPUPOOL_TORCH_LIBRARY="/nowhere.so")

    def test_memory_stats_of_a_device_without_a_pool_are_empty(self):
        self.run_child("""
            assert pool.memory_stats() == {} and pool.snapshot() == []
            assert pool.last_failure() is None and pool.trim() == 0 and pool.url() is None
            assert pool.maintain() is False
        """)

    def test_memory_stats_add_up(self):
        self.run_child("""
            blocks = [alloc(3 * MIB, 0, None), alloc(100, 0, None)]
            free(alloc(MIB, 0, None), MIB, 0, None)
            stats = pool.memory_stats("cuda:0")
            assert stats["requested_bytes.all.current"] == 3 * MIB + 100
            assert stats["allocated_bytes.all.current"] >= 3 * MIB + 512
            assert stats["requested_bytes.all.allocated"] == 4 * MIB + 100
            assert stats["requested_bytes.all.freed"] == MIB
            assert stats["requested_bytes.all.peak"] == 4 * MIB + 100
            assert stats["allocation.all.current"] == 2
            assert stats["allocation.all.allocated"] == 3 and stats["allocation.all.freed"] == 1
            assert stats["num_ooms"] == 0 and stats["num_device_alloc"] >= 1
            assert stats["reserved_bytes.all.current"] == stats["gpupool.held_bytes"]
            own = {name[8:]: n for name, n in stats.items() if name.startswith("gpupool.")}
            assert own["held_bytes"] == sum(own[name + "_bytes"] for name in
                ("live_requested", "waste", "cached", "pending", "free"))
            assert own["requests"] == own["hits"] + own["misses"]
            assert sum(n for name, n in own.items() if name.startswith("misses_by_reason.")) == \\
                own["misses"]
            assert 0 <= own["fragmentation_ratio"] <= 1
            assert own["start_unix_ns"] > 1 << 53 and isinstance(own["start_unix_ns"], int)
            pool.reset_peak_memory_stats()
            assert pool.memory_stats()["requested_bytes.all.peak"] == 3 * MIB + 100
            for wrong in ("cpu", "cuda:x", "0"):
                fails(lambda: pool.memory_stats(wrong), "expected a CUDA device", kind=ValueError)
        """)

    def test_statistics_name_what_the_exporter_names(self):
        if child.arguments.gpupool is None:
            return  # a build without the exporter serves nothing to compare with
        (self.folder / "served.yaml").write_text("exporter: {port: 0}\n", encoding="utf-8")
        self.run_child("""
            import urllib.request
            alloc(MIB, 0, None)
            with urllib.request.urlopen(pool.url() + "api/v1/stats", timeout=10) as answer:
                served = json.load(answer)["stats"]
            names = set()
            for name, value in served.items():
                if isinstance(value, dict):
                    names.update(f"{name}.{key}" for key, n in value.items()
                                 if isinstance(n, (int, float)))
                elif isinstance(value, (int, float)) and not isinstance(value, bool):
                    names.add(name)
            names -= {"size", "version"}
            own = {name[8:] for name in pool.memory_stats() if name.startswith("gpupool.")}
            assert own == names, own ^ names
        """, GPUPOOL_CONFIG="served.yaml")

    def test_snapshot_has_every_block(self):
        self.run_child("""
            with pool.tag("weights"):
                kept = alloc(3 * MIB, 0, None)
            free(alloc(4096, 0, None), 4096, 0, None)
            blocks = pool.snapshot()
            assert [b["address"] for b in blocks] == sorted(b["address"] for b in blocks)
            live = [b for b in blocks if b["state"] == "active_allocated"]
            assert len(live) == 1 and live[0]["address"] == kept
            assert live[0]["requested_size"] == 3 * MIB and live[0]["tag"] == "weights"
            assert live[0]["stream"] == 0  # the legacy default stream
            assert {b["gpupool_state"] for b in blocks} == {"live", "cached", "free"}
            stats = pool.memory_stats()
            many = [alloc(512, 0, None) for _ in range(5000)]
            assert sum(b["gpupool_state"] == "live" for b in pool.snapshot()) == 5001
        """)

    def test_snapshots_beside_threads_that_hold_the_interpreter(self):
        self.run_child("""
            stop = False
            def work():
                while not stop:
                    free(alloc(MIB, 0, None), MIB, 0, None)
            alloc(MIB, 0, None)
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads: thread.start()
            for _ in range(200):
                assert pool.snapshot()
                pool.memory_stats()
            stop = True
            for thread in threads: thread.join()
        """)

    def test_tags_nest_and_are_the_threads_own(self):
        self.run_child("""
            def live(name):
                return pool.memory_stats()["gpupool.tag_live_bytes." + name]
            with pool.tag("activations"):
                alloc(MIB, 0, None)
                with pool.tag("weights"):
                    alloc(2 * MIB, 0, None)
                alloc(4 * MIB, 0, None)
                other = threading.Thread(target=lambda: alloc(8 * MIB, 0, None))
                other.start()
                other.join()
            alloc(16 * MIB, 0, None)
            assert live("activations") == 5 * MIB and live("weights") == 2 * MIB
            @pool.tag("optimizer")
            def step():
                alloc(MIB, 0, None)
            step()
            step()
            assert live("optimizer") == 2 * MIB
            fails(lambda: pool.tag("nothing").__enter__(), "no tag is named 'nothing'", "weights")
            alloc(MIB, 0, None)
            assert live("optimizer") == 2 * MIB
        """)

    def test_a_decorated_function_may_run_in_several_threads_and_call_itself(self):
        self.run_child("""
            set_tag = library.gpupool_set_tag
            def current():
                tag = set_tag(0xff)
                set_tag(tag)
                return tag
            first_in, second_in, first_out = (threading.Event() for _ in range(3))
            @pool.tag("weights")
            def step(depth, say, wait):
                inside = current()
                if depth: step(depth - 1, say, wait)
                else:
                    say.set()
                    assert wait.wait(20)
                assert current() == inside
            left = {}
            def work(name, tag, say, wait):
                with pool.tag(tag):
                    before = current()
                    step(3, say, wait)
                    left[name] = (before, current())
            def first():
                work("first", "activations", first_in, second_in)
                first_out.set()
            def second():
                assert first_in.wait(20)
                work("second", "optimizer", second_in, first_out)
            threads = [threading.Thread(target=target) for target in (first, second)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert len(left) == 2, left
            for before, after in left.values():
                assert before == after, left
        """)

    def test_last_failure_has_numbers_and_a_text(self):
        self.run_child("""
            alloc(MIB, 0, None)
            assert pool.last_failure() is None
            assert alloc(1 << 50, 0, None) is None
            failure = pool.last_failure()
            assert failure["error"] == "limit_exceeded" and failure["reason"] == "size"
            assert failure["requested_bytes"] == 1 << 50
            assert failure["live_requested_bytes"] == MIB
            assert failure["limit_kind"] == "capacity_fraction" and "grow" in failure["rungs"]
            assert failure["last_misses"][-1]["bytes"] == MIB
            assert "limit_exceeded" in failure["text"] and "1.00 PiB" in failure["text"]
        """)

    def test_trim_gives_everything_that_is_empty_back(self):
        self.run_child("""
            free(alloc(64 * MIB, 0, None), 64 * MIB, 0, None)
            free(alloc(100, 0, None), 100, 0, None)
            assert pool.trim() >= 64 * MIB
            assert pool.memory_stats()["reserved_bytes.all.current"] == 0
        """)

    def test_a_recording_is_a_trace_that_replays(self):
        out, _ = self.run_child("""
            kept = alloc(5 * MIB, 0, None)
            with pool.record("job.trace.gz") as recording:
                for _ in range(10):
                    free(alloc(MIB, 0, None), MIB, 0, None)
                fails(lambda: pool.record("second.trace"), "record")
            report = recording.stop()
            assert recording.stop() == report
            print(json.dumps(report))
            with pool.record("plain.trace") as plain:
                pass
            assert plain.stop()["file_bytes"] == os.path.getsize("plain.trace")
            fails(lambda: pool.record("/nowhere/at/all.trace"), "/nowhere/at/all.trace")
        """)
        report = json.loads(out)
        self.assertEqual((report["allocations"], report["frees"], report["live_at_start"]),
                         (10, 10, 1))
        self.assertEqual(report["end"], "stopped")
        self.assertEqual(report["file_bytes"], (self.folder / "job.trace.gz").stat().st_size)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["job.trace.gz", "plain.trace"])
        with gzip.open(self.folder / "job.trace.gz", "rt", encoding="ascii") as trace:
            self.assertEqual(next(trace), "# gpupool allocation trace, version 1\n")
        if child.arguments.gpupool:
            subprocess.run([child.arguments.gpupool, "replay", "--device", "sim", "--passes", "1",
                            "job.trace.gz"], cwd=self.folder, check=True, timeout=60,
                           stdout=subprocess.DEVNULL)

    def test_a_forked_child_gets_errors_and_leaves_the_recording_alone(self):
        self.run_child("""
            alloc(MIB, 0, None)
            recording = pool.record("job.trace")
            child = os.fork()
            if child == 0:
                fails(lambda: pool.record("x.trace"), "this process was forked", "spawn")
                assert alloc(MIB, 0, None) is None and pool.memory_stats() == {}
                assert pool.plugin_counters()["calls_after_fork"] >= 1
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            free(alloc(MIB, 0, None), MIB, 0, None)
            assert recording.stop()["frees"] == 1
        """)


if __name__ == "__main__":
    child.main()
