"""Reads a pickle of dicts, lists, strings and numbers, from anywhere.

A pickle is a program. It can name classes and functions, which reading it would call; and a few
bytes of it can ask for gigabytes: a place in the memo, a length, a packed file. So it is looked
through before it is run: every length lies within the file, every place in the memo below as many
as the file can have filled, numbers have 64 bits, and what makes more than plain values is refused.

    unpacked size     at most max_bytes, and MAX_RATIO times the packed file's
    values            at most MAX_VALUES: dicts, lists, texts and larger numbers; each takes 50 to
                      250 bytes while it is read
"""

import gzip
import io
import pickle
import pickletools

MAX_BYTES = 1 << 30
MAX_RATIO = 256      # deflate reaches 1032; snapshots 10 to 60
MAX_VALUES = 1 << 25
_SMALL = 1 << 20     # of this size a file may be, however well it was packed
_MAX_LINE = 64       # of a number that is written as text


class PickleError(ValueError):
    """Why a file is not read."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds Python's own containers and values, and nothing that has a name."""

    def find_class(self, module, name):
        raise PickleError(f"it names {module}.{name}; a snapshot has plain values alone")

    def persistent_load(self, pid):
        raise PickleError("it refers to objects outside the file")


# By opcode: how many bytes of argument follow, or how they are told.
_REFUSED, _COUNTED, _LINE, _TEXT, _TWO_LINES, _LONG_PUT, _TEXT_PUT, _FRAME, _STOP = range(-9, 0)
_NAMES_COUNT = {"BINSTRING": 4, "SHORT_BINSTRING": 1, "BINUNICODE": 4, "SHORT_BINUNICODE": 1,
                "BINUNICODE8": 8, "BINBYTES": 4, "SHORT_BINBYTES": 1, "BINBYTES8": 8, "LONG1": 1}
_HOW = {"PUT": _TEXT_PUT, "LONG_BINPUT": _LONG_PUT, "FRAME": _FRAME, "STOP": _STOP,
        "INT": _LINE, "LONG": _LINE, "FLOAT": _LINE, "GET": _LINE, "PERSID": _TEXT,
        "STRING": _TEXT, "UNICODE": _TEXT, "GLOBAL": _TWO_LINES, "INST": _TWO_LINES}
_BARE = {"PROTO": 1, "BININT": 4, "BININT1": 1, "BININT2": 2, "BINFLOAT": 8, "BINGET": 1,
         "LONG_BINGET": 4, "BINPUT": 1}
_BARE.update(dict.fromkeys(
    ("MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "MEMOIZE", "EMPTY_DICT",
     "EMPTY_LIST", "EMPTY_TUPLE", "DICT", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND",
     "APPENDS", "SETITEM", "SETITEMS",
     # These fail for what they would be applied to: whose name find_class() refuses first.
     "STACK_GLOBAL", "REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BINPERSID"), 0))
# What takes no memory of its own.
_FREE = {"PROTO", "BININT1", "BINGET", "LONG_BINGET", "GET", "BINPUT", "LONG_BINPUT", "PUT", "MARK",
         "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "MEMOIZE", "EMPTY_TUPLE",
         "APPEND", "APPENDS", "SETITEM", "SETITEMS", "FRAME", "STOP"}


def _tables():
    how, count_bytes, weight = [_REFUSED] * 256, [0] * 256, [0] * 256
    for opcode in pickletools.opcodes:
        code, name = ord(opcode.code), opcode.name
        if name in _NAMES_COUNT:
            how[code], count_bytes[code] = _COUNTED, _NAMES_COUNT[name]
        else:
            how[code] = _HOW.get(name, _BARE.get(name, _REFUSED))
        weight[code] = 0 if name in _FREE else 1
    return how, count_bytes, weight


_HOW_LONG, _COUNT_BYTES, _WEIGHT = _tables()


def _line_end(data, at, limit):
    end = data.find(b"\n", at, at + limit)
    if end < 0:
        raise PickleError(f"it cannot be read: no line ends within {limit} bytes of byte {at}")
    return end + 1


def _number_at(data, at, size):
    if at + size > len(data):
        raise PickleError("it cannot be read: it ends too early")
    return int.from_bytes(data[at:at + size], "little")


def _check_place(place, at):
    # Each place that is filled took at least a byte.
    if place > at:
        raise PickleError(f"it cannot be read: place {place} of its memo, at byte {at}")


def _skip(data, code, at):
    """Where what follows an argument of more than fixed length begins."""
    how = _HOW_LONG[code]
    if how == _COUNTED:
        size = _COUNT_BYTES[code]
        length = _number_at(data, at, size)
        if code == 0x8a and length > 9:
            raise PickleError(f"a number at byte {at} has more than 64 bits")
        return at + size + length
    if how == _LONG_PUT:
        _check_place(_number_at(data, at, 4), at)
        return at + 4
    if how == _FRAME:
        if at + 8 + _number_at(data, at, 8) > len(data):
            raise PickleError("it cannot be read: it ends too early")
        return at + 8
    if how == _TEXT:
        return _line_end(data, at, len(data))
    if how == _TWO_LINES:
        return _line_end(data, _line_end(data, at, len(data)), len(data))
    if how in (_LINE, _TEXT_PUT):
        end = _line_end(data, at, _MAX_LINE)
        if how == _TEXT_PUT:
            text = data[at:end - 1]
            _check_place(int(text) if text.isdigit() else at + 1, at)
        return end
    raise PickleError(f"it cannot be read: byte {code:#04x} at {at - 1} is no part of a snapshot")


def _look_through(data):
    at, values, end = 0, 0, len(data)
    how_long, weight = _HOW_LONG, _WEIGHT
    while at < end:
        code = data[at]
        at += 1
        values += weight[code]
        length = how_long[code]
        if length >= 0:
            at += length
        elif length == _STOP:
            break
        else:
            at = _skip(data, code, at)
    else:
        raise PickleError("it cannot be read: it ends too early")
    if values > MAX_VALUES:
        raise PickleError(f"it has more than {MAX_VALUES} values")


def _read(file, limit):
    """Up to one byte more than the limit, and no more memory than there is to read."""
    data = bytearray()
    while len(data) <= limit:
        piece = file.read(min(_SMALL, limit + 1 - len(data)))
        if not piece:
            break
        data += piece
    return data


def _unpack(packed, max_bytes):
    limit = min(max_bytes, max(_SMALL, MAX_RATIO * len(packed)))
    with gzip.open(io.BytesIO(packed)) as unpacked:
        data = _read(unpacked, limit)
    if len(data) > limit:
        raise PickleError(f"its {len(packed)} bytes unpack to more than {limit}")
    return data


def load(path, max_bytes=MAX_BYTES):
    """The value in the file, plain or gzip'd. PickleError where it is not to be read, OSError where
    the file cannot be."""
    with open(path, "rb") as file:
        data = _read(file, max_bytes)
    if len(data) > max_bytes:
        raise PickleError(f"it has more than {max_bytes} bytes")
    try:
        if data[:2] == b"\x1f\x8b":
            data = _unpack(data, max_bytes)
        _look_through(data)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except PickleError:
        raise
    except Exception as error:  # whatever a broken pickle, or a broken packed file, may raise
        raise PickleError(f"it cannot be read: {error}") from error
