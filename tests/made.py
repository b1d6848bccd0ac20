"""Small checkpoints, written byte by byte, so that what is tested does not depend on what is tested."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.storage.memory import MemoryFile, MemoryFolder

Stored = NDArray[Any] | tuple[str, tuple[int, ...], bytes]
"""An array, or the encoding, shape and bytes of one."""

CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "uint32": "U32", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def stored(tensor: Stored) -> tuple[str, tuple[int, ...], bytes]:
    if isinstance(tensor, tuple):
        return tensor
    return CODES[tensor.dtype.name], tensor.shape, np.ascontiguousarray(tensor).tobytes()


def pack(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with this header (an object, its JSON, or its bytes), whatever the header says."""
    text = header if isinstance(header, str | bytes) else json.dumps(header)
    raw = text if isinstance(text, bytes) else text.encode()
    return len(raw).to_bytes(8, "little") + raw + data


def safetensors(tensors: Mapping[str, Stored], **more: object) -> bytes:
    """A safetensors file of these tensors; `more` are further entries of its header."""
    header: dict[str, Any] = dict(more)
    data = b""
    for name, tensor in tensors.items():
        code, shape, raw = stored(tensor)
        header[name] = {
            "dtype": code,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return pack(header, data)


def index(weight_map: object) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()


def shards(parts: Mapping[str, Mapping[str, Stored]]) -> dict[str, bytes]:
    """The files of a checkpoint in several files, with its index."""
    files = {name: safetensors(tensors) for name, tensors in parts.items()}
    weight_map = {tensor: name for name, tensors in parts.items() for tensor in tensors}
    return {**files, "model.safetensors.index.json": index(weight_map)}


def words(*tokens: str) -> bytes:
    """A tokenizer whose tokens are these words, with ids from 0."""
    vocab = {token: row for row, token in enumerate(tokens)}
    return json.dumps({"model": {"type": "WordLevel", "vocab": vocab, "unk_token": tokens[0]}}).encode()


def write(folder: Path, files: Mapping[str, bytes | Mapping[str, Any]]) -> Path:
    """Write files into a folder; a mapping is written as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)
    return folder


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Stored],
    config: Mapping[str, Any] | None = None,
    tokens: tuple[str, ...] = (),
) -> Path:
    """A checkpoint in one file, with a config and a tokenizer where they are given."""
    files: dict[str, bytes | Mapping[str, Any]] = {"model.safetensors": safetensors(tensors)}
    if config is not None:
        files["config.json"] = config
    if tokens:
        files["tokenizer.json"] = words(*tokens)
    return write(folder, files)


def random_table(n_rows: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n_rows, width)).astype(np.float32)


class WatchedFile(MemoryFile):
    """Bytes as a file that remembers which of them were read."""

    def __init__(self, data: bytes, reads: list[tuple[int, int]]) -> None:
        super().__init__(data)
        self._reads = reads

    def read(self, start: int, stop: int) -> memoryview:
        self._reads.append((start, min(stop, self.size)))
        return super().read(start, stop)


class WatchedFolder(MemoryFolder):
    """A folder in memory that remembers what was opened, and which bytes were read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.contents = dict(files)
        self.opened: list[str] = []
        self.reads: dict[str, list[tuple[int, int]]] = {}

    def open(self, name: str) -> WatchedFile:
        self.opened.append(name)
        if name not in self.contents:
            raise FileNotFoundError(name)
        return WatchedFile(self.contents[name], self.reads.setdefault(name, []))

    def furthest(self, name: str) -> int:
        """The end of the last byte that was read of this file."""
        return max((stop for _, stop in self.reads.get(name, [])), default=0)


def header_end(data: bytes) -> int:
    """Where the data of a safetensors file begin."""
    return 8 + int.from_bytes(data[:8], "little")


class Array:
    """An array as a table that can be searched: blocks of an odd size, so that their borders are met."""

    def __init__(self, E: NDArray[Any], block: int = 7) -> None:
        self.E = E
        self.n_rows, self.width = E.shape
        self.block = block

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        for start in range(0, self.n_rows, self.block):
            view = self.E[start : start + self.block]
            view.flags.writeable = False
            yield start, view

    def rows(self, ids: NDArray[np.integer[Any]]) -> NDArray[Any]:
        return self.E[np.asarray(ids, np.int64)].copy()
