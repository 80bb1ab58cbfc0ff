"""Real processes in tests: started on loopback, asked over HTTP, stopped by their own id.

Every wait has a deadline. A test that fails shows what the process printed.
"""
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request


class TestFailure(Exception):
    """What the test found, in words."""


def require(condition, text):
    if not condition:
        raise TestFailure(text)


def free_port():
    """A port that nobody listens on now. The process that is given it may still lose it to
    somebody else; then it fails to start, with a message."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url, timeout=5.0):
    """The body of a 200 answer."""
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        require(answer.status == 200, f"{url}: HTTP {answer.status}")
        return answer.read().decode("utf-8")


def wait_for(what, seconds, ask, process=None):
    """Asks until the answer is true, and returns it."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        if process is not None and process.ended():
            raise TestFailure(f"{process.name} ended while waiting for {what}:\n{process.output()}")
        try:
            last = ask()
            if last:
                return last
        except (OSError, ValueError, urllib.error.URLError) as error:
            last = error
        time.sleep(0.1)
    text = f"no {what} within {seconds} s; last answer: {last}"
    raise TestFailure(text + (f"\n{process.output()}" if process else ""))


PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent():
    """In a child: the kernel ends it when the test is ended, even by a time-out's SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child whose output goes to a file, ended by stop() whatever the test does."""

    def __init__(self, name, command, folder, environment=None):
        self.name = name
        self._log = pathlib.Path(folder) / f"{name}.log"
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen([str(word) for word in command], stdout=log,
                                           stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                           env={**os.environ, **(environment or {})},
                                           preexec_fn=die_with_parent)

    @property
    def pid(self):
        return self._child.pid

    def output(self):
        return self._log.read_text(errors="replace")

    def ended(self):
        return self._child.poll() is not None

    def wait(self, seconds):
        """The exit code of a child that ends by itself."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TestFailure(f"{self.name} still runs after {seconds} s:\n{self.output()}")

    def send(self, number):
        if not self.ended():
            self._child.send_signal(number)

    def ask_to_stop(self):
        self.send(signal.SIGTERM)

    def stop(self, seconds=10.0):
        """SIGTERM; returns the exit code. A child that does not end is killed, and that fails."""
        self.ask_to_stop()
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            raise TestFailure(f"{self.name} did not end within {seconds} s of SIGTERM")

    def kill(self):
        if not self.ended():
            self._child.kill()
            self._child.wait()


@contextlib.contextmanager
def running(name, command, folder, environment=None):
    """A process for the length of a with block; `environment` is added to ours."""
    process = Process(name, command, folder, environment)
    try:
        yield process
    finally:
        process.kill()


@contextlib.contextmanager
def serving(name, command, folder, ready):
    """A server for the length of a with block, from when it answers at the address `ready`."""
    with running(name, command, folder) as process:
        wait_for(f"ready {name}", 20, lambda: get(ready), process)
        yield process


def run(command, seconds, **options):
    """Output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
                          **options)
    require(done.returncode == 0,
            f"{' '.join(map(str, command))}\nexit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def check_metrics_page(page):
    """promtool's own reading of a page of metrics: format, names, help, units."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=20, check=False)
    require(done.returncode == 0 and not done.stdout.strip(),
            f"promtool check metrics: exit code {done.returncode}\n{done.stdout}")


def run_check(check, prefix):
    """The main program of a test: check(SOURCE, PROGRAM, empty folder), from the command line."""
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            check(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(folder))
    except TestFailure as failure:
        sys.exit(f"FAILED: {failure}")
