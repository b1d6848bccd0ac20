"""numpy's arrays: `.npy`, and `.npz`, an archive of them. Rows of the one table are tokens.

A lone table is called `embeddings`, whatever it is called in its file, under which name it is found too. Words stand in the
archive, as an array of strings, or a line each in a list beside: `table.txt`, `table.vocab`, `table.words.txt`,
`table.vocab.txt` or `table.tokens.txt` for `table.npy`, else `words.txt`, `vocab.txt` or `tokens.txt`. Arrays of
Python objects are pickles, and are never opened.

Source: numpy, lib/format.py (versions 1 to 3 of the format).
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING

from inspect_embed.encodings import ENCODINGS, Encoding
from inspect_embed.errors import DamagedFileError, NotACheckpointError, shorten
from inspect_embed.formats import TensorEntry
from inspect_embed.formats._impostors import refuse_impostors
from inspect_embed.formats._listed import ListedTensors
from inspect_embed.storage import ByteSource, Folder, Ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "NumPy"
ARRAY, ARCHIVE = ".npy", ".npz"
SUFFIXES = (ARRAY, ARCHIVE)
MAGIC = b"\x93NUMPY"
LONE = "embeddings"
"""What the only table is called."""

WORD_ARRAYS = ("tokens", "words", "vocab", "vocabulary", "labels", "index_to_key", "index2word")
"""Names of arrays of words in an archive, the likeliest first."""
OWN_LISTS = (".txt", ".vocab", ".words.txt", ".vocab.txt", ".tokens.txt")
"""Ends of names of a list of words beside an array, after the array's own stem."""
COMMON_LISTS = ("words.txt", "vocab.txt", "tokens.txt")
"""Names of a list of words in a folder."""

_AGAIN = "Fetch the file again."
_ZIP_MAGIC = b"PK\x03\x04"
_LONGEST_HEADER = 1 << 16
_LARGEST_SIZE = 1 << 63
_MOST_DIMENSIONS = 64
_MOST_TIMES = 1100
"""Deflate shrinks nothing to less than 1/1032: what claims more is no archive that numpy wrote."""
_CODES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "u8": "U64", "i4": "I32", "u4": "U32", "i2": "I16", "u2": "U16",
    "i1": "I8", "u1": "U8", "b1": "BOOL", "c8": "C64", "c16": "C128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """An array as its header describes it; `member` is its name in an archive, "" outside of one.

    `start` is where its numbers begin: in the file, or, for those in an archive, in the unpacked member.
    """

    member: str
    code: str
    by_columns: bool
    shape: tuple[int, ...]
    start: int
    place: int | None
    """Where its numbers lie in the file; None where they are compressed."""

    @property
    def encoding(self) -> Encoding | None:
        """How its numbers lie; None where it holds no numbers."""
        order, kind = self.code[:1], self.code[1:]
        if order in "OUSV" or kind[:1] in "OUSMmV[":
            return None
        if kind in _CODES and order in "<|":
            return ENCODINGS[_CODES[kind]]
        size = int(kind[1:]) if kind[1:].isdigit() and len(kind) < 5 else 0
        return Encoding(f"numpy {self.code}", 1, size) if size else None

    @property
    def text_bytes(self) -> int:
        """How many bytes a string takes, where it holds strings; else 0."""
        match = re.fullmatch(r"[<|](U|S)(\d{1,6})", self.code)
        return int(match[2]) * (4 if match[1] == "U" else 1) if match else 0


class NumpyTensors(ListedTensors):
    """The arrays of one file or of several; a `TensorSet`."""

    format = NAME

    def __init__(self, folder: Folder, allow_partial: bool = False) -> None:
        super().__init__(folder, allow_partial)
        self._arrays: dict[str, Array] = {}
        self._copies: dict[str, memoryview] = {}

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, row by row: a view of the file, or of a copy where it is compressed or lies
        column by column. DamagedFileError where they are not there.
        """
        array = self._arrays[entry.name]
        if array.place is not None and not array.by_columns:
            return self._read_range(entry, entry.start + start, entry.start + stop)
        if entry.name not in self._copies:
            self._copies[entry.name] = self._copy(entry, array)
        return self._copies[entry.name][start:stop]

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """These bytes of a tensor will be read next; all of one that lies column by column is."""
        array = self._arrays[entry.name]
        if array.place is None:
            self._source(entry.file).expect(((0, self._source(entry.file).size),))
        elif array.by_columns:
            super().expect(entry, ((0, entry.n_bytes),))
        else:
            super().expect(entry, ranges)

    def _copy(self, entry: TensorEntry, array: Array) -> memoryview:
        data = (
            self._read_range(entry, entry.start, entry.stop)
            if array.place is not None
            else memoryview(_unpack(self._source(entry.file), entry.file, array, entry.n_bytes))
        )
        if not array.by_columns:
            return data
        import numpy as np

        size = entry.encoding.block_bytes
        columns = np.frombuffer(data, f"V{size}").reshape(entry.shape[::-1])
        return memoryview(np.ascontiguousarray(columns.T).tobytes())


