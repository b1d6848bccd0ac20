"""PyTorch archives, put together step by step without torch, so that they can say whatever a test wants."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "float64": "DoubleStorage",
    "int64": "LongStorage",
}
MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
END = b"."


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if 0 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def call(called: bytes, *arguments: bytes) -> bytes:
    return called + b"(" + b"".join(arguments) + b"tR"


def mapping(entries: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def tensor(
    key: str,
    n_items: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int = 0,
    storage: str = "FloatStorage",
    module: str = "torch",
) -> bytes:
    """A tensor as a view of the numbers that are stored under a key."""
    run = b"(" + text("storage") + name(module, storage) + text(key) + text("cpu") + number(n_items) + b"tQ"
    hooks = name("collections", "OrderedDict") + b")R"
    return call(
        name("torch._utils", "_rebuild_tensor_v2"),
        run,
        number(offset),
        numbers(shape),
        numbers(strides),
        b"\x89",
        hooks,
    )


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[place + 1 :])) for place in range(len(shape)))


def archive(
    pickle: bytes, stored: Mapping[str, bytes], root: str = "archive", more: Mapping[str, bytes] | None = None
) -> bytes:
    """A zip archive as torch.save writes it: the pickle, and a file for each run of numbers."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.writestr(f"{root}/data.pkl", pickle)
        for key, data in stored.items():
            file.writestr(f"{root}/data/{key}", data)
        for inner, data in (more or {}).items():
            file.writestr(f"{root}/{inner}", data)
        file.writestr(f"{root}/version", b"3\n")
    return buffer.getvalue()


def state(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Entries of a state dict, and the numbers that they are views of."""
    entries, stored = {}, {}
    for place, (entry, array) in enumerate(arrays.items()):
        storage = STORAGES[array.dtype.name]
        entries[entry] = tensor(str(place), array.size, array.shape, row_major(array.shape), storage=storage)
        stored[str(place)] = np.ascontiguousarray(array).tobytes()
    return entries, stored


def saved(arrays: Mapping[str, NDArray[Any]], around: tuple[str, ...] = ()) -> bytes:
    """A file with a state dict of these arrays, under the keys `around` it."""
    entries, stored = state(arrays)
    content = mapping(entries)
    for key in reversed(around):
        content = mapping({key: content, "epoch": number(3)})
    return archive(b"\x80\x02" + content + END, stored)


def saved_before_zip(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The same in the format that torch wrote before version 1.6."""
    entries, stored = state(arrays)
    runs = {
        entry: content.replace(b"tQ", b"NtQ", 1) for entry, content in entries.items()
    }  # the sixth item of a reference
    system = mapping({"protocol_version": number(1001), "little_endian": b"\x88"})
    keys = b"](" + b"".join(map(text, stored)) + b"e"
    head = MAGIC + b"\x80\x02" + number(1001) + END
    head += b"".join(b"\x80\x02" + part + END for part in (system, mapping(runs), keys))
    data = b"".join(
        struct.pack("<Q", array.size) + stored[str(place)] for place, array in enumerate(arrays.values())
    )
    return head + data
