"""Runs `gpupool check-config` as a user does: what is in force, every error, what cannot be read.

usage: check_config_cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands of this build)
"""
import sys
import unittest

from cli_test import Case, run


class CheckConfig(Case):
    def test_good(self):
        path = self.write("good.yaml", "version: 1\npool:\n  capacity: 8GiB\n")
        result = run("check-config", path)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"8GiB", result.stdout)

    def test_every_error_with_its_line_and_key(self):
        path = self.write("bad.yaml", "version: 1\npool:\n  capacity: 010\n  reserv: 1GiB\n"
                          "exporter:\n  port: -1\n")
        result = run("check-config", path)
        self.expect_refused(result, f"{path}:3: pool.capacity: ", f"{path}:4: pool.reserv: ",
                            f"{path}:6: exporter.port: ")

    def test_unreadable(self):
        self.expect_refused(run("check-config", self.folder / "missing"), "missing")
        self.expect_refused(run("check-config", self.folder), str(self.folder))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