def claims(names: Iterable[str], chosen: str | None) -> bool:
    """Is this folder, or the file chosen in it, numpy's?"""
    return any(name.endswith(SUFFIXES) for name in (names if chosen is None else (chosen,)))


def recognizes(start: bytes) -> bool:
    """Do these first bytes begin an array?"""
    return start.startswith(MAGIC)


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> NumpyTensors:
    """Which arrays are in this file, or in the files of this folder? Cost: their headers.

    Arrays of strings are words, and are no tensors. Errors: DamagedFileError, NotACheckpointError.
    """
    tensors = NumpyTensors(folder, allow_partial)
    names = folder.names()
    files = [chosen] if chosen is not None else [name for name in names if name.endswith(SUFFIXES)]
    archives = [name for name in files if name.endswith(ARCHIVE)]
    if len(archives) > 1:
        raise NotACheckpointError(
            f"{folder.location} holds {len(archives)} archives: {shorten(archives)}.",
            "Name the file that is meant.",
        )
    files = archives or files
    tensors.files = tuple(files)
    found = [(file, array) for file in files for array in read_arrays(folder, file)]
    numeric = [(file, array, code) for file, array in found if (code := array.encoding) is not None]
    n_tables = sum(len(array.shape) == 2 for _, array, _ in numeric)
    for file, array, encoding in numeric:
        stored = array.member or file.removesuffix(ARRAY)
        name = LONE if n_tables == 1 and len(array.shape) == 2 else stored
        if name != stored:
            tensors.aliases = {stored: name}
        start = array.start if array.place is None else array.place
        stop = start + encoding.count_bytes(math.prod(array.shape))
        tensors._add(TensorEntry(name, array.shape, encoding, file, start, stop))
        tensors._arrays[name] = array
        if array.place is not None and stop > (size := _size(folder, file)):
            tensors._short[file] = f"{file} is cut short: it needs {stop:,} bytes and has {size:,}."
    tensors.warnings += tuple(tensors._short.values())
    objects = [array.member or file for file, array in found if "O" in array.code]
    if objects:
        tensors.notes += (
            f"Arrays of Python objects, which are pickles and are never opened: {shorten(objects)}.",
        )
    if len(files) == 1 and has_words(folder, files[0], [array for _, array in found]):
        tensors.vocabulary_file = files[0]
    return tensors


def read_arrays(folder: Folder, file: str) -> list[Array]:
    """Which arrays does this file hold? DamagedFileError, NotACheckpointError where it is none of numpy's."""
    source = folder.open(file)
    try:
        start = bytes(source.read(0, _LONGEST_HEADER))
        if start.startswith(MAGIC):
            return [_read_header(start, "", file, 0)]
        if not start.startswith(_ZIP_MAGIC) or not file.endswith(ARCHIVE):
            refuse_impostors(start, source.size, file, "an array saved by numpy")
            raise NotACheckpointError(f"{file} is no array saved by numpy.", _AGAIN)
        with _open_archive(source, file) as archive:
            return [_read_member(archive, info, source, file) for info in archive.infolist()]
    finally:
        source.close()


def read_words(folder: Folder, file: str) -> tuple[list[str], str]:
    """Which words stand in this archive, or beside this array, and in which file? DamagedFileError where none do."""
    arrays = read_arrays(folder, file)
    inside = _find_word_array(arrays)
    if inside is not None:
        return _read_strings(folder, file, inside), file
    listed = find_list(folder, file)
    if listed is None:
        raise DamagedFileError(
            f"No words stand in {file} or beside it.", f"Write a word a line into {_stem(file)}.txt."
        )
    source = folder.open(listed)
    try:
        text = str(source.read(0, source.size), "utf-8-sig")
    except UnicodeDecodeError:
        raise DamagedFileError(f"{listed} is not UTF-8 text.", "Save it as UTF-8.") from None
    finally:
        source.close()
    # Only line feeds end a line: words can hold the other line breaks of Unicode.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")], listed


def has_words(folder: Folder, file: str, arrays: list[Array]) -> bool:
    """Whether words stand in this archive, or beside this array."""
    return _find_word_array(arrays) is not None or find_list(folder, file) is not None


def find_list(folder: Folder, file: str) -> str | None:
    """The list of words beside an array; None where there is none, or where a tokenizer goes before it."""
    names = set(folder.names())
    for suffix in OWN_LISTS:
        if (name := _stem(file) + suffix) in names:
            return name
    if "tokenizer.json" in names:
        return None
    return next((name for name in COMMON_LISTS if name in names), None)


def _stem(file: str) -> str:
    return file.removesuffix(ARRAY).removesuffix(ARCHIVE)


def _find_word_array(arrays: list[Array]) -> Array | None:
    lists = {array.member: array for array in arrays if array.text_bytes and len(array.shape) == 1}
    for name in WORD_ARRAYS:
        if name in lists:
            return lists[name]
    return next(iter(lists.values())) if len(lists) == 1 else None


