"""Runs `gpupool top` as a user does: on processes that serve, on what does not answer, in a terminal.

usage: top_cli_test.py PROGRAM SAMPLE_FOLDER COMMAND...   (the commands that this build has)
"""
import http.server
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from cli_test import PROGRAM, Case, run


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Demo:
    """A process with an exporter, until the test is over."""

    def __init__(self, case, rank=None, *arguments):
        environment = dict(os.environ)
        if rank is not None:
            environment.update(RANK=str(rank), WORLD_SIZE="8")
        self.process = subprocess.Popen([PROGRAM, "demo", "--port", "0", *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=environment)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        for line in self.process.stdout:
            if found := re.match(r"metrics: http://([^/]+)/metrics", line):
                self.where = found[1]
                break


class Other(http.server.BaseHTTPRequestHandler):
    """A server of another kind: pages for all that is asked, or nothing at all."""

    def do_GET(self):
        if self.server.is_silent:
            self.server.may_end.wait(20)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_):
        pass


class Top(Case):
    def serve_other(self, is_silent):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
        server.is_silent, server.may_end = is_silent, threading.Event()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(server.may_end.set)
        return f"127.0.0.1:{server.server_address[1]}"

    def table(self, *arguments):
        result = run("top", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def test_a_row_for_each_process_and_why_one_does_not_answer(self):
        config = self.folder / "small.yaml"
        config.write_text("pool: {capacity: 64MiB}\n")
        fine = Demo(self, 3)
        full = Demo(self, 5, "--config", config)
        nobody = f"127.0.0.1:{free_port()}"
        other, silent = self.serve_other(False), self.serve_other(True)
        deadline = time.monotonic() + 20
        while True:
            begin = time.monotonic()
            text = self.table(fine.where, f"http://{full.where}/", nobody, other, silent)
            self.assertLess(time.monotonic() - begin, 8)
            if "1 OUT OF MEMORY" in text or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        lines = text.splitlines()
        self.assertEqual(lines[0], "5 pools: 1 OUT OF MEMORY, 3 no answer, 1 ok", text)
        rows = [line for line in lines if "127.0.0.1" in line]
        self.assertRegex(rows[0], rf"^ +5 {full.where} +OUT OF MEMORY ")
        self.assertRegex(rows[-1], rf"^ +3 {fine.where} +ok ")
        self.assertRegex(text, r"ago a request of .* failed \(")
        for where, why in ((nobody, "connect"), (other, "no JSON"), (silent, "[Tt]imeout")):
            self.assertRegex(text, rf"{where} +no answer .*\n +.*{why}")

    def test_in_a_terminal_it_is_refreshed_until_it_is_stopped(self):
        demo = Demo(self)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "top", demo.where, "--interval", "1"],
                      {**os.environ, "TERM": "xterm"})
        shown = b""
        deadline = time.monotonic() + 20
        while shown.count(b"\033[H") < 3 and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536)
        os.kill(pid, signal.SIGINT)
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:
            pass  # the other end is closed
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        text = shown.decode()
        self.assertGreaterEqual(text.count("1 pool:"), 3)
        self.assertRegex(text, r"\d+ *(\033\[0m)?\033\[K")
        self.assertTrue(text.startswith("\033[?1049h"))
        self.assertTrue(text.rstrip("\r\n").endswith("\033[?1049l"))

    def test_bad_input_is_one_line(self):
        for arguments, what in ((["a:0"], "no port"), (["ftp://a"], "neither http nor https"),
                                (["a", "--interval", "0"], "--interval"), ([], "URL")):
            result = run("top", *arguments)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stdout, b"")
            self.assertIn(what, result.stderr.decode())
            self.assertEqual(result.stderr.count(b"\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
