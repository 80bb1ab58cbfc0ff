#!/usr/bin/env python3
"""The instruction gate closes: a count above its ceiling is reported and ends in an error.

usage: instruction_gate_test.py HIT_LOOP TRACES
"""
import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import instruction_gate  # noqa: E402  (found in bench/)

HIT_LOOP, TRACES = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
GATES = instruction_gate.GATES


def run(*options, hit_loop=HIT_LOOP):
    """(exit code, output, error output)"""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = instruction_gate.main([hit_loop, TRACES, *options])
        except SystemExit as error:
            code = error.code
    return code, output.getvalue(), errors.getvalue()


class InstructionGateTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, instruction_gate, "GATES", GATES)

    def lower_ceiling(self, name, ceiling):
        instruction_gate.GATES = tuple(
            dataclasses.replace(gate, ceiling=ceiling) if gate.name == name else gate
            for gate in GATES)

    def test_measured_count_above_the_ceiling_is_an_error(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            run("--filter", "pair/512$", "--json", file.name)
            count = json.load(file)[0]["value"]
        self.assertGreater(count, 20)  # two calls and a loop take as many
        self.lower_ceiling("pair/512", count - 1)
        code, output, _ = run("--filter", "pair/512$")
        self.assertEqual(code, 1, output)
        self.assertIn("EXCEEDED", output)
        self.lower_ceiling("pair/512", count + 1)
        code, output, _ = run("--filter", "pair/512$")
        self.assertEqual(code, 0, output)
        self.assertNotIn("EXCEEDED", output)

    def test_an_operation_of_a_trace_is_held_against_its_ceiling(self):
        self.lower_ceiling("replay/fsdp_streams-s1", 20)
        code, output, _ = run("--filter", "fsdp")
        self.assertEqual(code, 1, output)

    def test_growth_is_held_against_its_ceiling(self):
        def verdicts(count):
            counts = {"live_blocks/100": 100.0, "live_blocks/10000": count}
            return [result["value"] <= result["ceiling"]
                    for result in instruction_gate.results_of(counts) if " : " in result["name"]]
        self.assertEqual(verdicts(109.0), [True])
        self.assertEqual(verdicts(111.0), [False])

    def test_what_cannot_be_measured_is_said(self):
        code, _, errors = run("--filter", "pair/512$", hit_loop="no-such-program")
        self.assertEqual(code, 2)
        self.assertIn("no-such-program", errors)

    def test_a_filter_that_is_no_regular_expression_is_said(self):
        code, _, errors = run("--filter", "[")
        self.assertEqual(code, 2)
        self.assertIn("no regular expression", errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
