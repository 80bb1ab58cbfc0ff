"""Runs `gpupool advise` as a user does: its advice, what it is built on, bad input.

usage: advise_cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands that this build has)
"""
import json
import sys
import unittest

import cli_test
from cli_test import COMMANDS, CSV, FSDP, PROGRAM, RESNET, Case, run

ADVISE_KEYS = ["device", "device_capacity_bytes", "capacity_bytes", "backing", "passes", "scale",
               "completions", "budget_percent", "recycling_wait_percent", "unavailable", "traces", "settings", "needs", "yaml"]


class AdviseCase(Case):
    def advise(self, *arguments):
        """The object that --json prints, stdout clean of anything else."""
        result = run("advise", "--json", *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return json.loads(result.stdout)

    def chosen(self, advice):
        chosen = [row for row in advice["settings"] if row["is_chosen"]]
        self.assertEqual(len(chosen), 1)
        return chosen[0]


class Advise(AdviseCase):
    def replay_setting(self, setting, *arguments):
        given = ["--recycling", setting["recycling"], "--cache-large", setting["cache_large_bytes"]]
        if setting["recycling"] == "eager":
            given += ["--slack", setting["slack_percent"]]
        if setting["recycling"] != "off":
            given += ["--alias-reuse", setting["alias_reuse"]]
        return self.replay(*given, *arguments)

    def test_json_and_the_numbers_of_replay(self):
        advice = self.advise(FSDP, RESNET)
        self.assertEqual(list(advice), ADVISE_KEYS)
        self.assertEqual([trace["trace"] for trace in advice["traces"]], [FSDP, RESNET])
        defaults = [row for row in advice["settings"] if row["is_default"]]
        self.assertEqual(len(defaults), 1)
        for setting in (self.chosen(advice), defaults[0], advice["settings"][0]):
            for n, path in enumerate((FSDP, RESNET)):
                cold, warm = self.replay_setting(setting, path)
                row = setting["traces"][n]
                self.assertEqual(row["trace"], path)
                self.assertEqual(row["peak_held_bytes"], max(cold["peak_held_bytes"],
                                                             warm["peak_held_bytes"]))
                for when, played in (("cold", cold), ("warm", warm)):
                    for key in ("driver_wait_seconds", "driver_seconds", "driver_calls"):
                        self.assertEqual(row[f"{key}_{when}"], played[key])
                    self.assertAlmostEqual(row[f"wait_share_{when}"], played["driver_wait_seconds"]
                                           / played["trace_seconds"])

    def test_the_chosen_is_the_least_within_the_budget(self):
        for budget in ("0", "0.3", "5"):
            advice = self.advise("--budget", budget, FSDP, RESNET)
            self.assertEqual(advice["budget_percent"], float(budget))
            fit = [row for row in advice["settings"]
                   if row["failed"] == 0 and row["alias_reuse"] == "wait" and
                   max(trace["wait_share_warm"] for trace in row["traces"]) * 100 <= float(budget)]
            least = min(max(trace["held_ratio"] for trace in row["traces"]) for row in fit)
            self.assertEqual(self.chosen(advice)["held_ratio"], least)
            self.assertIn(self.chosen(advice), fit)

    def test_same_input_same_output(self):
        for form in ([], ["--json"], ["--yaml-only"], ["--completions"]):
            with self.subTest(form=form):
                first, second = (run("advise", *form, FSDP) for _ in range(2))
                self.assertEqual(first.returncode, 0)
                self.assertEqual(first.stdout, second.stdout)

    def test_text(self):
        csv = self.write("t.csv", CSV + "0,0,2,3000000\n1,1,3,5000000\n")
        for arguments in ([], ["--capacity-search"]):
            result = run("advise", *arguments, FSDP, csv)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            lines = result.stdout.decode().splitlines()
            self.assertLessEqual(max(map(len, lines)), 120)
            self.assertEqual([line for line in lines if line != line.rstrip()], [])
            for start in ("* ", "fsdp_streams-s1 ", "version: 1", "  cache_large: "):
                self.assertEqual(len([line for line in lines if line.startswith(start)]), 1, start)
            self.assertIn("t has no recorded time: taken as 10 000 operations a second.", lines)

    def test_a_limit_is_kept_and_goes_into_the_yaml(self):
        advice = self.advise("--capacity", "2GiB", FSDP)
        self.assertIn("\n  capacity: 2GiB\n", advice["yaml"])
        self.assertNotIn("capacity:", self.advise("--device-capacity", "2GiB", FSDP)["yaml"])
        for row in advice["settings"]:
            self.assertLessEqual(row["peak_held_bytes"], 2 << 30)

    def test_how_long_requests_may_wait_is_played_and_goes_into_the_yaml(self):
        advice = self.advise("--recycling-wait", "1%", "--budget", "5", FSDP)
        self.assertEqual(advice["recycling_wait_percent"], 1)
        eager = self.chosen(advice)
        self.assertEqual(eager["recycling"], "eager")
        self.assertIn("\n  recycling_wait: 1%\n", advice["yaml"])
        cold, warm = self.replay("--recycling-wait", "1", "--slack", eager["slack_percent"],
                                 "--cache-large", eager["cache_large_bytes"], FSDP)
        self.assertEqual(eager["traces"][0]["driver_wait_seconds_warm"], warm["driver_wait_seconds"])
        self.assertEqual(eager["traces"][0]["driver_wait_seconds_cold"], cold["driver_wait_seconds"])
        self.assertNotIn("recycling_wait", self.advise(FSDP)["yaml"])
        csv = self.write("t.csv", CSV + "0,0,2,3000000\n1,1,3,5000000\n")
        noted = run("advise", "--recycling-wait", "1", csv)
        self.assertEqual(noted.stderr.decode(), f"gpupool: --recycling-wait has no effect on {csv}, "
                         "which has no recorded time\n")

    def test_nothing_to_advise(self):
        arguments = ["--capacity", "1GiB", FSDP]
        advice = self.advise(*arguments)
        self.assertIsNone(advice["yaml"])
        self.assertEqual([row for row in advice["settings"] if row["is_chosen"]], [])
        self.assertTrue(all(row["failed_bytes"] > 0 and row["held_ratio"] is None
                            for row in advice["settings"]))
        unserved = [row["failed_bytes"] for row in advice["settings"]]
        self.assertEqual(unserved, sorted(unserved))
        self.assertIn(b"No setting serves every request", run("advise", *arguments).stdout)
        least = min(row["smallest_capacity_bytes"] for row in advice["needs"])
        self.expect_refused(run("advise", "--yaml-only", *arguments), "no setting serves every",
                            f"`capacity: {least >> 20}MiB` would do")
        # And it does.
        served = self.advise("--capacity", least, FSDP)
        self.assertIsNotNone(served["yaml"])
        self.assertEqual(served["needs"], [])
        self.assertEqual([row["recycling"] for row in advice["needs"]],
                         ["off", "pressure", "eager"])

    def test_bad_input_is_refused_as_by_replay(self):
        bad = self.write("bad", "a 0 1 0\n")
        for form in ([], ["--json"], ["--yaml-only"]):
            self.expect_refused(run("advise", *form, FSDP, bad), f"{bad}:1: ")
        for path in (self.folder / "missing", self.folder, PROGRAM, self.write("empty", b"")):
            with self.subTest(path=str(path)):
                replay = run("replay", "--device", "sim", path)
                advise = run("advise", path)
                self.expect_refused(advise, f"{path}:")
                self.assertEqual(advise.stderr, replay.stderr)

    def test_bad_options_are_refused(self):
        cases = [
            (["--budget", "-1"], "from 0 to 100"), (["--budget", "101"], "from 0 to 100"),
            (["--passes", "1"], "from 2 to"), (["--rate", "0"], "from 1 to"),
            (["--capacity", "1MiB"], "from 2MiB to 1TiB"), (["--capacity", "8gib"], "8GiB"),
            (["--capacity", "200GiB"], "more than the device has"),
            (["--device-capacity", "2TiB"], "to 1TiB"), (["--backend", "malloc"], "cudamalloc|vmm"),
            (["--recycling-wait", "101"], "from 0 to 100"),
            (["--json", "--yaml-only"], "one of them"), (["--device", "cuda"], "--device"),
        ]
        for arguments, reason in cases:
            with self.subTest(arguments=arguments):
                self.expect_refused(run("advise", *arguments, FSDP), reason)
        self.expect_refused(run("advise"), "TRACE")

    def test_progress_of_advise(self):
        code, text = cli_test.Terminals.run_on_terminal(self, "advise", FSDP, NO_COLOR="", LC_ALL="C")
        self.assertEqual(code, 0)
        self.assertIn("off, 32MiB: fsdp_streams-s1", text)
        self.assertIn(", 128MiB: fsdp_streams-s1", text)
        self.assertIn("####", text)


class AdvisedConfig(AdviseCase):
    def test_the_yaml_is_a_configuration(self):
        plain = run("advise", "--yaml-only", FSDP)
        self.assertEqual((plain.returncode, plain.stderr), (0, b""))
        advice = self.advise(FSDP)
        self.assertEqual(plain.stdout.decode(), advice["yaml"])
        checked = run("check-config", self.write("advised.yaml", plain.stdout))
        self.assertEqual((checked.returncode, checked.stderr), (0, b""))
        chosen = self.chosen(advice)
        text = checked.stdout.decode()
        self.assertRegex(text, rf"(?m)^pool\.recycling: +{chosen['recycling']}$")
        self.assertRegex(text, rf"(?m)^pool\.slack: +{chosen['slack_percent']:g} %( \(no effect.*)?$")
        self.assertRegex(text, rf"(?m)^pool\.cache_large: .*\b{chosen['cache_large_bytes']} bytes")


# A build without the exporter reads no configuration.
if "check-config" not in COMMANDS:
    del AdvisedConfig

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
