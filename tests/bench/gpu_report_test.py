#!/usr/bin/env python3
"""bench/gpu_report.py: a whole run, runs in which a part is missing, and what is written to a page.

Usage: gpu_report_test.py BENCH_FOLDER
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import markdown_text  # noqa: E402  (found beside what is tested)
import gpu_report  # noqa: E402

BEGIN, END = markdown_text.marks(gpu_report.OWNER)


def system(name, **parts):
    result = {"system": name, "error": None, "pairs": [], "threads_bytes": 1 << 20, "threads": [],
              "traces": [], "burst": None}
    result.update(parts)
    return result


def trace(name, ns, **parts):
    result = {"trace": name, "operations": 10, "trace_operations": 10, "passes": 9,
              "ns_per_op_median": ns, "ns_per_op_least": ns, "failed": 0,
              "peak_requested_bytes": 1000000, "peak_held_bytes": 1183000,
              "driver_allocations_cold": 7, "driver_allocations_warm": 0, "driver_calls_cold": 21,
              "driver_calls_warm": 0}
    result.update(parts)
    return result


def pair(size, ns, failed=0):
    return {"bytes": size, "ns_median": ns, "ns_least": ns, "failed": failed}


def replay_pass(number, ns, calls):
    return {"trace": "folder/small.trace.gz", "pass": number, "failed": 0, "ns_per_op": ns,
            "driver_calls": calls, "driver_seconds": 0.0054, "peak_requested_bytes": 2000000,
            "peak_held_bytes": 2100000}


def recycled_pass(held, driver_ms, wait_ms=0.0, **parts):
    kinds = {kind: {"calls": 0, "ns": 0}
             for kind in ("create", "map", "set_access", "unmap", "release")}
    kinds["map"] = {"calls": 1000, "ns": int(driver_ms * 1e6)}
    result = {"operations": 10, "failed": 0, "served_after_wait": 0, "seconds": 1.5,
              "peak_requested_bytes": 1000000, "peak_held_bytes": held, "pages_recycled": 12,
              "driver_wait_ns": int(wait_ms * 1e6), "driver": kinds, "wrong_words": 0}
    result.update(parts)
    return result


def recycled_run(setting, modelled, idle, busy, wrong=0):
    def played(passes):
        return {"error": None, "wrong_words": wrong, "first_wrong_word": None,
                "passes": passes} if passes else None
    return {"trace": "small", "setting": setting, "trace_seconds": 2.0, "capacity_bytes": None,
            "modelled": played(modelled), "idle": played(idle), "busy": played(busy)}


def recycling(runs, **parts):
    result = {"device": {}, "settings": [], "runs": runs, "aliases": [], "chains": [],
              "left_out": [], "faults": []}
    result.update(parts)
    return result


FACTS = {"sentences": ["cudaMalloc does not zero memory.", "cudaFree waits."], "job_ms": 20.0,
         "stalls": [{"call": "cudaFree", "bytes": 16 << 20, "rounds": 11, "idle_us": 46.0,
                     "busy_us": 19000.0, "waited": 11}]}


class Folder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.parts = pathlib.Path(place.name)

    def put(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.parts / name).write_text(text, encoding="utf-8")

    def put_whole_run(self):
        ours = system("gpupool", pairs=[pair(512, 6.4), pair(1 << 20, 8.0)],
                      threads=[{"threads": 1, "million_pairs_per_second": 120.5, "failed": 0},
                               {"threads": 16, "million_pairs_per_second": 1650.25, "failed": 0}],
                      traces=[trace("small", 21.4)],
                      burst={"blocks": 10000, "bytes": 1 << 20, "warm_rounds": 5, "failed": 0,
                             "cold": {"allocate_us": 20, "free_us": 0.2, "total_ms": 202},
                             "warm": {"allocate_us": 0.031, "free_us": 0.024, "total_ms": 0.55}})
        self.put("peers.json", {
            "device": {"name": "NVIDIA H200"}, "machine": None, "cudamalloc_facts": FACTS,
            "systems": [system("cudaMalloc", pairs=[pair(512, 76000.0)],
                               traces=[trace("small", 80000, operations=5, peak_held_bytes=None)]),
                        ours], "left_out": []})
        self.put("peers-torch.json", {"systems": [system("PyTorch", pairs=[pair(512, 394.0)],
                                                         traces=[trace("small", 311)])]})
        self.put("replay-cuda-vmm.json", [replay_pass(1, 300, 370), replay_pass(2, 20, 0),
                                          replay_pass(3, 24, 1)])
        self.put("tests.log", "...\n100% tests passed, 0 tests failed out of 36\n")
        self.put("device.txt", "NVIDIA H200, 580.1, 143771 MiB\n")

    def report(self):
        return gpu_report.report(gpu_report.collect(self.parts))

    def test_a_whole_run(self):
        self.put_whole_run()
        report = self.report()
        self.assertIn("NVIDIA H200, 580.1, 143771 MiB\n100% tests passed", report)
        self.assertIn("| system | 512 B | 1 MiB |", report)
        self.assertIn("| gpupool | 6 | 8 |", report)
        self.assertIn("| gpupool | 120.50 | 1650.25 |", report)
        self.assertIn("| small | gpupool | 21 | 1.183 | 1 | 7 | 0 |", report)
        self.assertIn("| gpupool | 0.031 | 0.024 | 0.55 | 20.000 | 0.200 | 202.00 |", report)
        self.assertIn("Allocate 10000 blocks of 1 MiB", report)
        self.assertIn("| small | VMM | 0 | 22 | 370 | 1 | 5.4 | 2 | 2 | 1.050 |", report)
        self.assertIn("cudaMalloc does not zero memory. cudaFree waits.", report)
        self.assertIn("| cudaFree | 16 MiB | 46.0 | 19000.0 | 11 of 11 |", report)

    def put_recycling(self):
        self.put("recycling-a.json", recycling(
            [recycled_run("off", [recycled_pass(1170000, 9)], [recycled_pass(1170000, 8)],
                          [recycled_pass(1180000, 9)]),
             recycled_run("eager-wait",
                          [recycled_pass(1010000, 90, 60), recycled_pass(1010000, 40, 20)],
                          [recycled_pass(1012000, 80, 50), recycled_pass(1011000, 30, 10)],
                          [recycled_pass(1100000, 85), recycled_pass(1090000, 33, 15)])],
            aliases=[{"reader": "starts after the write", "is_alias": True, "rounds": 200,
                      "rounds_already_there": 0, "words": 3276800, "old_words": 0}]))
        self.put("recycling-b.json", recycling(
            [recycled_run("pressure-wait", [], [], [recycled_pass(1020000, 85, failed=2)], 7)],
            chains=[{"alias_reuse": "wait", "links": 6000, "pages_recycled": 345,
                     "served_after_wait": 6, "wrong_words": 0, "error": None}],
            faults=[{"what": "small, pressure-wait", "why": "7 words were not their block's"}],
            left_out=[{"what": "small, eager-5-wait", "why": "the time was over"}]))

    def test_what_recycling_holds_and_costs_stands_beside_the_model(self):
        self.put_recycling()
        report = self.report()
        self.assertIn("| small | 1.170 (1.170) | 1.012 (1.010) |  | 1.180, 1.100, - "
                      "| 7 in 3 settings | 30.0 (40.0) |  | 0.50 % (1.00 %) |  |", report)
        self.assertIn("| small | eager-wait | 1.012 (1.010) | 1.100 | 0 | 12 | 0 | 80.0 (90.0) "
                      "| 30.0 (40.0) | 33.0 | 0.50 % (1.00 %) | 0.75 % | 1.50 |", report)
        self.assertIn("| small | pressure-wait |  | 1.020 (2 failed) | 7 |", report)
        # Calls of all runs by kind, and what each took in the mean.
        self.assertIn("| map | 3000 | 46.3 | 3000 | 39.3 | 4000 | 53.0 |", report)
        self.assertIn("| starts after the write | the other | 0 of 200 | 0 of 3276800 |", report)
        self.assertIn("| wait | 6000 | 345 | 6 | 0 |", report)

    def test_words_that_were_wrong_and_what_was_left_out_are_notes(self):
        self.put_recycling()
        report = self.report()
        self.assertIn("- WRONG: small, pressure-wait: 7 words were not their block's", report)
        self.assertIn("- small, eager-5-wait: the time was over", report)

    def test_the_closing_table_is_printed_by_itself(self):
        self.put_whole_run()
        results = self.parts / "results.json"
        for expected in ("no page recycling", "| small | 1.170 (1.170) |"):
            gpu_report.main(["collect", str(self.parts), str(results)])
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                gpu_report.main(["closing", str(results)])
            self.assertIn(expected, text.getvalue())
            self.assertNotIn("###", text.getvalue())
            self.put_recycling()

    def test_systems_stand_in_one_order_and_a_column_one_lacks_is_empty(self):
        self.put_whole_run()
        report = self.report()
        self.assertLess(report.index("| gpupool | 6"), report.index("| PyTorch | 394 |  |"))
        self.assertLess(report.index("| PyTorch | 394"), report.index("| cudaMalloc | 76000 |  |"))

    def test_a_trace_played_in_part_says_so(self):
        self.put_whole_run()
        self.assertIn("| small | cudaMalloc | 80000 (first 5) |  |  | 7 | 0 |", self.report())

    def test_missing_peers_are_named(self):
        self.put_whole_run()
        self.put("notes.txt", "rmm was not found\n")
        report = self.report()
        self.assertIn("- rmm was not found", report)
        self.assertIn("- not measured: gpupool, maintained in the loop, gpupool, recycling off, "
                      "gpupool, raw stream, "
                      "PyTorch, expandable segments, RMM pool, "
                      "RMM arena, cudaMallocAsync", report)

    def test_a_part_cut_short_is_a_note_and_the_rest_stays(self):
        self.put_whole_run()
        self.put("peers-torch.json", '{"systems": [')
        self.put("replay-cuda-vmm.json", "")
        report = self.report()
        self.assertIn("- peers-torch.json: ", report)
        self.assertIn("- replay-cuda-vmm.json: empty", report)
        self.assertIn("| gpupool | 6 | 8 |", report)
        self.assertNotIn("gpupool replay", report)

    def test_what_failed_stands_beside_its_figure(self):
        self.put("peers.json", {"systems": [system("gpupool", pairs=[pair(512, 6, failed=3)])]})
        self.assertIn("| gpupool | 6 (3 failed) |", self.report())

    def test_a_system_that_stopped_half_way_gives_its_reason(self):
        self.put("peers.json", {"systems": [system("PyTorch", error="out of memory",
                                                   pairs=[pair(512, 394)])],
                                "left_out": [{"what": "cudamalloc_facts", "why": "needs a GPU"}]})
        report = self.report()
        self.assertIn("- PyTorch: out of memory", report)
        self.assertIn("- cudamalloc_facts: needs a GPU", report)
        self.assertIn("| PyTorch | 394 |", report)

    def test_nothing_at_all_is_an_error(self):
        with self.assertRaises(SystemExit) as stopped:
            gpu_report.main(["collect", str(self.parts), str(self.parts / "results.json")])
        self.assertEqual(stopped.exception.code, "nothing was measured")

    def test_the_page_is_written_between_its_markers_and_nowhere_else(self):
        self.put_whole_run()
        results, page = self.parts / "results.json", self.parts / "page.md"
        gpu_report.main(["collect", str(self.parts), str(results)])
        page.write_text(f"before\n{BEGIN}\nfigures of before\n{END}\nafter\n")
        for _ in range(2):  # the second time finds its own text
            with contextlib.redirect_stdout(io.StringIO()):
                gpu_report.main(["write", str(results), str(page)])
            text = page.read_text()
            self.assertTrue(text.startswith(f"before\n{BEGIN}\n\nNVIDIA H200"))
            self.assertTrue(text.endswith(f"\n\n{END}\nafter\n"))
            self.assertNotIn("figures of before", text)
            self.assertEqual(text.count("| gpupool | 6 | 8 |"), 1)

    def test_what_the_simulated_device_gave_is_not_written(self):
        self.put_whole_run()
        (self.parts / "device.txt").unlink()
        results, page = self.parts / "results.json", self.parts / "page.md"
        gpu_report.main(["collect", str(self.parts), str(results)])
        before = f"{BEGIN}\n{END}\n"
        page.write_text(before)
        with self.assertRaises(SystemExit):
            gpu_report.main(["write", str(results), str(page)])
        self.assertEqual(page.read_text(), before)

    def test_a_page_without_markers_is_left_alone(self):
        self.put_whole_run()
        results, page = self.parts / "results.json", self.parts / "page.md"
        gpu_report.main(["collect", str(self.parts), str(results)])
        page.write_text("no markers\n")
        with self.assertRaises(SystemExit):
            gpu_report.main(["write", str(results), str(page)])
        self.assertEqual(page.read_text(), "no markers\n")


if __name__ == "__main__":
    unittest.main()
