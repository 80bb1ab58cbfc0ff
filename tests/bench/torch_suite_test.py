#!/usr/bin/env python3
"""bench/torch: what is compared with what, what is said of it, and in which order processes run.

Without PyTorch: processes are results made by hand, and the device is a count of the steps that ended.
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "torch"))
import compare  # noqa: E402  (found in bench/torch)
import report  # noqa: E402
import share  # noqa: E402
import suite  # noqa: E402

BEGIN, END = report.markdown_text.marks(report.OWNER)

MIB = 1 << 20
LOSSES = [(0.5).hex(), (0.25).hex()]


def figures(seconds, mib=1000, losses=LOSSES, **more):
    return {"losses": list(losses), "seconds": seconds, "cpu_seconds": seconds / 2,
            "used_bytes": mib * MIB, "step_ms": [1e3 * seconds] * 3, **more}


def process(workloads, **more):
    return {"device": "a card", "torch": "2.11", "workloads": workloads, **more}


def made(native, expandable, gpupool, name="experts"):
    """Results whose rounds have these figures of one workload."""
    runs = {one: [process({name: found}) for found in given]
            for one, given in (("native", native), ("expandable", expandable), ("gpupool", gpupool))}
    checks = {one: process({"out_of_memory": figures(
        1, caught={"type": "OutOfMemoryError", "text": "CUDA out of memory."})})
        for one in ("native", "expandable", "gpupool")}
    checks["mempool"] = process({name: figures(1)})
    return {"wanted": len(native), "runs": runs, "checks": checks, "shares": {}}


def alike(count=3):
    return made(*[[figures(0.1) for _ in range(count)] for _ in range(3)])


class LossesTest(unittest.TestCase):
    def test_equal_losses_are_no_problem(self):
        self.assertEqual(compare.find_problems(alike()), [])
        self.assertIn("| experts | equal |", report.tables(alike()))

    def test_losses_that_differ_in_the_last_bit_are_a_problem_and_in_the_table(self):
        results = alike()
        results["runs"]["gpupool"][1]["workloads"]["experts"]["losses"][1] = (0.25 + 2**-54).hex()
        self.assertEqual(compare.find_problems(results), [
            "gpupool, run 2, experts: losses differ from PyTorch's own allocator"])
        self.assertIn("| experts | DIFFERENT |", report.tables(results))

    def test_losses_that_are_short_of_steps_are_a_problem(self):
        results = alike()
        results["runs"]["gpupool"][0]["workloads"]["experts"]["losses"].pop()
        self.assertEqual(len(compare.find_problems(results)), 1)

    def test_a_process_that_failed_is_a_problem_and_the_others_are_compared(self):
        results = alike()
        results["runs"]["gpupool"][2] = None
        results["runs"]["native"][0] = None
        results["checks"]["mempool"] = None
        self.assertEqual(compare.find_problems(results),
                         ["gpupool, run 3: no results", "mempool, checks: no results"])
        self.assertIn("| experts | DIFFERENT |", report.tables(results))
        self.assertEqual(len(list(compare.rounds(results, "gpupool", "native", "experts"))), 1)

    def test_a_workload_that_raised_and_one_without_a_reference_are_problems(self):
        results = alike()
        results["runs"]["gpupool"][0]["workloads"]["experts"] = {"error": "RuntimeError: no"}
        results["checks"]["mempool"]["workloads"]["gpt2"] = figures(1)
        self.assertEqual(compare.find_problems(results), [
            "gpupool, run 1, experts: RuntimeError: no",
            "mempool, checks, gpt2: PyTorch's own allocator has no losses to compare"])
        self.assertEqual(len(compare.values(results, "gpupool", "experts", "seconds")), 2)
        self.assertIn("| experts | DIFFERENT |", report.tables(results))

    def test_nothing_run_and_nothing_refused_are_problems(self):
        results = alike(0)
        del results["checks"]["gpupool"]["workloads"]["out_of_memory"]["caught"]
        results["checks"]["native"]["workloads"]["experts"] = figures(1)
        self.assertEqual(compare.find_problems(results), [
            "gpupool: no round was run", "gpupool, checks, out_of_memory: nothing was refused"])


class FiguresTest(unittest.TestCase):
    def test_a_ratio_is_of_the_same_round_and_the_median_counts(self):
        # Each round is slower than the last by far more than the allocators differ.
        native = [figures(0.100), figures(0.200), figures(0.300)]
        gpupool = [figures(0.101), figures(0.200), figures(0.309)]
        results = made(native, native, gpupool)
        for found, expected in zip(
                compare.ratio(results, "gpupool", "native", "experts", "seconds"),
                (1.01, 1.0, 1.03)):
            self.assertAlmostEqual(found, expected)
        self.assertIn("| 200.0 (100.0-300.0) | 200.0 (100.0-300.0) | 200.0 (101.0-309.0) "
                      "| 1.010 (1.000-1.030) |", report.tables(results))

    def test_one_step_that_was_held_up_is_in_the_time_and_not_in_the_ratio_by_step(self):
        results = alike()
        held_up = figures(0.2)
        held_up["step_ms"] = [100, 400, 100]
        for one in range(3):
            results["runs"]["gpupool"][one]["workloads"]["experts"] = held_up
        self.assertAlmostEqual(
            compare.ratio(results, "gpupool", "native", "experts", "seconds")[0], 2)
        self.assertEqual(compare.step_ratio(results, "gpupool", "native", "experts"), (1, 1, 1))

    def test_lines_of_the_tables_are_at_most_120_wide(self):
        found = [figures(0.2512, 61234)] * 3
        text = report.tables(made(found, found, found, "checkpointing"))
        self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_limits_that_are_kept(self):
        native, expandable = [figures(0.1, 1100)] * 3, [figures(0.1, 1000)] * 3
        results = made(native, expandable, [figures(0.101, 1010)] * 3)
        self.assertEqual(compare.limits(results), [
            "time of a step, gpupool over PyTorch <= 1.01: within (1 workloads)",
            "memory, gpupool over PyTorch <= 1: within (1 workloads)",
            "memory, gpupool over expandable segments <= 1.01, or at most 32 MiB more: within"
            " (1 workloads)"])

    def test_limits_that_are_not_kept_name_the_workload_and_the_exit_status_does_not_care(self):
        found = [figures(0.1, 5000)] * 3
        results = made(found, found, [figures(0.1021, 5051)] * 3)
        self.assertEqual([line.split(": ")[1] for line in compare.limits(results)], [
            "NOT within (experts 1.021; 1 workloads)", "NOT within (experts 1.010; 1 workloads)",
            "NOT within (experts 1.010; 1 workloads)"])
        self.assertEqual(compare.find_problems(results), [])

    def test_little_more_than_expandable_segments_is_within_whatever_its_ratio(self):
        small = [figures(0.1, 100)] * 3
        results = made(small, small, [figures(0.1, 132)] * 3)
        self.assertIn(": within", compare.limits(results)[2])
        results = made(small, small, [figures(0.1, 133)] * 3)
        self.assertIn(": NOT within (experts 1.330", compare.limits(results)[2])

    def test_without_figures_nothing_is_said_to_be_within(self):
        self.assertEqual([line.split(": ")[1] for line in compare.limits(alike(0))],
                         ["not measured"] * 3)


class ShareTest(unittest.TestCase):
    HISTORY = [
        {"action": "free_requested", "addr": 64, "size": 7, "stream": 0},  # was there before
        {"action": "free_completed", "addr": 64, "size": 7, "stream": 0},
        {"action": "alloc", "addr": 128, "size": 10, "stream": 0},
        {"action": "segment_alloc", "addr": 4096, "size": 2 << 20, "stream": 0},
        {"action": "alloc", "addr": 64, "size": 20, "stream": 0},
        {"action": "free_requested", "addr": 128, "size": 512, "stream": 0},
        {"action": "alloc", "addr": 128, "size": 30, "stream": 0},
        {"action": "free_requested", "addr": 128, "size": 512, "stream": 0},
    ]

    def test_requests_and_frees_in_order(self):
        self.assertEqual(share.operations(self.HISTORY), {
            "operations": [[0, 0], [1, 10], [2, 20], [1, 0], [3, 30], [3, 0]],
            "before": [[0, 7]], "slots": 4})

    def test_another_stream_is_refused(self):
        with self.assertRaises(ValueError):
            share.operations([{"action": "alloc", "addr": 1, "size": 1, "stream": 5}])

    def test_a_pass_asks_for_each_block_once_and_leaves_none(self):
        live, asked = set(), []

        def allocate(size, stream):
            self.assertEqual(stream, 0)
            asked.append(size)
            live.add(len(asked))
            return len(asked)

        recorded = share.operations(self.HISTORY)
        for number in (1, 2):
            self.assertGreaterEqual(share.play(recorded, allocate, live.remove), 0)
            self.assertEqual((asked, live), ([7, 10, 20, 30] * number, set()))

    def test_what_the_loop_takes_itself_is_taken_off(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "recorded.json"
            path.write_text(json.dumps({"steps": 2, **share.operations(self.HISTORY * 200)}))
            found = share.replay(path, lambda size, _: sum(range(300)), lambda _: None)
        self.assertEqual((found["requests"], found["bytes"]), (300, 6000))
        self.assertGreater(found["seconds"], found["python_seconds"])

    def test_the_share_is_of_the_same_allocators_step(self):
        results = alike()
        replay = {"seconds": 0.001, "python_seconds": 0.0005, "requests": 5000,
                  "passes": [0.0045, 0.003, 0.003]}
        for one in ("native", "gpupool"):
            results["checks"][one]["replay"] = dict(replay)
        results["shares"]["none"] = process({"experts": figures(
            0.4, profile={"calls": 10, "driver": 0.1, "step": 0.5})}, replay={
                **replay, "seconds": 0.1, "passes": [0.201, 0.201, 0.201]})
        results["shares"]["no_work"] = process({}, replay={**replay, "seconds": 0.0005,
                                                           "passes": [0.004, 0.002, 0.002]})
        text = report.share_text(results)
        self.assertIn("5000 requests", text)
        self.assertIn("| no pool | 100.00 | 100.00 | 400.0 | 25.00% |", text)
        self.assertIn("| gpupool | 1.75 | 1.00 | 100.0 | 1.00% |", text)
        self.assertIn("| a plug-in that does nothing | 1.50 | 0.50 | 100.0 | 0.50% |", text)
        self.assertIn("100.0 ms of 500.0 ms (20.0%)", text)
        self.assertNotIn("| expandable |", text)

    def test_a_share_that_failed_is_not_in_the_table(self):
        results = alike()
        results["checks"]["gpupool"]["replay"] = {"error": "RuntimeError: no"}
        results["shares"]["none"] = None
        self.assertIn("was not measured", report.share_text(results))


class OrderTest(unittest.TestCase):
    def test_each_allocator_is_at_each_place_once_in_three_rounds(self):
        orders = [suite.order_of(number) for number in range(4)]
        self.assertEqual(orders[0], ("native", "expandable", "gpupool"))
        self.assertEqual(orders[1], ("gpupool", "native", "expandable"))
        self.assertEqual(orders[3], orders[0])
        for place in range(3):
            self.assertEqual({order[place] for order in orders[:3]}, set(compare.COMPARED))

    def test_no_round_that_would_not_end_in_time(self):
        self.assertTrue(suite.has_time(1000, 480, 66, 1414))
        self.assertFalse(suite.has_time(1000, 480, 66, 1415))

    def run_suite(self, outcome, *options):
        """(exit status, [(allocator, number, options)], what was printed, training.json)"""
        asked = []

        def train(folder, allocator, number, workloads, config, *more):
            asked.append((allocator, number, more))
            return outcome(allocator, number, workloads)

        original, suite.train = suite.train, train
        self.addCleanup(setattr, suite, "train", original)
        output = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(output):
            code = suite.main(["run", folder, *options])
            kept = json.loads((pathlib.Path(folder) / "training.json").read_text())
        return code, asked, output.getvalue(), kept

    @staticmethod
    def trained(allocator, number, workloads):
        return process({name: figures(0.1, caught={"type": "E", "text": "no"})
                        for name in workloads.split(",")})

    def test_checks_come_first_and_rounds_alternate(self):
        code, asked, text, kept = self.run_suite(self.trained, "--runs", "2")
        self.assertEqual(code, 0, text)
        self.assertEqual([one[:2] for one in asked], [
            ("native", "checks"), ("expandable", "checks"), ("gpupool", "checks"),
            ("mempool", "checks"), ("none", "share"),
            ("native", 1), ("expandable", 1), ("gpupool", 1),
            ("gpupool", 2), ("native", 2), ("expandable", 2)])
        self.assertEqual([("--record" in more, "--replay" in more) for _, _, more in asked[:5]],
                         [(True, True), (False, True), (False, True), (False, False), (False, True)])
        self.assertIn("2 of 2 rounds", text)
        self.assertEqual({one: len(runs) for one, runs in kept["runs"].items()},
                         {"native": 2, "expandable": 2, "gpupool": 2})

    def test_a_limit_that_is_over_leaves_rounds_out_and_the_exit_status_says_so(self):
        code, asked, text, _ = self.run_suite(self.trained, "--runs", "2", "--limit", "-1")
        self.assertEqual((code, len(asked)), (1, 5))
        self.assertIn("gpupool: no round was run", text)
        self.assertIn("0 of 2 rounds", text)

    def test_different_losses_fail_it(self):
        def differing(allocator, number, workloads):
            found = self.trained(allocator, number, workloads)
            if (allocator, number) == ("gpupool", 1):
                found["workloads"]["gpt2"]["losses"] = LOSSES[::-1]
            return found
        code, _, text, _ = self.run_suite(differing, "--runs", "1")
        self.assertEqual(code, 1)
        self.assertIn("suite.py: gpupool, run 1, gpt2: losses differ", text)

    def test_tables_are_written_between_the_marks_and_again(self):
        with tempfile.TemporaryDirectory() as folder:
            results, document = pathlib.Path(folder) / "r.json", pathlib.Path(folder) / "d.md"
            results.write_text(json.dumps(alike()))
            document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
            for _ in range(2):
                self.assertEqual(suite.main(["write", str(results), str(document)]), 0)
            text = document.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)
        self.assertEqual((text.count("| workload |"), text.count("old")), (2, 0))


class Device:
    """torch.cuda as far as measure.py needs it: a step's work ends when something waits for it."""

    def __init__(self):
        self.asked, self.ended, self.ahead = 0, 0, []

    def step(self, number):
        self.ahead.append(self.asked - self.ended)
        self.asked += 1
        return number

    def Event(self, enable_timing):
        event = types.SimpleNamespace()
        event.record = lambda: setattr(event, "at", self.asked)
        event.synchronize = lambda: setattr(self, "ended", max(self.ended, event.at))
        return event


class MeasureTest(unittest.TestCase):
    def test_a_step_is_begun_when_the_last_but_one_has_ended(self):
        device = Device()
        sys.modules["torch"] = types.SimpleNamespace(cuda=device)
        self.addCleanup(sys.modules.pop, "torch")
        import measure
        self.addCleanup(sys.modules.pop, "measure")
        looked = []
        losses, marks, waited = measure.take(device, range(3, 9), lambda: looked.append(device.asked))
        self.assertEqual(losses, [3, 4, 5, 6, 7, 8])
        self.assertEqual((len(marks), looked), (7, [1, 2, 3, 4, 5, 6]))
        self.assertEqual(device.ahead, [0, 1, 1, 1, 1, 1])
        self.assertGreaterEqual(waited, 0)


if __name__ == "__main__":
    unittest.main()
