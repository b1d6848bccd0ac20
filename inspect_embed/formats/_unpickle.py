"""What does the pickle of a state dict describe? Read as a text is read: nothing in it is imported, called or run.

A pickle is a program for a small machine with a stack. This machine knows the steps that make containers, scalars and
tensors; a name in the pickle is looked up in a table of records of ours, and a name that is not in it ends the reading.

Source: CPython, Lib/pickletools.py (the steps); PyTorch, torch/_utils.py and torch/serialization.py (the names).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inspect_embed.errors import DamagedFileError, NotACheckpointError
from inspect_embed.spelling import encode, show

MOST_STEPS = 1 << 24
ALWAYS_STEPS = 1 << 20
STEPS_PER_BYTE = 1 / 8
"""A pickle is refused after so many steps: a million, and one more for each eight bytes of its file, up to 16 million.

A tensor takes some sixty. A step makes an object of a hundred bytes or so, beside what it copies from the file, so that
this bounds memory too.
"""

_LONGEST_NUMBER = 256
_LONGEST_LINE = 1024
_AGAIN = "Fetch the file again."


@dataclass(frozen=True, slots=True)
class DType:
    """A type of numbers, by the name of its encoding; `item_bytes` to a number."""

    encoding: str
    item_bytes: int


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """A run of numbers that lies elsewhere in the file, under a key."""

    key: str
    dtype: DType
    n_items: int


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor as a view of stored numbers: place of its first number and step of each dimension, in numbers."""

    stored: StoredNumbers
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Other:
    """Whatever stands beside tensors and is not needed: its kind is known to be harmless, its value is not kept."""

    __slots__ = ()


_OTHER = Other()
_SCALARS = (str, int, float, bool, bytes, type(None))


class _Mark:
    """The marker on the stack."""

    __slots__ = ()


