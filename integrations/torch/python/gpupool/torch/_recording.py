"""A trace of what a job asks its pool for, as `gpupool replay` plays it."""

import atexit
import ctypes
import gzip
import os
import shutil

from gpupool.torch import _library
from gpupool.torch._reports import device_index

_ENDS = ("stopped", "file_full", "buffer_full")


class Recording:
    """A recording that goes on until stop(), the end of a `with` block, or the interpreter's."""

    def __init__(self, path, device):
        self._path = os.path.abspath(os.fspath(path))
        self._library = _library.load()
        self._pool = self._library.pool(device, create=True)
        # The pool writes plain text; what is asked for as .gz is packed at the end.
        self._written = self._path + ".part" if self._path.endswith(".gz") else self._path
        self._report = None
        self._process = os.getpid()
        self._library.check(
            self._library.gpupool_record(self._pool, os.fsencode(self._written)))
        atexit.register(self.stop)

    def stop(self):
        """Ends it and waits for the file; a dict of what is in it and what is not."""
        if self._report is not None:
            return self._report
        if os.getpid() != self._process:
            return {}  # a forked child has neither the pool nor the thread that writes
        atexit.unregister(self.stop)
        report = _library.RecordReport()
        self._report = {}
        self._library.check(
            self._library.gpupool_stop_recording(self._pool, report, ctypes.sizeof(report)))
        if self._written != self._path:
            with open(self._written, "rb") as plain, gzip.open(self._path, "wb", 6) as packed:
                shutil.copyfileobj(plain, packed, 1 << 20)
            os.unlink(self._written)
        self._report = {name: getattr(report, name) for name in report.NUMBERS}
        # The pool has counted the plain text; what lies at the path may be packed.
        self._report["file_bytes"] = os.path.getsize(self._path)
        self._report["end"] = _ENDS[report.end]
        return self._report

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        return False


def record(path, device=None):
    """Begins to record what is asked of the device's pool. Of one pool one recording at a time.

        with gpupool.torch.record("job.trace.gz"):
            train()
    """
    return Recording(path, device_index(device))
