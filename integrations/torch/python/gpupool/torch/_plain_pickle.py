"""Reads a pickle of dicts, lists, strings and numbers, from anywhere.

A pickle is a program. It can name classes and functions, which reading it would call; and a few
bytes of it can ask for gigabytes: a place in the memo, a length, a packed file. So it is looked
through before it is run: every length lies within the file, every place in the memo below as many
as the file can have filled, numbers have 64 bits, keys are texts, and what makes more than plain
values is refused. (A tuple of tuples as a key would be hashed, which may take for ever, or more of
the stack than there is.)

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
     "APPENDS", "SETITEM", "SETITEMS", "STACK_GLOBAL", "BINPERSID"), 0))
# The unpickler stops at them, as it is asked for the name or the object first.
_STOPS = {"STOP", "GLOBAL", "INST", "STACK_GLOBAL", "PERSID", "BINPERSID"}
# What takes no memory of its own.
_FREE = {"PROTO", "BININT1", "BINGET", "LONG_BINGET", "GET", "BINPUT", "LONG_BINPUT", "PUT", "MARK",
         "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "MEMOIZE", "EMPTY_TUPLE",
         "APPEND", "APPENDS", "SETITEM", "SETITEMS", "FRAME", "STOP"}


# What an opcode does to the stack, of which only this is kept: whether a value is a text.
_OTHER, _IS_TEXT, _MARK = range(3)
(_NOTHING, _PUSH, _PUSH_TEXT, _PUSH_MARK, _POP, _POP_MARK, _DUP, _MEMOIZE, _PUT_AT, _GET_AT, _TUPLE1,
 _TUPLE2, _TUPLE3, _JOIN, _JOIN_PAIRS, _APPENDS, _SETITEM, _SETITEMS) = range(18)
_EFFECTS = {"PROTO": _NOTHING, "FRAME": _NOTHING, "MARK": _PUSH_MARK, "POP": _POP, "APPEND": _POP,
            "POP_MARK": _POP_MARK, "APPENDS": _APPENDS, "DUP": _DUP, "MEMOIZE": _MEMOIZE,
            "TUPLE1": _TUPLE1, "TUPLE2": _TUPLE2, "TUPLE3": _TUPLE3, "TUPLE": _JOIN, "LIST": _JOIN,
            "DICT": _JOIN_PAIRS, "SETITEM": _SETITEM, "SETITEMS": _SETITEMS}
_EFFECTS.update(dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), _PUT_AT))
_EFFECTS.update(dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), _GET_AT))
_EFFECTS.update(dict.fromkeys(("BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "UNICODE",
                               "SHORT_BINUNICODE", "BINUNICODE8"), _PUSH_TEXT))


def _tables():
    how, count_bytes, weight = [_REFUSED] * 256, [0] * 256, [0] * 256
    effects, stops = [_PUSH] * 256, [False] * 256
    for opcode in pickletools.opcodes:
        code, name = ord(opcode.code), opcode.name
        if name in _NAMES_COUNT:
            how[code], count_bytes[code] = _COUNTED, _NAMES_COUNT[name]
        else:
            how[code] = _HOW.get(name, _BARE.get(name, _REFUSED))
        weight[code] = 0 if name in _FREE else 1
        effects[code], stops[code] = _EFFECTS.get(name, _PUSH), name in _STOPS
    return how, count_bytes, weight, effects, stops


_HOW_LONG, _COUNT_BYTES, _WEIGHT, _EFFECT, _IS_END = _tables()


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


class _Stack:
    """Of the values that a pickle puts together, which are texts."""

    def __init__(self):
        self.values = bytearray()
        self.memo = {}

    def _take(self, count):
        if count > len(self.values):
            raise IndexError("it takes more than there is")
        taken = self.values[len(self.values) - count:]
        del self.values[len(self.values) - count:]
        return taken

    def _take_to_mark(self):
        taken = self._take(len(self.values) - 1 - self.values.rindex(_MARK))
        self.values.pop()  # the mark itself
        return taken

    def _pairs(self, values):
        if values[0::2].count(_IS_TEXT) * 2 != len(values):
            raise PickleError("a key is not a text; a snapshot has no other")

    def apply(self, effect, place):
        """Of an opcode that does more than push a value."""
        values = self.values
        if effect == _PUSH_MARK:
            values.append(_MARK)
        elif effect == _POP:
            values.pop()
        elif effect in (_POP_MARK, _APPENDS):
            self._take_to_mark()
        elif effect == _DUP:
            values.append(values[-1])
        elif effect in (_MEMOIZE, _PUT_AT):
            self.memo[len(self.memo) if effect == _MEMOIZE else place] = values[-1]
        elif effect in (_TUPLE1, _TUPLE2, _TUPLE3):
            self._take(effect - _TUPLE1 + 1)
            values.append(_OTHER)
        elif effect in (_JOIN, _JOIN_PAIRS):
            above = self._take_to_mark()
            if effect == _JOIN_PAIRS:
                self._pairs(above)
            values.append(_OTHER)
        elif effect in (_SETITEM, _SETITEMS):
            self._pairs(self._take(2) if effect == _SETITEM else self._take_to_mark())


def _place(data, code, begin, end):
    """Of the memo, where an opcode names one: its argument is a line, or one or four bytes."""
    argument = bytes(data[begin:end])
    return int(argument) if code in b"gp" else int.from_bytes(argument, "little")


def _look_through(data):
    at, values, end = 0, 0, len(data)
    how_long, weight, effects, stack = _HOW_LONG, _WEIGHT, _EFFECT, _Stack()
    push = stack.values.append
    while at < end:
        code = data[at]
        if _IS_END[code]:
            break
        at += 1
        begin = at
        values += weight[code]
        length = how_long[code]
        at = at + length if length >= 0 else _skip(data, code, at)
        effect = effects[code]
        if effect == _PUSH:  # by far the most are of three kinds
            push(_OTHER)
        elif effect == _PUSH_TEXT:
            push(_IS_TEXT)
        elif effect == _GET_AT:
            push(stack.memo[data[begin] if at == begin + 1 else _place(data, code, begin, at)])
        else:
            stack.apply(effect, _place(data, code, begin, at) if effect == _PUT_AT else None)
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
