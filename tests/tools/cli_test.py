"""Runs the gpupool program as a user does: bad input, exit codes, the JSON contract, the demo.

usage: cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands that this build has)
"""
import gzip
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

PROGRAM, SAMPLES, *COMMANDS = sys.argv[1:] or ["", ""]
FSDP = os.path.join(SAMPLES, "fsdp_streams-s1.trace.gz")
RESNET = os.path.join(SAMPLES, "resnet_multiscale-s1.trace.gz")
KEYS = ["trace", "pass", "operations", "failed", "ns_per_op", "trace_seconds", "hits", "misses",
        "fallbacks", "driver_calls", "driver_seconds", "driver_wait_seconds",
        "peak_requested_bytes", "peak_held_bytes", "largest_free_block_bytes",
        "smallest_capacity_bytes"]
SYSTEMS = ["gpupool", "driver", "free-list", "buddy", "size-classes"]
COMPARE_KEYS = ["trace", "system", "operations", "failed", "ns_per_op", "ns_per_op_cold",
                "ns_per_op_with_driver", "driver_calls_cold", "driver_calls_warm",
                "driver_seconds_cold", "driver_seconds_warm", "peak_requested_bytes",
                "peak_held_bytes"]
CLASSIC_KEYS = ["system", "pass", "blocks", "block_bytes", "failed", "ns_per_allocate",
                "ns_per_free", "driver_calls_allocate", "driver_calls_free",
                "driver_seconds_allocate", "driver_seconds_free", "total_seconds",
                "peak_requested_bytes", "peak_held_bytes"]
CSV = "id,lower,upper,size\n"


