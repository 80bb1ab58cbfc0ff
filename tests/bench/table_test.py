#!/usr/bin/env python3
"""bench/table.py: a missed target is in the table and in the exit status, wrong input is said."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import table  # noqa: E402  (found in bench/)


def run_of(name, ns, **more):
    return {"name": name, "run_type": "iteration", "real_time": 2 * ns, "cpu_time": ns,
            "time_unit": "ns", **more}


class TableTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, name, *runs):
        (self.folder / name).write_text(json.dumps({"context": {}, "benchmarks": runs}))

    def run_table(self, *options):
        """(exit code, {benchmark: rest of its line}, all output)"""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = table.main([str(self.folder), *options])
        text = output.getvalue()
        rows = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
        return code, {name: " ".join(rest.split()) for name, rest in rows.items()}, text

    def test_a_target_that_is_met(self):
        self.write("a.json", run_of("pair/512", 11.9))
        code, rows, text = self.run_table()
        self.assertEqual(rows["pair/512"], "11.9 ns <= 12 ns ok")
        self.assertEqual(code, 0, text)
        self.assertIn("1 targets, 1 met, 0 missed", text)

    def test_a_missed_target_is_reported_and_the_exit_status_says_so(self):
        self.write("a.json", run_of("pair/512", 12.1), run_of("pair/4096", 9))
        code, rows, text = self.run_table()
        self.assertEqual(rows["pair/512"], "12.1 ns <= 12 ns MISSED")
        self.assertEqual(rows["pair/4096"], "9.00 ns <= 12 ns ok")
        self.assertEqual(code, 1, text)
        self.assertIn("2 targets, 1 met, 1 missed", text)

    def test_the_best_of_all_rounds_counts_and_aggregates_do_not(self):
        self.write("a-1.json", run_of("pair/512", 30), run_of("pair/512", 10),
                   run_of("pair/512", 1, run_type="aggregate"))
        self.write("a-2.json", run_of("pair/512", 11))
        self.assertEqual(self.run_table()[1]["pair/512"], "10.0 ns <= 12 ns ok")

    def test_several_threads_are_measured_by_the_wall_clock_and_the_median(self):
        self.write("a.json", *(run_of("producer_consumer/2/512", ns) for ns in (5, 21, 90)))
        code, rows, _ = self.run_table()
        self.assertEqual(rows["producer_consumer/2/512"], "42.0 ns <= 40 ns MISSED")
        self.assertEqual(code, 1)

    def test_throughput_is_better_when_higher(self):
        for pairs, code in ((18.0, 0), (17.9, 1)):
            self.write("a.json", run_of("pair_threads/1", 1, million_pairs_per_s=10.0),
                       run_of("pair_threads/2", 1, million_pairs_per_s=pairs))
            self.assertEqual(self.run_table()[0], code, pairs)
        self.assertEqual(self.run_table()[1]["pair_threads/2 / pair_threads/1"],
                         "1.79 x >= 1.8 x MISSED")

    def test_ratios_and_differences(self):
        self.write("a.json", run_of("pair/4096", 10), run_of("mimalloc_pair/4096", 4),
                   run_of("stats_off_pair/4096", 8.5))
        code, rows, _ = self.run_table()
        self.assertEqual(rows["pair/4096 / mimalloc_pair/4096"], "2.50 x <= 2 x MISSED")
        self.assertEqual(rows["pair/4096 - stats_off_pair/4096"], "1.50 ns <= 2 ns ok")
        self.assertEqual(code, 1)

    def test_traces_each_and_in_the_mean(self):
        self.write("a.json", run_of("replay/a", 1, ns_per_op=29), run_of("replay/b", 1, ns_per_op=17))
        code, rows, _ = self.run_table()
        self.assertEqual(rows["replay/a"], "29.0 ns <= 30 ns ok")
        self.assertEqual(rows["replay, mean of 2"], "23.0 ns <= 22 ns MISSED")
        self.assertEqual(code, 1)

    def test_instructions(self):
        self.write("a.json", run_of("pair_raw/512", 1))
        result = {"name": "instructions/pair/512", "value": 200.0, "ceiling": 300, "goal": 190,
                  "unit": ""}
        (self.folder / "i.json").write_text(json.dumps([result]))
        code, rows, _ = self.run_table()
        self.assertEqual(rows["instructions/pair/512"], "200 instr <= 190 instr MISSED")
        self.assertEqual(rows["pair_raw/512"], "1.00 ns")
        self.assertEqual(code, 1)

    def test_what_failed_is_no_success(self):
        self.write("a.json", run_of("pair/4096", 5),
                   run_of("mimalloc_pair/4096", 0, error_occurred=True, error_message="not there"))
        code, rows, text = self.run_table()
        self.assertEqual(rows["mimalloc_pair/4096"], "not there")
        self.assertEqual(rows["pair/4096 / mimalloc_pair/4096"], "not measured <= 2 x MISSED")
        self.assertEqual(code, 1, text)

    def test_complete_misses_what_was_not_measured(self):
        self.write("a.json", run_of("pair/512", 5))
        self.assertEqual(self.run_table()[0], 0)
        code, rows, text = self.run_table("--complete")
        self.assertEqual(code, 1, text)
        self.assertEqual(rows["pair_threads/2 / pair_threads/1"], "not measured >= 1.8 x MISSED")
        self.assertIn("MISSED", rows["scrape/1000000"])

    def test_large_times_have_units_of_their_own(self):
        self.write("a.json", run_of("scrape/1000000", 0.21, time_unit="ms"))
        self.assertEqual(self.run_table()[1]["scrape/1000000"], "210 us <= 200 us MISSED")

    def test_columns_stand_below_each_other(self):
        self.write("a.json", run_of("pair/512", 5), run_of("shared_pair/268435456", 12345),
                   run_of("mimalloc_pair/512", 0, error_occurred=True, error_message="x" * 60))
        lines = [line for line in self.run_table()[2].splitlines() if "<=" in line]
        self.assertEqual(len({line.index("<=") for line in lines}), 1, lines)

    def test_wrong_input_is_said(self):
        self.assertEqual(self.run_table()[0], 2)  # nothing there
        (self.folder / "a.json").write_text("{")
        code, _, text = self.run_table()
        self.assertEqual(code, 2)
        self.assertIn("a.json", text)
        for content in ('{"other": 1}', '{"benchmarks": [{"name": "pair/1"}]}', '[{"name": "x"}]'):
            (self.folder / "a.json").write_text(content)
            self.assertEqual(self.run_table()[0], 2, content)
        self.folder = self.folder / "missing"
        code, _, text = self.run_table()
        self.assertEqual(code, 2)
        self.assertIn("no such folder", text)


if __name__ == "__main__":
    unittest.main()
