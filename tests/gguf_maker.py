"""GGUF files, written byte by byte, so that what is tested does not depend on what is tested."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "text": 8,
    "list": 9,
    "u64": 10,
}
LETTERS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "?",
    "u64": "Q",
}
TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 8,
    "Q4_K": 12,
    "IQ4_NL": 20,
    "BF16": 30,
    "MXFP4": 39,
}


@dataclass(frozen=True)
class Typed:
    """A value of a stated kind; a list of kinds where it is a list."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Stored:
    """A tensor: its dimensions as the file writes them (width first), its type, its bytes."""

    dimensions: tuple[int, ...]
    kind: int
    data: bytes


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def packed(value: Any) -> bytes:
    """A value behind its kind."""
    match value:
        case Typed(kind, items) if isinstance(items, list):
            body = b"".join(
                text(item) if kind == "text" else struct.pack("<" + LETTERS[kind], item) for item in items
            )
            return struct.pack("<IIQ", KINDS["list"], KINDS[kind], len(items)) + body
        case Typed(kind, item):
            return struct.pack("<I" + LETTERS[kind], KINDS[kind], item)
        case bool():
            return struct.pack("<I?", KINDS["bool"], value)
        case int():
            return struct.pack("<II", KINDS["u32"], value)
        case float():
            return struct.pack("<If", KINDS["f32"], value)
        case str():
            return struct.pack("<I", KINDS["text"]) + text(value)
        case list():
            return packed(Typed("text" if isinstance(value[0], (str, bytes)) else "i32", value))
        case bytes():
            return value
    raise TypeError(value)


def stored(array: NDArray[Any] | Stored) -> Stored:
    if isinstance(array, Stored):
        return array
    kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[array.dtype.name]
    return Stored(tuple(reversed(array.shape)), TYPES[kind], np.ascontiguousarray(array).tobytes())


def gguf(
    pairs: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Stored],
    version: int = 3,
    alignment: int = 32,
    offsets: Sequence[int] | None = None,
) -> bytes:
    """A GGUF file of these pairs and tensors, whatever they say."""
    all_stored = {name: stored(tensor) for name, tensor in tensors.items()}
    head = b"GGUF" + struct.pack("<IQQ", version, len(all_stored), len(pairs))
    for key, value in pairs.items():
        head += text(key) + packed(value)
    data = b""
    for place, (name, tensor) in enumerate(all_stored.items()):
        data += bytes(-len(data) % alignment)
        offset = len(data) if offsets is None else offsets[place]
        head += text(name) + struct.pack(
            f"<I{len(tensor.dimensions)}Q", len(tensor.dimensions), *tensor.dimensions
        )
        head += struct.pack("<IQ", tensor.kind, offset)
        data += tensor.data
    return head + bytes(-len(head) % alignment) + data


def pairs_of_words(*tokens: str, kind: str = "gpt2", **more: Any) -> dict[str, Any]:
    """What a file says of a vocabulary of these tokens; a `_` in `more` is a `.` of the key."""
    said = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": list(tokens), **said}