_MARK = _Mark()


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that a pickle may use, and what we make of it when it is called there."""

    name: str
    make: Callable[[tuple[Any, ...]], Any]


class _Unfit(Exception):  # noqa: N818 - turned into words where it is caught
    """The arguments of a known name are not what it takes."""


def _make_dict(arguments: tuple[Any, ...]) -> Any:
    if not arguments:
        return {}
    (pairs,) = arguments
    if isinstance(pairs, dict):
        return dict(pairs)
    if not isinstance(pairs, list):
        raise _Unfit
    made: dict[Any, Any] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise _Unfit
        made[_as_key(pair[0])] = pair[1]
    return made


def _make_sequence(arguments: tuple[Any, ...]) -> Any:
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], (list, tuple))):
        raise _Unfit
    return tuple(arguments[0]) if arguments else ()


def _make_other(arguments: tuple[Any, ...]) -> Any:
    return _OTHER


def _make_parameter(arguments: tuple[Any, ...]) -> Any:
    if not arguments or not isinstance(arguments[0], (TensorView, Other)):
        raise _Unfit
    return arguments[0]


def _make_tensor(arguments: tuple[Any, ...]) -> TensorView:
    """(stored numbers, place of the first, shape, strides, ...); the third kind names a type of its own."""
    if len(arguments) < 4:
        raise _Unfit
    stored, offset, shape, strides = arguments[:4]
    dtype = arguments[6] if len(arguments) > 6 and isinstance(arguments[6], DType) else None
    if not isinstance(stored, StoredNumbers) or not _is_size(offset):
        raise _Unfit
    if not _are_sizes(shape) or not _are_sizes(strides) or len(shape) != len(strides):
        raise _Unfit
    return TensorView(stored, dtype or stored.dtype, offset, tuple(shape), tuple(strides))


def _make_from_type(arguments: tuple[Any, ...]) -> Any:
    """(what makes the tensor, its class, arguments, attributes)."""
    if len(arguments) < 3 or not isinstance(arguments[0], _Name) or not isinstance(arguments[2], tuple):
        raise _Unfit
    if arguments[0].make is _make_from_type:
        raise _Unfit
    return arguments[0].make(arguments[2])


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_sizes(values: object) -> bool:
    return isinstance(values, (tuple, list)) and len(values) <= 64 and all(map(_is_size, values))


def _as_key(value: object) -> object:
    """Only scalars are keys: to hash a tuple of tuples can take forever."""
    return value if isinstance(value, _SCALARS) else Other()


_DTYPES: Mapping[str, DType] = {
    "float64": DType("F64", 8),
    "float32": DType("F32", 4),
    "float16": DType("F16", 2),
    "bfloat16": DType("BF16", 2),
    "float8_e4m3fn": DType("F8_E4M3", 1),
    "float8_e5m2": DType("F8_E5M2", 1),
    "float8_e4m3fnuz": DType("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": DType("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": DType("F8_E8M0", 1),
    "int64": DType("I64", 8),
    "int32": DType("I32", 4),
    "int16": DType("I16", 2),
    "int8": DType("I8", 1),
    "uint64": DType("U64", 8),
    "uint32": DType("U32", 4),
    "uint16": DType("U16", 2),
    "uint8": DType("U8", 1),
    "bool": DType("BOOL", 1),
    "complex64": DType("C64", 8),
    "complex128": DType("C128", 16),
}

_STORAGES: Mapping[str, str] = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}  # fmt: skip

_HARMLESS = (
    "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "torch.Generator",
    "torch.serialization._get_layout", "torch.layout", "torch.memory_format", "torch.strided",
    "numpy.dtype", "numpy.ndarray", "numpy.core.multiarray.scalar", "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar", "numpy._core.multiarray._reconstruct", "numpy._core.numeric._frombuffer",
    "numpy.core.numeric._frombuffer", "_codecs.encode", "builtins.set", "__builtin__.set", "builtins.frozenset",
    "builtins.bytearray", "builtins.complex", "builtins.slice", "builtins.range", "argparse.Namespace", "pathlib.PosixPath",
    "pathlib.PurePosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath", "datetime.datetime", "datetime.timedelta",
)  # fmt: skip
"""Names of values that lie beside tensors in files of trainings; nothing is made of them."""

_MADE: Mapping[str, Callable[[tuple[Any, ...]], Any]] = {
    "collections.OrderedDict": _make_dict,
    "collections.Counter": _make_dict,
    "builtins.dict": _make_dict,
    "builtins.list": lambda arguments: list(_make_sequence(arguments)),
    "builtins.tuple": _make_sequence,
    "torch.Size": _make_sequence,
    "torch._utils._rebuild_tensor": _make_tensor,
    "torch._utils._rebuild_tensor_v2": _make_tensor,
    "torch._utils._rebuild_tensor_v3": _make_tensor,
    "torch._utils._rebuild_parameter": _make_parameter,
    "torch._utils._rebuild_parameter_with_state": _make_parameter,
    "torch._tensor._rebuild_from_type_v2": _make_from_type,
    "torch._tensor._rebuild_from_type": _make_from_type,
}

KNOWN: Mapping[str, object] = {
    **{name: _Name(name, make) for name, make in _MADE.items()},
    **{name: _Name(name, _make_other) for name in _HARMLESS},
    **{f"torch.{name}": dtype for name, dtype in _DTYPES.items()},
    **{
        f"{module}.{name}": _DTYPES[dtype]
        for name, dtype in _STORAGES.items()
        for module in ("torch", "torch.cuda", "torch.storage")
    },
}
"""Every name that a pickle may use."""


class Unpickler:
    """The machine. `stored` are the stored numbers that a pickle has named so far, by their keys."""

    def __init__(self, data: memoryview, file: str, file_size: int) -> None:
        self._data = data
        self._file = file
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.stored: dict[str, StoredNumbers] = {}
        self._most = self._left = min(MOST_STEPS, ALWAYS_STEPS + int(file_size * STEPS_PER_BYTE))

    @property
    def place(self) -> int:
        """Bytes read so far."""
        return self._at

    def load(self) -> Any:
        """What does the next pickle describe? Containers, scalars, `TensorView` for a tensor, `Other` for the rest."""
        self._stack, self._memo = [], {}
        data, steps = self._data, _STEPS
        try:
            while True:
                code = data[self._at]
                self._at += 1
                self._spend(1)
                if code == _STOP:
                    return self._stack.pop()
                steps[code](self)
        except KeyError:
            raise self._damaged(f"its step {code:#04x} makes nothing that a state dict needs") from None
        except IndexError:
            raise self._damaged("it ends in the middle, or takes from an empty stack") from None
        except _Unfit:
            raise self._damaged("a known name is called with arguments that do not fit it") from None
        except (struct.error, ValueError, OverflowError):
            raise self._damaged("a step does not fit what stands on its stack") from None

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(
            f"The pickle in {self._file} cannot be read at byte {self._at:,}: {what}.", _AGAIN
        )

    def _spend(self, n_steps: int) -> None:
        self._left -= n_steps
        if self._left < 0:
            raise self._damaged(f"it takes more than {self._most:,} steps")

    # bytes

    def _take(self, n_bytes: int) -> memoryview:
        end = self._at + n_bytes
        if end > len(self._data):
            raise self._damaged(f"it promises {n_bytes:,} more bytes and has {len(self._data) - self._at:,}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack(self._take(form.size))
        return value

    def _line(self) -> str:
        ahead = bytes(self._data[self._at : self._at + _LONGEST_LINE])
        length = ahead.find(b"\n")
        if length < 0:
            raise self._damaged("a line in it does not end")
        self._at += length + 1
        return ahead[:length].decode()

    # stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop_to_mark(self) -> list[Any]:
        stack = self._stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError
        items = stack[place + 1 :]
        del stack[place:]
        return items

    # steps

    def _name(self, module: object, name: object) -> object:
        full = f"{module}.{name}"
        known = KNOWN.get(full)
        if known is None:
            shown = show(encode(full[:100]))
            raise NotACheckpointError(
                f"{self._file} asks for {shown}, which no table of numbers needs. Nothing in it was run.",
                "Open it with nothing that runs pickles unless you trust whoever made it; a file with the state dict "
                "alone, or a .safetensors file, asks for no such thing.",
            )
        return known

    def _call(self, called: object, arguments: object) -> Any:
        if not isinstance(called, _Name) or not isinstance(arguments, tuple):
            raise self._damaged("it calls what cannot be called")
        # What is made of a container takes as many steps as it has items: a pickle can name it again and again.
        self._spend(sum(len(argument) for argument in arguments if isinstance(argument, (list, dict, tuple))))
        return called.make(arguments)

    def _global(self) -> None:
        module = self._line()
        self._push(self._name(module, self._line()))

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self._damaged("a name in it is no text")
        self._push(self._name(module, name))

    def _reduce(self) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        self._push(self._call(called, arguments))

    def _new_with_keywords(self) -> None:
        _, arguments, called = self._stack.pop(), self._stack.pop(), self._stack.pop()
        self._push(self._call(called, arguments))

    def _inst(self) -> None:
        module = self._line()
        called = self._name(module, self._line())
        self._push(self._call(called, tuple(self._pop_to_mark())))

    def _obj(self) -> None:
        called, *arguments = self._pop_to_mark()
        self._push(self._call(called, tuple(arguments)))

    def _build(self) -> None:
        """Attributes of an object: none is needed."""
        self._stack.pop()
        if not isinstance(self._stack[-1], (dict, TensorView, Other)):
            raise self._damaged("it sets attributes of what has none")

    def _persistent(self) -> None:
        """('storage', type, key, device, number of items, ...)"""
        match self._stack.pop():
            # A sixth item, in old files, is a view of other numbers; none was written since 2018.
            case ("storage", DType() as dtype, str() as key, str(), int() as n_items, *view) if not any(view):
                if not _is_size(n_items):
                    raise _Unfit
                stored = StoredNumbers(key, dtype, n_items)
                known = self.stored.setdefault(key, stored)
                self._push(known if known == stored else stored)
            case _:
                raise self._damaged("it refers to something outside it that is no run of numbers")

    def _put(self, place: int) -> None:
        if place < 0:
            raise ValueError
        self._memo[place] = self._stack[-1]

    def _get(self, place: int) -> None:
        if place not in self._memo:
            raise self._damaged("it refers to something that it has not made")
        self._push(self._memo[place])

    def _pop(self) -> None:
        self._stack.pop()

    def _long(self, length: int) -> None:
        if not 0 <= length <= _LONGEST_NUMBER:
            raise self._damaged(f"a number of {length:,} bytes")
        self._push(int.from_bytes(self._take(length), "little", signed=True))

    def _text(self, length: int) -> None:
        self._push(str(self._take(length), "utf-8", "surrogatepass"))

    def _old_text(self, length: int) -> None:
        if length < 0:
            raise ValueError
        self._push(str(self._take(length), "latin-1"))

    def _bytes(self, length: int) -> None:
        self._push(bytes(self._take(length)))

    def _integer_line(self) -> None:
        line = self._line()
        self._push({"00": False, "01": True}[line] if line in ("00", "01") else int(line))

    def _append(self) -> None:
        value = self._stack.pop()
        self._extend([value])

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Other):
            raise self._damaged("it appends to what is no list")

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if len(items) % 2:
            raise IndexError
        if isinstance(target, dict):
            target.update((_as_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
        elif not isinstance(target, Other):
            raise self._damaged("it sets entries of what is no dictionary")

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set_items([key, value])

    def _tuple(self, n: int) -> None:
        items = [self._stack.pop() for _ in range(n)]
        self._push(tuple(reversed(items)))

    def _dict(self) -> None:
        items = self._pop_to_mark()
        self._push({})
        self._set_items(items)

    def _forget_items(self) -> None:
        """Items of a set, which is not kept."""
        self._pop_to_mark()

    def _set(self) -> None:
        self._pop_to_mark()
        self._push(_OTHER)


_STOP = ord(".")
_U8, _U16, _U32, _U64 = (struct.Struct(f"<{letter}") for letter in "BHIQ")
_I32, _BIG_FLOAT = struct.Struct("<i"), struct.Struct(">d")


def _steps() -> Iterator[tuple[bytes, Callable[[Unpickler], object]]]:
    number, push = Unpickler._number, Unpickler._push
    yield b"\x80", lambda m: m._take(1)  # the protocol
    yield b"\x95", lambda m: m._take(8)  # a frame
    yield b"(", lambda m: push(m, _MARK)
    yield b"0", Unpickler._pop
    yield b"1", lambda m: m._pop_to_mark()
    yield b"2", lambda m: push(m, m._stack[-1])
    yield b"N", lambda m: push(m, None)
    yield b"\x88", lambda m: push(m, True)
    yield b"\x89", lambda m: push(m, False)
    yield b"I", Unpickler._integer_line
    yield b"J", lambda m: push(m, number(m, _I32))
    yield b"K", lambda m: push(m, number(m, _U8))
    yield b"M", lambda m: push(m, number(m, _U16))
    yield b"L", lambda m: push(m, int(m._line().removesuffix("L")))
    yield b"\x8a", lambda m: m._long(number(m, _U8))
    yield b"\x8b", lambda m: m._long(number(m, _I32))
    yield b"F", lambda m: push(m, float(m._line()))
    yield b"G", lambda m: push(m, number(m, _BIG_FLOAT))
    yield b"X", lambda m: m._text(number(m, _U32))
    yield b"\x8c", lambda m: m._text(number(m, _U8))
    yield b"\x8d", lambda m: m._text(number(m, _U64))
    yield b"V", lambda m: push(m, m._line())
    yield b"T", lambda m: m._old_text(number(m, _I32))
    yield b"U", lambda m: m._old_text(number(m, _U8))
    yield b"B", lambda m: m._bytes(number(m, _U32))
    yield b"C", lambda m: m._bytes(number(m, _U8))
    yield b"\x8e", lambda m: m._bytes(number(m, _U64))
    yield b"\x96", lambda m: m._bytes(number(m, _U64))
    yield b")", lambda m: push(m, ())
    yield b"\x85", lambda m: m._tuple(1)
    yield b"\x86", lambda m: m._tuple(2)
    yield b"\x87", lambda m: m._tuple(3)
    yield b"t", lambda m: push(m, tuple(m._pop_to_mark()))
    yield b"]", lambda m: push(m, [])
    yield b"l", lambda m: push(m, m._pop_to_mark())
    yield b"a", Unpickler._append
    yield b"e", lambda m: m._extend(m._pop_to_mark())
    yield b"}", lambda m: push(m, {})
    yield b"d", Unpickler._dict
    yield b"s", Unpickler._set_item
    yield b"u", lambda m: m._set_items(m._pop_to_mark())
    yield b"\x8f", lambda m: push(m, _OTHER)
    yield b"\x90", Unpickler._forget_items
    yield b"\x91", Unpickler._set
    yield b"c", Unpickler._global
    yield b"\x93", Unpickler._stack_global
    yield b"R", Unpickler._reduce
    yield b"\x81", Unpickler._reduce
    yield b"\x92", Unpickler._new_with_keywords
    yield b"i", Unpickler._inst
    yield b"o", Unpickler._obj
    yield b"b", Unpickler._build
    yield b"Q", Unpickler._persistent
    yield b"p", lambda m: m._put(int(m._line()))
    yield b"q", lambda m: m._put(number(m, _U8))
    yield b"r", lambda m: m._put(number(m, _U32))
    yield b"\x94", lambda m: m._put(len(m._memo))
    yield b"g", lambda m: m._get(int(m._line()))
    yield b"h", lambda m: m._get(number(m, _U8))
    yield b"j", lambda m: m._get(number(m, _U32))


_STEPS = {code[0]: step for code, step in _steps()}