def run(*arguments, **more):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=120, **more)


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def expect_refused(self, result, *texts):
        """Exit code 2, nothing on stdout, and stderr says each of `texts`."""
        error = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, 2, error)
        self.assertEqual(result.stdout, b"")
        for text in texts:
            self.assertIn(str(text), error)
        self.assertLess(len(error), 2000, "an error is a line or two")

    def replay(self, *arguments):
        """The objects that --json prints on the simulated device."""
        result = run("replay", "--device", "sim", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertEqual(result.stderr, b"", "silent where the simulated device was asked for")
        return json.loads(result.stdout)


class BadTraces(Case):
    LINES = [  # name, content, line, reason
        ("unknown_id", "a 0 1 0 0\nf 7 0\n", 2, "frees unknown block 7"),
        ("twice", "a 0 1 0 0\nf 0 0\nf 0 0\n", 3, "frees block 0 twice"),
        ("live", "a 0 1 0 0\na 0 1 0 0\n", 2, "allocates block 0, which is live"),
        ("completes_live", "a 0 1 0 0\nc 0 0\n", 2, "which is not freed"),
        ("negative", "a 0 -1 0 0\n", 1, "negative number '-1'"),
        ("too_few", "a 0 1 0\n", 1, "too few fields"),
        ("too_many", "a 0 1 0 0 0\n", 1, "too many fields"),
        ("kind", "a 0 1 0 0\nr 0 1\n", 2, "unknown kind of line 'r'"),
        ("overflow", "a 0 18446744073709551616 0 0\n", 1, "does not fit in 64 bits"),
        ("word", "a zero 1 0 0\n", 1, "not a whole decimal number"),
        ("blank", "a 0 1 0 0\n\nf 0 0\n", 2, "empty line"),
        ("nul", b"a 0 1 0 0\n\x00\x01", 2, "binary data"),
        ("header", "# {\"seconds\": oops}\na 0 1 0 0\n", 1, "not valid JSON"),
        ("version", "# gpupool allocation trace, version 9\na 0 1 0 0\n", 1, "version '9'"),
        ("csv_order", CSV + "0,9,8,1\n", 2, "lower 9 is after upper 8"),
        ("csv_word", CSV + "0,1,x,1\n", 2, "'x' in field upper"),
        ("csv_negative", CSV + "0,1,2,-1\n", 2, "negative number"),
        ("csv_few", CSV + "0,1,2\n", 2, "too few fields"),
        ("csv_column", "id,lower,upper,bytes\n0,1,2,3\n", 1, "unknown column 'bytes'"),
        ("csv_twice", CSV + "0,1,2,3\n0,4,5,6\n", 3, "id 0 twice"),
    ]

    def test_every_malformed_line_is_named(self):
        for name, content, line, reason in self.LINES:
            data = content if isinstance(content, bytes) else content.encode()
            for path in (self.write(name, data), self.write(name + ".gz", gzip.compress(data))):
                with self.subTest(path=path.name):
                    result = run("replay", "--device", "sim", path)
                    self.expect_refused(result, f"{path}:{line}: ", reason)

    def test_files_that_are_no_trace(self):
        packed = pathlib.Path(FSDP).read_bytes()
        cases = [
            (self.folder / "missing", "No such file or directory"),
            (self.folder, "is a directory"),
            (self.write("empty", b""), "is empty"),
            (self.write("empty.gz", gzip.compress(b"")), "is empty"),
            (self.write("comments", "# nothing\n"), "has no operations"),
            (self.write("only_header.csv", CSV), "has no operations"),
            (self.write("cut.gz", packed[:len(packed) // 2]), "truncated gzip"),
            (self.write("short.gz", packed[:5]), "truncated gzip"),
            (self.write("damaged.gz", packed[:3000] + b"\xff" * 64 + packed[3064:]), "gzip"),
            (PROGRAM, "binary data"),
        ]
        for path, reason in cases:
            with self.subTest(path=str(path)):
                self.expect_refused(run("replay", "--device", "sim", path), f"{path}:", reason)

    def test_a_bad_file_after_a_good_one_leaves_nothing_half_done(self):
        bad = self.write("bad", "a 0 1 0\n")
        for form in ([], ["--json"]):
            result = run("replay", "--device", "sim", *form, FSDP, bad)
            self.expect_refused(result, f"{bad}:1: ")

    def test_scale_that_overflows(self):
        path = self.write("large", "a 0 9223372036854775808 0 0\n")
        self.expect_refused(run("replay", "--device", "sim", "--scale", "2", path), path, "--scale")


class BadUsage(Case):
    def test_options_are_refused_with_what_is_allowed(self):
        cases = [
            (["--passes", "0"], "from 1 to"), (["--passes", "-1"], "from 1 to"),
            (["--passes", "010"], "whole decimal"), (["--passes", "two"], "whole decimal"),
            (["--scale", "0"], "from 1 to"), (["--seed", "-1"], "from 0 to"),
            (["--seed", "18446744073709551616"], "from 0 to"),
            (["--slack", "101"], "from 0 to 100"), (["--slack", "-1"], "from 0 to 100"),
            (["--slack", "nan"], "from 0 to 100"), (["--fault-rate", "1.5"], "from 0 to 1"),
            (["--recycling-wait", "101"], "from 0 to 100"),
            (["--recycling-wait", "-1"], "from 0 to 100"),
            (["--capacity", "8gib"], "8GiB"), (["--capacity", "-1"], "negative"),
            (["--cache-large", "much"], "cache-large"),
            (["--reserve", "010"], "leading zero"), (["--reserve", "16777216TiB"], "64 bits"),
            (["--device", "tpu"], "auto|cuda|sim"), (["--backend", "malloc"], "cudamalloc|vmm"),
            (["--recycling", "maybe"], "eager|off|pressure"), (["--speed", "2"], "--speed"),
            (["--find-capacity", "--fault-rate", "0.1"], "without --fault-rate"),
            (["--alias-reuse", "never"], "same_stream|wait"),
        ]
        for arguments, reason in cases:
            with self.subTest(arguments=arguments):
                self.expect_refused(run("replay", *arguments, FSDP), reason)

    def test_percent_is_percent_with_and_without_the_sign(self):
        path = self.write("one", "a 0 1 0 0\nf 0 0\n")
        for text, shown in (("5", "5%"), ("5%", "5%"), ("0.05", "0.05%"), ("0.05%", "0.05%"),
                            (".5%", "0.5%"), ("100%", "100%"), ("0%", "0%")):
            with self.subTest(text=text):
                result = run("replay", "--device", "sim", "--slack", text, path)
                self.assertEqual(result.returncode, 0)
                self.assertIn(f"eager with {shown} slack", result.stdout.decode())
        for text in ("%", "5%%", "5 %", "%5", "101%", "-5%", ""):
            with self.subTest(text=text):
                self.expect_refused(run("replay", "--slack", text, FSDP), "such as 5 or 5%")
        self.assertIn("5 means 5 %", run("replay", "--help").stdout.decode())

    def test_how_long_requests_may_wait_for_pages_to_move(self):
        shown = run("replay", "--device", "sim", "--recycling-wait", "2%", FSDP).stdout.decode()
        self.assertIn("0.5% slack, waits up to 2%", shown)
        for given in ([], ["--recycling-wait", "5"]):
            shown = run("replay", "--device", "sim", *given, FSDP).stdout.decode()
            self.assertNotIn("waits up to", shown)
        csv = self.write("t.csv", CSV + "0,0,2,3\n")
        for recycling, notes in (("eager", [f"gpupool: --recycling-wait has no effect on {csv}, which has "
                                            "no recorded time"]),
                                 ("off", ["gpupool: --recycling-wait has no effect with --recycling "
                                          "off"])):
            noted = run("replay", "--device", "sim", "--recycling", recycling, "--recycling-wait", "2",
                        csv)
            self.assertEqual(noted.stderr.decode().splitlines(), notes)
        never, always = ({key: sum(each[key] for each in self.replay("--recycling-wait", wait, FSDP))
                          for key in ("driver_wait_seconds", "peak_held_bytes")}
                         for wait in ("0", "100"))
        self.assertLess(never["driver_wait_seconds"], always["driver_wait_seconds"])
        self.assertGreaterEqual(never["peak_held_bytes"], always["peak_held_bytes"])

    def test_options_without_effect_are_named_and_taken(self):
        path = self.write("one", "a 0 1 0 0\nf 0 0\n")
        off, both = ["--recycling", "off"], ["--slack", "5", "--alias-reuse", "same_stream"]
        wait = ["--recycling-wait", "2%"]
        cases = [
            (off + both, ["--slack has no effect with --recycling off",
                          "--alias-reuse has no effect with --recycling off"]),
            (["--recycling", "pressure"] + both,
             ["--slack has no effect with --recycling pressure"]),
            (["--backend", "cudamalloc"] + both,
             ["--alias-reuse has no effect with --backend cudamalloc"]),
            (off + wait, ["--recycling-wait has no effect with --recycling off"]),
            (wait, []),
            (["--seed", "1"], ["--seed has no effect without --fault-rate"]),
            (["--seed", "1", "--fault-rate", "0.1"], []), (both, []), (off, []),
        ]
        for arguments, notes in cases:
            for form in ([], ["--json"]):
                with self.subTest(arguments=arguments, form=form):
                    result = run("replay", "--device", "sim", *form, *arguments, path)
                    self.assertEqual(result.returncode, 0)
                    self.assertEqual(result.stderr.decode().splitlines(),
                                     [f"gpupool: {note}" for note in notes])

    def test_options_without_a_pool(self):
        self.expect_refused(run("replay", "--device", "sim", "--capacity", "8GiB", "--reserve",
                                "9GiB", FSDP), "reserve")

    def test_no_command_no_trace_unknown_command(self):
        self.expect_refused(run(), "--help")
        self.expect_refused(run("replay"), "TRACE")
        self.expect_refused(run("reply", FSDP), "unknown command 'reply'", "replay")

    def test_help_and_version(self):
        version = run("--version")
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout.decode(), r"^gpupool \d+\.\d+\.\d+ ")
        for arguments in (["--help"], ["replay", "--help"], ["compare", "--help"],
                          ["advise", "--help"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(b"Usage: gpupool", result.stdout)
        listed = run("--help").stdout.decode()
        for command in COMMANDS:
            self.assertRegex(listed, rf"(?m)^ +{command} ")

    def test_cuda_is_there_or_refused_with_the_reason(self):
        path = self.write("t", "a 0 1 0 0\n")
        automatic = run("replay", path)
        self.assertEqual(automatic.returncode, 0, automatic.stderr.decode())
        notice = automatic.stderr.decode()
        cuda = run("replay", "--device", "cuda", path)
        if "using the simulated device" in notice:
            self.assertRegex(notice, r"^gpupool: no GPU: using the simulated device \(140 GiB\): .")
            self.assertEqual(notice.count("simulated"), 1, "said once")
            self.expect_refused(cuda, "no CUDA device: ")
        else:
            self.assertEqual((notice, cuda.returncode), ("", 0))


def model_peak(path, honour_completions):
    """Peak of requested bytes, counted here and not by the program."""
    sizes, later, live, peak = {}, set(), 0, 0
    lines = [line.split() for line in gzip.open(path, "rt") if not line.startswith("#")]
    if honour_completions:
        later = {line[1] for line in lines if line[0] == "c"}
    for kind, name, *rest in lines:
        if kind == "a":
            sizes[name] = int(rest[0])
            live += sizes[name]
            peak = max(peak, live)
        elif kind == "c" and honour_completions or kind == "f" and name not in later:
            live -= sizes[name]
    return peak


class Replay(Case):
    def test_json_has_exactly_the_keys_of_the_contract(self):
        rows = self.replay("--passes", "3", FSDP, RESNET)
        self.assertEqual([list(row) for row in rows], [KEYS] * 6)
        self.assertEqual([(row["trace"], row["pass"]) for row in rows],
                         [(path, n) for path in (FSDP, RESNET) for n in (1, 2, 3)])
        for row in rows:
            self.assertEqual(row["smallest_capacity_bytes"], None)
            self.assertGreater(row["ns_per_op"], 0)

    def test_samples_replay_without_failure_and_warm_passes_without_the_driver(self):
        for row in self.replay("--recycling", "off", FSDP, RESNET):
            with self.subTest(row=row):
                self.assertEqual(row["failed"], 0)
                self.assertEqual(row["operations"], 33929 if row["trace"] == FSDP else 94741)
                self.assertEqual(row["trace_seconds"], 1.67 if row["trace"] == FSDP else 11.6)
                self.assertEqual(row["peak_requested_bytes"], model_peak(row["trace"], False))
                self.assertLessEqual(row["peak_held_bytes"], 1.2 * row["peak_requested_bytes"])
                self.assertGreaterEqual(row["peak_held_bytes"], row["peak_requested_bytes"])
                if row["pass"] == 2:
                    self.assertEqual(row["driver_calls"], 0)
                    self.assertEqual(row["driver_seconds"], 0)
                    self.assertEqual(row["misses"], 0)
                else:
                    self.assertGreater(row["driver_calls"], 0)
                    self.assertGreater(row["driver_seconds"], 0)

    def test_eager_holds_hardly_more_than_is_requested_and_says_what_it_costs(self):
        held = {row["trace"]: row["peak_held_bytes"]
                for row in self.replay("--recycling", "off", FSDP, RESNET) if row["pass"] == 2}
        for row in self.replay(FSDP, RESNET):
            with self.subTest(row=row):
                self.assertEqual(row["failed"], 0)
                self.assertLessEqual(row["peak_held_bytes"], 1.012 * row["peak_requested_bytes"])
                self.assertLessEqual(row["peak_held_bytes"], held[row["trace"]])
                self.assertGreater(row["driver_wait_seconds"], 0)
                if row["pass"] == 2:
                    self.assertLess(row["driver_wait_seconds"], 0.04 * row["trace_seconds"])

    def test_the_smallest_capacity_is_one_at_which_nothing_fails(self):
        for row in self.replay("--find-capacity", FSDP):
            capacity = row["smallest_capacity_bytes"]
            self.assertEqual(row["failed"], 0)
            self.assertGreaterEqual(capacity, row["peak_requested_bytes"])
            self.assertLessEqual(row["peak_held_bytes"], capacity)
        again = self.replay("--capacity", str(capacity), FSDP)
        self.assertEqual([row["failed"] for row in again], [0, 0])

    def test_completions_keep_blocks_longer(self):
        for row in self.replay("--completions", FSDP):
            self.assertEqual(row["peak_requested_bytes"], model_peak(FSDP, True))
            self.assertEqual(row["operations"], 33929)
            self.assertEqual(row["failed"], 0)

    def test_same_input_same_output(self):
        for arguments in (["--passes", "2"], ["--backend", "cudamalloc"],
                          ["--fault-rate", "0.2", "--seed", "7"], ["--capacity", "1GiB"]):
            with self.subTest(arguments=arguments):
                runs = [self.replay(*arguments, FSDP) for _ in range(2)]
                for row in runs[0] + runs[1]:
                    del row["ns_per_op"]
                self.assertEqual(runs[0], runs[1])

    def test_the_seed_decides_the_faults(self):
        rows = [self.replay("--fault-rate", "0.2", "--seed", seed, FSDP)[0] for seed in (1, 2)]
        for row in rows:
            del row["ns_per_op"]
        self.assertNotEqual(rows[0], rows[1])

    def test_failed_allocations_are_data(self):
        rows = self.replay("--capacity", "1GiB", FSDP)
        for row in rows:
            self.assertGreater(row["failed"], 0)
            self.assertLessEqual(row["peak_held_bytes"], 1 << 30)
            self.assertEqual(row["operations"], 33929)

    def test_a_table_with_failures_is_followed_by_the_report_of_the_last(self):
        result = run("replay", "--device", "sim", "--capacity", "1GiB", FSDP)
        self.assertEqual(result.returncode, 0)
        error = result.stderr.decode()
        self.assertEqual(error.count("the last request that failed in pass "), 1, error)
        self.assertIn("\nout_of_memory: ", error)
        self.assertIn("\n  limit         1.00 GiB  capacity\n", error)
        self.assertLess(error.count("\n"), 27, "a page at most")

    def test_scale_multiplies_sizes(self):
        path = self.write("a.csv", CSV + "0,0,2,3000\n1,1,3,5000\n")
        plain, scaled = (self.replay("--scale", n, path)[0] for n in (1, 1000))
        self.assertEqual(plain["peak_requested_bytes"], 8000)
        self.assertEqual(scaled["peak_requested_bytes"], 8000000)
        self.assertIsNone(plain["trace_seconds"])

    def test_reserve_is_held_from_the_start(self):
        path = self.write("small", "a 0 4096 0 0\nf 0 0\n")
        for row in self.replay("--reserve", "1GiB", path):
            self.assertEqual(row["peak_held_bytes"], 1 << 30)
            self.assertEqual(row["driver_calls"], 0, "those were made when the pool started")

    def test_zero_bytes_and_half_of_the_address_space(self):
        path = self.write("edges", f"a 0 0 0 0\na 1 {1 << 63} 0 0\nf 0 0\nf 1 0\n")
        for row in self.replay(path):
            self.assertEqual((row["operations"], row["failed"]), (4, 1))
            self.assertEqual((row["hits"], row["misses"]), (0, 1))
            self.assertEqual(row["peak_requested_bytes"], 0)

    def test_blocks_left_are_freed_between_passes(self):
        path = self.write("left", "a 0 1048576 0 0\na 1 1048576 5 0\n")
        for row in self.replay("--passes", "5", path):
            self.assertEqual(row["peak_requested_bytes"], 2 << 20)
            self.assertEqual(row["failed"], 0)

    def test_a_long_pause_does_not_take_long(self):
        path = self.write("pause", "a 0 4096 0 0\nf 0 3000000000000000\n")
        self.assertEqual(self.replay(path)[0]["failed"], 0)

    def test_table(self):
        result = run("replay", "--device", "sim", FSDP, RESNET)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = result.stdout.decode()
        lines = text.splitlines()
        self.assertNotIn("\033", text)
        self.assertLessEqual(max(map(len, lines)), 120)
        self.assertEqual(len([line for line in lines if line.startswith("fsdp_streams-s1")]), 2)
        self.assertIn("33 929", text)


class Compare(Case):
    def compare(self, *arguments):
        """The object that --json prints, stdout clean of anything else."""
        result = run("compare", "--passes", "2", "--json", *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return json.loads(result.stdout)

    def small(self):
        lines = [f"a {n} {4096 << n % 12} {n % 3} 100\n" for n in range(48)]
        return self.write("small.trace", "".join(lines + [f"f {n} 100\n" for n in range(47)]))

    def test_json_has_exactly_the_keys_of_the_contract(self):
        path = self.small()
        found = self.compare("--capacity", "20GiB", path, FSDP)
        self.assertEqual(list(found), ["device", "capacity_bytes", "passes", "classic", "traces"])
        self.assertEqual((found["device"], found["capacity_bytes"], found["passes"]),
                         ("simulated", 20 << 30, 2))
        self.assertEqual([list(row) for row in found["classic"]], [CLASSIC_KEYS] * 10)
        self.assertEqual([(row["system"], row["pass"]) for row in found["classic"]],
                         [(name, when) for name in SYSTEMS for when in ("cold", "warm")])
        self.assertEqual([list(row) for row in found["traces"]], [COMPARE_KEYS] * 10)
        self.assertEqual([(row["trace"], row["system"]) for row in found["traces"]],
                         [(trace, name) for trace in (str(path), FSDP) for name in SYSTEMS])

    def test_ours_is_what_replay_measures(self):
        ours = self.compare("--only", "gpupool", FSDP)["traces"][0]
        cold, warm = self.replay("--passes", "2", FSDP)
        for row, when in ((cold, "cold"), (warm, "warm")):
            self.assertEqual(ours[f"driver_calls_{when}"], row["driver_calls"])
            self.assertAlmostEqual(ours[f"driver_seconds_{when}"], row["driver_seconds"])
        self.assertEqual(ours["operations"], cold["operations"])
        self.assertEqual(ours["peak_requested_bytes"], model_peak(FSDP, False))
        self.assertEqual(ours["peak_held_bytes"], max(cold["peak_held_bytes"],
                                                      warm["peak_held_bytes"]))

    def test_what_the_driver_alone_costs(self):
        rows = self.compare("--only", "driver,gpupool", FSDP)["traces"]
        self.assertEqual([row["system"] for row in rows], ["gpupool", "driver"])
        ours, driver = rows
        self.assertEqual(driver["driver_calls_warm"], driver["operations"])
        self.assertGreater(driver["ns_per_op_with_driver"], 35000)
        self.assertLess(ours["driver_calls_warm"], ours["operations"] / 10)
        self.assertLess(ours["ns_per_op_with_driver"], driver["ns_per_op_with_driver"] / 5)

    def test_without_a_trace_the_samples_are_played(self):
        found = self.compare("--only", "buddy", "--only", "buddy")
        self.assertEqual([os.path.basename(row["trace"]) for row in found["traces"]],
                         [os.path.basename(path) for path in (FSDP, RESNET)])
        self.assertEqual(len(found["classic"]), 2)

    def test_what_cannot_be_served_is_data(self):
        found = self.compare("--capacity", "64MiB", self.small())
        for row in found["classic"]:
            self.assertGreaterEqual(row["failed"], 10000 - 64)
            self.assertLess(row["failed"], 10000)
        for row in found["traces"]:
            self.assertLessEqual(row["peak_held_bytes"], 64 << 20)

    def test_table(self):
        path = self.small()
        result = run("compare", "--passes", "2", path, self.write("t.csv", CSV + "0,1,2,3000\n"))
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = result.stdout.decode()
        lines = text.splitlines()
        self.assertNotIn("\033", text)
        self.assertLessEqual(max(map(len, lines)), 100)
        for name in SYSTEMS:
            mark = r"\* " if name == "gpupool" else "  "
            self.assertEqual(len(re.findall(rf"(?m)^{mark}{name} ", text)), 4, name)
        self.assertIn("small: 95 operations, ", text)
        self.assertIn("t: 2 operations, 2.93 KiB requested at the peak", text)
        self.assertEqual([line for line in lines if line != line.rstrip()], [])

    def test_bad_input_is_refused_as_by_replay(self):
        bad = self.write("bad", "a 0 1 0\n")
        for form in ([], ["--json"]):
            self.expect_refused(run("compare", *form, FSDP, bad), f"{bad}:1: ")
        for path in (self.folder / "missing", self.folder, PROGRAM, self.write("empty", b"")):
            with self.subTest(path=str(path)):
                replay = run("replay", "--device", "sim", path)
                compare = run("compare", path)
                self.expect_refused(compare, f"{path}:")
                self.assertEqual(compare.stderr, replay.stderr)

    def test_bad_options_are_refused(self):
        cases = [
            (["--only", "slab"], "'slab' is no system; there are: " + ", ".join(SYSTEMS)),
            (["--only", "buddy,slab"], "'slab'"), (["--only", ""], "'' is no system"),
            (["--passes", "1"], "from 2 to"), (["--passes", "-1"], "whole decimal"),
            (["--capacity", "1MiB"], "from 2MiB to 1TiB"), (["--capacity", "2TiB"], "to 1TiB"),
            (["--capacity", "8gib"], "8GiB"), (["--device", "cuda"], "--device"),
        ]
        for arguments, reason in cases:
            with self.subTest(arguments=arguments):
                self.expect_refused(run("compare", *arguments, FSDP), reason)


class Terminals(Case):
    def run_on_terminal(self, *arguments, **environment):
        """(exit code, what stdout and stderr wrote) with both on one pseudo-terminal."""
        leader, follower = pty.openpty()
        process = subprocess.Popen([PROGRAM, *arguments], stdout=follower, stderr=follower,
                                   env={**os.environ, "TERM": "xterm", **environment})
        os.close(follower)
        output = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:
                break
            if not data:
                break
            output += data
        os.close(leader)
        return process.wait(timeout=60), output.decode()

    def test_progress_bar_and_colour(self):
        environment = {"NO_COLOR": "", "LC_ALL": "C"}
        code, text = self.run_on_terminal("replay", "--device", "sim", RESNET, **environment)
        self.assertEqual(code, 0)
        self.assertIn("resnet_multiscale-s1, pass 1 of 2", text)
        self.assertIn("########", text)
        self.assertIn("\033[1m", text)

    def test_no_color_is_honoured(self):
        code, text = self.run_on_terminal("replay", "--device", "sim", FSDP, NO_COLOR="1")
        self.assertEqual(code, 0)
        self.assertNotRegex(text, "\033\\[[0-9;]*m")


class Output(Case):
    def test_a_reader_that_goes_away_is_no_error(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([PROGRAM, "replay", "--device", "sim", FSDP], stdout=writer,
                                stderr=subprocess.PIPE, timeout=60)
        os.close(writer)
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_a_full_disk_is(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "replay", "--device", "sim", FSDP], stdout=full,
                                    stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"No space left", result.stderr)


class Running:
    """A demo that was started, with the address that it printed."""

    def __init__(self, case, *arguments):
        self.process = subprocess.Popen([PROGRAM, "demo", *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.stderr.close)
        case.addCleanup(self.end)
        started = time.monotonic()
        first = b""
        while not first.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], 10)
            data = os.read(self.process.stdout.fileno(), 1) if ready else b""
            if not data:
                break
            first += data
        self.seconds_to_start = time.monotonic() - started
        found = re.fullmatch(rb"metrics: (http://127\.0\.0\.1:(\d+)/)metrics\n", first)
        case.assertIsNotNone(found, first)
        self.url, self.port = found[1].decode(), int(found[2])

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return answer.read().decode()

    def result(self):
        out, error = self.process.communicate(timeout=30)
        return self.process.returncode, out.decode(), error.decode()


class Demo(Case):
    def test_serves_and_ends_by_itself(self):
        demo = Running(self, "--for", "3", "--port", "0")
        self.assertLess(demo.seconds_to_start, 5)
        time.sleep(1)
        metrics = demo.get("metrics")
        self.assertIn("gpupool_", metrics)
        self.assertIn("<!doctype html", demo.get("").lower())
        code, out, _ = demo.result()
        self.assertEqual(code, 0)
        self.assertIn("page:    " + demo.url, out)
        stopped = re.search(r"stopped: ([\d ]+) operations, 0 allocations failed", out)
        self.assertIsNotNone(stopped, out)
        self.assertGreater(int(stopped[1].replace(" ", "")), 100)

    def test_ends_cleanly_when_told_to(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                demo = Running(self, "--port", "0")
                time.sleep(0.3)
                demo.process.send_signal(number)
                code, out, _ = demo.result()
                self.assertEqual(code, 0)
                self.assertIn("stopped: ", out)

    def test_records_what_replay_plays(self):
        path = self.folder / "own.trace"
        demo = Running(self, "--for", "2", "--port", "0", "--speed", "4", "--record", path)
        code, out, error = demo.result()
        self.assertEqual((code, error.count("cannot be written")), (0, 0), error)
        recorded = re.search(r"recorded: ([\d ]+) operations, 0 left out, to (\S+) \(stopped\)", out)
        self.assertIsNotNone(recorded, out)
        self.assertEqual(recorded[2], str(path))
        played = re.search(r"stopped: ([\d ]+) operations, 0 allocations failed", out)
        self.assertIsNotNone(played, out)
        self.assertEqual(played[1], recorded[1])
        result = self.replay("--passes", "1", path)[0]
        self.assertEqual(result["operations"], int(recorded[1].replace(" ", "")))
        self.assertEqual(result["failed"], 0)
        missing = self.folder / "missing" / "own.trace"
        self.expect_refused(run("demo", "--port", "0", "--record", missing), f"{missing}: ",
                            "No such file")

    def test_speed(self):
        counts = []
        for speed in (1, 8):
            demo = Running(self, "--for", "2", "--port", "0", "--speed", speed, "--trace", RESNET)
            code, out, _ = demo.result()
            self.assertEqual(code, 0)
            counts.append(int(re.search(r"stopped: ([\d ]+) op", out)[1].replace(" ", "")))
        self.assertGreater(counts[1], 2 * counts[0])

    def test_explicit_port_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.expect_refused(run("demo", "--for", "5", "--port", port), port)

    def test_the_default_port_goes_upward(self):
        first = Running(self, "--for", "20")
        second = Running(self, "--for", "1")
        self.assertGreater(second.port, first.port)
        self.assertEqual(second.result()[0], 0)
        first.process.terminate()
        self.assertEqual(first.result()[0], 0)

    def test_a_hang_up_reads_the_configuration_again(self):
        config = self.write("gpupool.yaml", "pool: {slack: 1%}\n")
        demo = Running(self, "--for", "60", "--port", "0", "--config", config)
        for text, slack in (("pool: {slack: 2%}\n", "0.02"), ("pool: {slakc: 3%}\n", "0.02"),
                            ("pool: {slack: 3%}\n", "0.03")):
            config.write_text(text)
            demo.process.send_signal(signal.SIGHUP)
            taken = int("slakc" not in text)
            deadline = time.monotonic() + 10
            page = ""
            while time.monotonic() < deadline and not (
                    f'gpupool_slack_ratio{{device="0",pool="default"}} {slack}\n' in page and
                    f"gpupool_config_last_reload_successful {taken}\n" in page):
                page = demo.get("metrics")
                time.sleep(0.02)
            self.assertLess(time.monotonic(), deadline, page)
        demo.process.terminate()
        code, _, error = demo.result()
        self.assertEqual(code, 0, error)
        self.assertIn(f"configuration read again from {config}, changed: pool.slack\n", error)
        self.assertIn(f"the one before stays: {config}:1: pool.slakc: unknown key", error)

    def test_failed_allocations_are_data_and_reported_once(self):
        config = self.write("small.yaml", "version: 1\npool:\n  capacity: 512MiB\n")
        demo = Running(self, "--for", "2", "--port", "0", "--speed", "4", "--config", config)
        code, out, error = demo.result()
        self.assertEqual(code, 0)
        self.assertNotIn(" 0 allocations failed", out)
        self.assertEqual(error.count("first allocation that failed:\nout_of_memory: "), 1, error)
        self.assertIn("\n  limit       512.00 MiB  capacity\n", error)

    def test_bad_input_starts_nothing(self):
        bad = self.write("bad", "a 0 1 0\n")
        csv = self.write("t.csv", CSV + "0,1,2,3\n")
        config = self.write("bad.yaml", "version: 1\npool:\n  capacty: 1GiB\n")
        self.expect_refused(run("demo", "--trace", bad), f"{bad}:1: ")
        self.expect_refused(run("demo", "--trace", self.folder / "missing"), "No such file")
        self.expect_refused(run("demo", "--trace", csv), "no recorded times")
        silent = self.write("silent.yaml", "exporter: {enabled: false}\n")
        self.expect_refused(run("demo", "--config", silent, "--port", "0"), "exporter.enabled")
        self.expect_refused(run("demo", "--config", config), f"{config}:3: ", "capacty")
        self.expect_refused(run("demo", "--config", self.folder / "missing.yaml"), "missing.yaml")
        for arguments in (["--for", "-1"], ["--port", "65536"], ["--speed", "0"]):
            self.expect_refused(run("demo", *arguments), arguments[0])


# A build without the exporter has no such command, and so no such tests.
if "demo" not in COMMANDS:
    del Demo

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
