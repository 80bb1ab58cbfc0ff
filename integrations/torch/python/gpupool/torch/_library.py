"""The plug-in as ctypes sees it: where it lies, and the types of its functions."""

import ctypes
import os
import pathlib
import threading

FILE_NAME = "libgpupool_torch.so"

_OK = 0


class GpupoolError(RuntimeError):
    """What the plug-in said no to, in its words."""


class Block(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("state", ctypes.c_uint32),
                ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("requested_bytes", ctypes.c_uint64), ("stream_id", ctypes.c_uint64),
                ("tag", ctypes.c_uint32), ("is_fallback", ctypes.c_uint32),
                ("stream_handle", ctypes.c_uint64), ("has_stream_handle", ctypes.c_uint32)]


class RecordReport(ctypes.Structure):
    NUMBERS = ("allocations", "frees", "live_at_start", "failed_requests", "left_out",
               "file_bytes", "duration_ns")
    _fields_ = [("size", ctypes.c_uint32), ("end", ctypes.c_uint32)] + \
        [(name, ctypes.c_uint64) for name in NUMBERS]


class Counters(ctypes.Structure):
    NUMBERS = ("refused_sizes", "wrong_devices", "wrong_streams", "foreign_frees",
               "calls_after_fork", "calls_at_exit")
    _fields_ = [("size", ctypes.c_uint32), ("devices", ctypes.c_uint32)] + \
        [(name, ctypes.c_uint64) for name in NUMBERS]


NUMBER_VISITOR = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_double,
                                  ctypes.c_void_p)

_POOL = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_TEXT = ctypes.c_char_p
_STATUS = ctypes.c_int

# name: (result, arguments)
_PROTOTYPES = {
    "gpupool_last_error": (_TEXT, ()),
    "gpupool_status_name": (_TEXT, (_STATUS,)),
    "gpupool_set_tag": (ctypes.c_uint32, (ctypes.c_uint32,)),
    "gpupool_visit_stats": (_STATUS, (_POOL, NUMBER_VISITOR, ctypes.c_void_p)),
    "gpupool_copy_blocks": (_SIZE, (_POOL, ctypes.c_void_p, _SIZE, _SIZE)),
    "gpupool_failure_text": (_SIZE, (_POOL, ctypes.c_char_p, _SIZE)),
    "gpupool_failure_json": (_SIZE, (_POOL, ctypes.c_char_p, _SIZE)),
    "gpupool_trim": (ctypes.c_uint64, (_POOL, ctypes.c_uint64)),
    "gpupool_drain": (ctypes.c_uint64, (_POOL,)),
    "gpupool_maintain": (ctypes.c_int, (_POOL, ctypes.c_uint64)),
    "gpupool_reset_peaks": (None, (_POOL,)),
    "gpupool_record": (_STATUS, (_POOL, _TEXT)),
    "gpupool_stop_recording": (_STATUS, (_POOL, ctypes.POINTER(RecordReport), _SIZE)),
    "gpupool_torch_configure": (_STATUS, (_TEXT,)),
    "gpupool_torch_pool": (_POOL, (ctypes.c_int, ctypes.c_int)),
    "gpupool_torch_find_tag": (_STATUS, (_TEXT, ctypes.POINTER(ctypes.c_uint32))),
    "gpupool_torch_url": (_SIZE, (ctypes.c_int, ctypes.c_char_p, _SIZE)),
    "gpupool_torch_is_in_use": (ctypes.c_int, ()),
    "gpupool_torch_get_counters": (None, (ctypes.POINTER(Counters), _SIZE)),
}

_lock = threading.Lock()
_loaded = None


class Library:
    """The loaded plug-in. Its functions are attributes, with their types set."""

    def __init__(self, path):
        self.path = str(path)
        try:
            self._library = ctypes.CDLL(self.path)
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(self._library, name)
                function.restype = result
                function.argtypes = arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise GpupoolError(f"gpupool: {self.path} cannot be used: {error}") from error

    def address(self, name):
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value

    def last_error(self):
        return self.gpupool_last_error().decode("utf-8", "replace")

    def check(self, status):
        if status != _OK:
            raise GpupoolError(self.last_error() or self.gpupool_status_name(status).decode())

    def pool(self, device, create=False):
        """The pool of a device, as a number; an error where it has none and none is made."""
        pool = self.gpupool_torch_pool(device, int(create))
        if pool is None:
            raise GpupoolError(self.last_error())
        return pool

    def find_pool(self, device):
        """The same; None where the device has none."""
        return self.gpupool_torch_pool(device, 0)

    def read_text(self, function, *arguments):
        """What a function of the kind of snprintf writes."""
        capacity = 1024
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = function(*arguments, buffer, capacity)
            if length < capacity:
                return buffer.value.decode("utf-8", "replace")
            capacity = length + 1


def find_path():
    """GPUPOOL_TORCH_LIBRARY, or the file beside this one, as an installation has it."""
    named = os.environ.get("GPUPOOL_TORCH_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name(FILE_NAME)
    if not path.is_file():
        raise GpupoolError(
            f"gpupool: there is no plug-in at {path}. Build it (cmake --build BUILD --target"
            " gpupool_torch) and name it in GPUPOOL_TORCH_LIBRARY, or install the package with it"
            " (integrations/torch/README.md)")
    return path.resolve()


def load():
    """The plug-in, loaded once in a process."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Library(find_path())
        return _loaded