def _read_strings(folder: Folder, file: str, array: Array) -> list[str]:
    import numpy as np

    n_bytes = math.prod(array.shape) * array.text_bytes
    source = folder.open(file)
    try:
        if array.place is None:
            data = memoryview(_unpack(source, file, array, n_bytes))
        else:
            data = source.read(array.place, array.place + n_bytes)
        if len(data) != n_bytes:
            raise DamagedFileError(f"{file} is cut short in its array {array.member}.", _AGAIN)
        words: NDArray[np.str_ | np.bytes_] = np.frombuffer(data, array.code)
        try:
            found: list[str | bytes] = words.tolist()
        except ValueError:  # a number that is no character
            raise DamagedFileError(f"The array {array.member} of {file} holds no text.", _AGAIN) from None
    finally:
        source.close()
    return [word.decode(errors="backslashreplace") if isinstance(word, bytes) else word for word in found]


def _read_header(start: bytes, member: str, file: str, offset: int | None) -> Array:
    """The header at the start of an array; `offset` is where the array begins in its file, None where it is packed."""
    what = f"{member} in {file}" if member else file
    version = start[6] if len(start) > 6 else 0
    layout = {1: "<H", 2: "<I", 3: "<I"}.get(version)
    if layout is None or len(start) < 12:
        raise DamagedFileError(f"The header of {what} is damaged.", _AGAIN)
    (length,) = struct.unpack_from(layout, start, 8)
    begin = 8 + struct.calcsize(layout)
    text = start[begin : begin + length].decode("utf-8", "replace")
    code = re.search(r"'descr':\s*(?:'([<>|=][A-Za-z]\d*)'|(\[))", text)
    order = re.search(r"'fortran_order':\s*(True|False)", text)
    shape = re.search(r"'shape':\s*\(([\d,\sL]*)\)", text)
    if len(text.encode()) != length or code is None or order is None or shape is None:
        raise DamagedFileError(f"The header of {what} is damaged or cut short.", _AGAIN)
    digits = re.findall(r"\d+", shape[1])
    numbers = tuple(int(digit) for digit in digits if len(digit) < 20)
    if (
        len(numbers) != len(digits)
        or len(numbers) > _MOST_DIMENSIONS
        or math.prod(numbers) * 16 >= _LARGEST_SIZE
    ):
        raise DamagedFileError(f"The header of {what} is damaged: no file holds so many numbers.", _AGAIN)
    place = None if offset is None else offset + begin + length
    return Array(member, code[1] or "[", order[1] == "True", numbers, begin + length, place)


class _Seekable(RawIOBase):
    """A byte source as a file that zipfile reads."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._source.size)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._source.size if size < 0 else self._at + size
        data = bytes(self._source.read(self._at, stop)) if stop > self._at else b""
        self._at += len(data)
        return data


def _open_archive(source: ByteSource, file: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(_Seekable(source))
    except (zipfile.BadZipFile, struct.error, ValueError, OverflowError, EOFError):
        raise DamagedFileError(f"{file} is a zip archive that is cut short or damaged.", _AGAIN) from None


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: ByteSource, file: str) -> Array:
    member = info.filename.removesuffix(ARRAY)
    start = _unpack_some(archive, info, file, _LONGEST_HEADER)
    if not start.startswith(MAGIC):
        raise DamagedFileError(f"{info.filename} in {file} is no array saved by numpy.", _AGAIN)
    offset = None
    if info.compress_type == zipfile.ZIP_STORED:
        head = bytes(source.read(info.header_offset, info.header_offset + 30))
        offset = info.header_offset + 30 + sum(struct.unpack_from("<2H", head, 26))
    array = _read_header(start, member, file, offset)
    size = array.encoding.block_bytes if array.encoding is not None else array.text_bytes
    if array.start + math.prod(array.shape) * size > info.file_size or (
        info.file_size > max(info.compress_size, 1) * _MOST_TIMES or info.compress_size > source.size
    ):
        raise DamagedFileError(
            f"{member} in {file} is damaged: its header and its place in the archive do not agree.", _AGAIN
        )
    return array


def _unpack(source: ByteSource, file: str, array: Array, n_bytes: int) -> bytes:
    """The numbers of an array that is compressed."""
    with _open_archive(source, file) as archive:
        info = next(info for info in archive.infolist() if info.filename.removesuffix(ARRAY) == array.member)
        return _unpack_some(archive, info, file, array.start + n_bytes)[array.start :]


def _unpack_some(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: str, n_bytes: int) -> bytes:
    """The first bytes of a member, all where it is shorter."""
    try:
        with archive.open(info) as member:
            data = member.read(min(n_bytes, info.file_size))
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        struct.error,
        ValueError,
    ):
        raise DamagedFileError(f"{info.filename} in {file} is damaged.", _AGAIN) from None
    if len(data) < min(n_bytes, info.file_size):
        raise DamagedFileError(f"{info.filename} in {file} is cut short.", _AGAIN)
    return data


def _size(folder: Folder, file: str) -> int:
    source = folder.open(file)
    try:
        return source.size
    finally:
        source.close()
