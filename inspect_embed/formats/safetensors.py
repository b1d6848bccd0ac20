"""Safetensors: one file, or shards with an index. Only headers are read until values are asked for.

Source: the layout of the format, https://huggingface.co/docs/safetensors (an 8-byte little-endian header
length, a JSON header of dtype, shape and data_offsets by tensor name, then the data).
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from operator import eq, itemgetter, mul, sub
from typing import Any, cast

from inspect_embed.encodings import ENCODINGS, Encoding
from inspect_embed.errors import (
    CheckpointError,
    DamagedFileError,
    NotACheckpointError,
    shorten,
)
from inspect_embed.formats import TensorEntry
from inspect_embed.formats._impostors import refuse_impostors
from inspect_embed.json_text import parse_json
from inspect_embed.storage import ByteSource, Folder, Ranges

NAME = "safetensors"
SUFFIX = ".safetensors"
SUFFIXES = (SUFFIX,)
INDEX_SUFFIX = ".safetensors.index.json"

_BYTES = {code: encoding.block_bytes for code, encoding in ENCODINGS.items() if encoding.block_elements == 1}

_SHARD = re.compile(r"(?P<stem>.*?)[-_.]?(?P<number>\d{2,6})-of-(?P<count>\d{2,6})\.safetensors", re.ASCII)
_LONGEST_HEADER = 1 << 40
"""A promise beyond this is no length of a header: these are the first bytes of something else."""
_LARGEST_SIZE = 1 << 63
"""Sizes and offsets are below this; beyond it a header is damaged, whatever its numbers say."""
_MOST_DIMENSIONS = 64
"""No array library knows more."""
_PREFERRED_STEMS = ("model", "pytorch_model", "diffusion_pytorch_model", "consolidated", "adapter_model")


class SafetensorsSet:
    """The tensors of one safetensors file or of a set of shards; a `TensorSet`."""

    format = NAME

    def __init__(self, folder: Folder, allow_partial: bool = False) -> None:
        self._folder = folder
        self._allow_partial = allow_partial
        self._headers: dict[str, dict[str, Any]] = {}
        self._data_start: dict[str, int] = {}
        self._short: dict[str, str] = {}
        self._file_of: dict[str, str] = {}
        self._open: dict[str, ByteSource] = {}
        self._element_bytes: dict[str, int] = {}
        self.missing_files: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.metadata: dict[str, str] = {}
        self.stated: Mapping[str, Any] = {}
        self.config: Mapping[str, Any] = {}
        self.vocabulary_file: str | None = None
        self.aliases: Mapping[str, str] = {}
        self._listed: dict[str, str] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files whose headers were read."""
        return tuple(self._headers)

    def __getitem__(self, name: str) -> TensorEntry:
        """The entry of this tensor; KeyError where there is none."""
        file = self._file_of[name]
        return _make_entry(name, self._headers[file][name], file)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor."""
        return name in self._file_of

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._file_of)

    def __iter__(self) -> Iterator[str]:
        """The tensors' names, in the order of the files."""
        return iter(self._file_of)

    def names(self) -> list[str]:
        """Every tensor's name, in the order of the files."""
        return list(self._file_of)

    def count_bytes(self) -> dict[str, int]:
        """Bytes of data for each encoding that occurs."""
        return dict(self._element_bytes)

    def batches(self) -> Iterator[tuple[list[str], list[str], list[int]]]:
        """Names, names of encodings, and numbers of bytes of all tensors, file by file."""
        unique = sum(map(len, self._headers.values())) == len(self._file_of)
        for file, header in self._headers.items():
            placed = header
            if not unique:
                placed = {name: record for name, record in header.items() if self._file_of[name] == file}
            records = placed.values()
            sizes = [stop - start for start, stop in map(itemgetter("data_offsets"), records)]
            yield list(placed), list(map(itemgetter("dtype"), records)), sizes

    def missing_names(self) -> list[str]:
        """Names of the tensors that the index places in files that are missing."""
        missing = set(self.missing_files)
        return [name for name, file in self._listed.items() if file in missing] if missing else []

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, as a read-only view; DamagedFileError where they are not there."""
        problem = self._short.get(entry.file)
        if problem and not self._allow_partial:
            raise DamagedFileError(
                problem,
                "Fetch the file again, or pass --allow-partial to use the tensors that lie wholly inside it.",
            )
        source = self._source(entry.file)
        offset = self._data_start[entry.file] + entry.start
        view = source.read(offset + start, offset + stop)
        if len(view) != stop - start:
            raise DamagedFileError(
                f"{entry.file} is cut short: {entry.name} needs bytes {offset + start:,} to {offset + stop:,}, "
                f"the file has {source.size:,}.",
                "Fetch the file again.",
            )
        return view

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """These bytes of a tensor will be read next."""
        offset = self._data_start[entry.file] + entry.start
        self._source(entry.file).expect((offset + start, offset + stop) for start, stop in ranges)

    def _source(self, file: str) -> ByteSource:
        source = self._open.get(file)
        if source is None:
            source = self._open[file] = self._folder.open(file)
        return source

    def close(self) -> None:
        """Give the files back."""
        for source in self._open.values():
            source.close()
        self._open.clear()

    def _add_file(self, name: str) -> None:
        """Read one file's header; DamagedFileError or NotACheckpointError where it has none."""
        try:
            source = self._folder.open(name)
        except OSError as error:
            raise NotACheckpointError(
                f"{name} cannot be opened: {error.strerror or error}.",
                "Check that it is there and may be read.",
            ) from None
        try:
            header, data_start = _read_header(source, name)
            size = source.size
        finally:
            source.close()
        # Absent, null and {} all mean that there is no such text.
        metadata = header.pop("__metadata__", None)
        if isinstance(metadata, dict):
            self.metadata.update({key: text for key, text in metadata.items() if isinstance(text, str)})
        end = _check_header(header, name, self._element_bytes)
        needed = data_start + end
        if needed > size:
            self._short[name] = f"{name} is cut short: it needs {needed:,} bytes and has {size:,}."
            self.warnings += (self._short[name],)
        elif needed < size:
            self.notes += (f"{name} holds {size - needed:,} bytes after its last tensor.",)
        self._headers[name] = header
        self._data_start[name] = data_start


def claims(names: Iterable[str], chosen: str | None) -> bool:
    """Is this folder, or the file chosen in it, a safetensors checkpoint?"""
    if chosen is not None:
        return chosen.endswith((SUFFIX, INDEX_SUFFIX))
    return any(name.endswith((SUFFIX, INDEX_SUFFIX)) for name in names)


def recognizes(start: bytes) -> bool:
    """Do these first bytes begin a safetensors file: a length, and then a JSON object?"""
    return start[8:9] == b"{"


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> SafetensorsSet:
    """Which tensors does this checkpoint hold?

    `chosen` is a file of the folder, a safetensors file or an index; without it an index decides, else
    the names of the files do. Files that are missing, cut short or unreadable beside others that are not
    become warnings; a lone one is an error. Cost: the headers. Errors: DamagedFileError,
    NotACheckpointError.
    """
    names = folder.names()
    tensors = SafetensorsSet(folder, allow_partial)
    with _no_garbage_collection():
        index = chosen if chosen is not None and chosen.endswith(INDEX_SUFFIX) else None
        if chosen is None:
            index = _choose_index(names)
        if index is not None:
            _read_by_index(tensors, folder, index, names)
        else:
            _read_by_names(tensors, names, chosen, folder.location)
    return tensors


def _read_by_index(tensors: SafetensorsSet, folder: Folder, index: str, names: list[str]) -> None:
    weight_map, tensors.stated = _read_index(folder, index)
    listed = sorted(set(weight_map.values()))
    for file in listed:
        if not _is_plain_name(file):
            raise DamagedFileError(
                f"{index} names the file {file!r}, which is not a plain name inside the checkpoint's folder.",
                "Do not trust this index; name one of the .safetensors files instead.",
            )
    present = set(names)
    missing = [file for file in listed if file not in present]
    if missing and len(missing) == len(listed):
        others = [name for name in names if name.endswith(SUFFIX)]
        if not others:
            raise NotACheckpointError(
                f"None of the {len(listed)} files that {index} names is there: {shorten(missing)}.",
                "Fetch at least the file that holds the table.",
            )
        tensors.warnings += (
            f"{index} is stale: none of the {len(listed)} files that it names is there ({shorten(missing)}); "
            f"the files that are there were read instead.",
        )
        _read_by_names(tensors, names, None, folder.location)
        return
    tensors.missing_files = tuple(missing)
    tensors._listed = weight_map
    if missing:
        tensors.warnings += (
            f"{len(missing)} of the {len(listed)} files that {index} names are not there: {shorten(missing)}.",
        )
    _add_files(tensors, [file for file in listed if file in present], index)
    _place_by_index(tensors, weight_map, index)
    ignored = [name for name in names if name.endswith(SUFFIX) and name not in set(listed)]
    if ignored:
        tensors.notes += (f"Not counted, since {index} does not name them: {shorten(ignored)}.",)


def _read_by_names(tensors: SafetensorsSet, names: list[str], chosen: str | None, location: str) -> None:
    if chosen is not None:
        tensors._add_file(chosen)
        _place_by_headers(tensors)
        return
    files, missing, ignored = _choose_files([name for name in names if name.endswith(SUFFIX)], location)
    tensors.missing_files = tuple(missing)
    if missing:
        tensors.warnings += (f"{len(missing)} shards are not there: {shorten(missing)}.",)
    _add_files(tensors, files, "the names of the files")
    _place_by_headers(tensors)
    if ignored:
        tensors.notes += (f"Not counted beside {shorten(files)}: {shorten(ignored)}.",)


def _add_files(tensors: SafetensorsSet, files: list[str], told_by: str) -> None:
    """Read headers; one unreadable file among several is a warning, and its tensors are missing."""
    failed: dict[str, CheckpointError] = {}
    for file in files:
        try:
            tensors._add_file(file)
        except CheckpointError as error:
            if len(files) == 1:
                raise
            failed[file] = error
            tensors.warnings += (f"{error} Its tensors are missing.",)
    if len(failed) == len(files):
        first = failed[files[0]]
        raise DamagedFileError(
            f"None of the {len(files)} files named by {told_by} can be read: {first}", first.hint
        )
    tensors.missing_files += tuple(failed)


def _place_by_headers(tensors: SafetensorsSet) -> None:
    """Which file holds which tensor, by the headers alone."""
    for file, header in tensors._headers.items():
        tensors._file_of.update(dict.fromkeys(header, file))


def _place_by_index(tensors: SafetensorsSet, weight_map: dict[str, str], index: str) -> None:
    """Headers say what a file holds; where two files hold one name, the index says which is meant."""
    headers = tensors._headers
    if len(weight_map) == sum(map(len, headers.values())) and all(
        set(map(weight_map.get, header)) <= {file} for file, header in headers.items()
    ):
        tensors._file_of = weight_map  # the usual case: they agree
        return
    _place_by_headers(tensors)
    gone = set(tensors.missing_files)
    absent = 0
    for name, file in weight_map.items() - tensors._file_of.items():
        if file in gone:
            continue
        if name in headers[file]:
            tensors._file_of[name] = file
        else:
            absent += 1
    if absent:
        tensors.warnings += (f"{index} lists {absent:,} tensors that the files do not hold.",)
    extra = tensors._file_of.keys() - weight_map.keys()
    if extra:
        tensors.notes += (
            f"The files hold {len(extra):,} tensors that {index} does not list: {shorten(sorted(extra))}.",
        )


def _read_index(folder: Folder, index: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Which file holds which tensor, and what the index states about the whole."""
    source = folder.open(index)
    try:
        refuse_impostors(bytes(source.read(0, 1024)), source.size, index, "an index")
        content = parse_json(source.read(0, source.size), index, source.size)
    finally:
        source.close()
    weight_map: Any = content.get("weight_map")
    try:
        sound = bool(weight_map) and all(type(file) is str for file in set(weight_map.values()))
    except (AttributeError, TypeError):  # no object, or an unhashable value in it
        sound = False
    if not sound:
        raise DamagedFileError(
            f'{index} has no "weight_map" from tensor names to file names.',
            "Name one of the .safetensors files instead.",
        )
    stated = content.get("metadata")
    return cast("dict[str, str]", weight_map), stated if isinstance(stated, dict) else {}


def _is_plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not any(mark in name for mark in "/\\:\0")


def _choose_index(names: list[str]) -> str | None:
    indices = [name for name in names if name.endswith(INDEX_SUFFIX)]
    if len(indices) > 1 and "model" + INDEX_SUFFIX in indices:
        return "model" + INDEX_SUFFIX
    return indices[0] if indices else None


def _choose_files(files: list[str], location: str) -> tuple[list[str], list[str], list[str]]:
    """Without an index: the files that make one model, those missing among them, those left out."""
    groups: dict[str, list[str]] = {}
    for file in files:
        match = _SHARD.fullmatch(file)
        groups.setdefault(f"{match['stem']}-of-{match['count']}" if match else file, []).append(file)
    if not groups:
        raise NotACheckpointError(
            f"{location} holds no .safetensors file.", "Name a folder or a file that does."
        )
    missing = {group: _missing_shards(held) for group, held in groups.items()}
    ranks = {group: _rank_group(group) for group in groups}
    best = min(groups, key=lambda group: (ranks[group], len(missing[group]), group))
    if len(groups) > 1 and ranks[best][0] == len(_PREFERRED_STEMS):
        raise NotACheckpointError(
            f"{location} holds {len(files)} .safetensors files and none is called model.safetensors: "
            f"{shorten(files)}.",
            "Name the file that is meant.",
        )
    chosen = groups[best]
    return chosen, missing[best], [file for file in files if file not in chosen]


def _missing_shards(files: list[str]) -> list[str]:
    """Which shards does a set lack, by the numbers in its names?"""
    match = _SHARD.fullmatch(files[0])
    if not match:
        return []
    numbers = {int(found["number"]) for found in map(_SHARD.fullmatch, files) if found}
    head, tail = files[0][: match.start("number")], files[0][match.end("number") :]
    # The count is a claim of the name alone: list no more than could matter to a reader.
    absent = (n for n in range(1, min(int(match["count"]), 10_000) + 1) if n not in numbers)
    return [f"{head}{n:0{len(match['number'])}d}{tail}" for n in absent]


def _rank_group(group: str) -> tuple[int, int]:
    """Preferred stems first; of one stem, the plain name, then shards, then variants."""
    for rank, stem in enumerate(_PREFERRED_STEMS):
        if group == stem + SUFFIX:
            return rank, 0
        if group.startswith(stem + "-of-"):
            return rank, 1
        if group.startswith((stem + ".", stem + "-")):
            return rank, 2
    return len(_PREFERRED_STEMS), 0


def _read_header(source: ByteSource, name: str) -> tuple[dict[str, Any], int]:
    """The parsed header, and where the data begin. Nothing is allocated before lengths are checked."""
    size = source.size
    start = bytes(source.read(0, 1024))
    if size == 0:
        raise DamagedFileError(f"{name} is empty (0 bytes).", "Fetch the file again.")
    # The first bytes of a true header length can look like anything; a "{" after them settles it.
    if start[8:9] != b"{":
        refuse_impostors(start, size, name, "a safetensors file")
    if size < 8:
        raise DamagedFileError(
            f"{name} has {size} bytes, too few for a safetensors file.", "Fetch the file again."
        )
    length = int.from_bytes(start[:8], "little")
    if length > size - 8:
        if start[8:9] in (b"{", b"") and length < _LONGEST_HEADER:
            raise DamagedFileError(
                f"{name} is cut short inside its header: it needs at least {8 + length:,} bytes and has {size:,}.",
                "Fetch the file again.",
            )
        raise NotACheckpointError(
            f"{name} is not a safetensors file: its first 8 bytes promise a header of {length:,} bytes, "
            f"and the file has {size:,}.",
            "Check where the file came from.",
        )
    if start[8:9] != b"{":
        raise NotACheckpointError(
            f"{name} is not a safetensors file: no JSON header follows its first 8 bytes.",
            "Check where the file came from.",
        )
    return parse_json(source.read(8, 8 + length), name, size), 8 + length


def _check_header(header: dict[str, Any], name: str, bytes_by_encoding: dict[str, int]) -> int:
    """Hold every record against its own shape; returns where the data end, counted from where they begin."""
    columns = _read_columns(header)
    if columns is None:
        entries = [_make_entry(tensor, record, name) for tensor, record in header.items()]
        codes = [entry.encoding.name for entry in entries]
        sizes, end = [entry.n_bytes for entry in entries], max((entry.stop for entry in entries), default=0)
    else:
        codes, sizes, end = columns
    total = sum(sizes)
    if total > end:
        raise DamagedFileError(
            f"The header of {name} contradicts itself: its tensors take {total:,} bytes and share {end:,}.",
            "Fetch the file again, or ask who wrote it.",
        )
    for code in dict.fromkeys(codes):
        n_bytes = sum(compress(sizes, map(code.__eq__, codes)))
        if n_bytes or code not in _BYTES:
            bytes_by_encoding[code] = bytes_by_encoding.get(code, 0) + n_bytes
    return end


def _read_columns(header: dict[str, Any]) -> tuple[list[str], list[int], int] | None:
    """Encodings and sizes of all tensors, and where the data end; None where a record needs a closer look.

    A large checkpoint has hundreds of thousands of records: they are read column by column, without a loop of our own.
    """
    records = header.values()
    try:
        codes = list(map(itemgetter("dtype"), records))
        offsets = list(map(itemgetter("data_offsets"), records))
        starts, stops = list(map(itemgetter(0), offsets)), list(map(itemgetter(1), offsets))
        sizes = list(map(sub, stops, starts))
        wanted = map(mul, map(math.prod, map(itemgetter("shape"), records)), map(_BYTES.__getitem__, codes))
        sound = (
            all(map(eq, sizes, wanted))
            and sum(map(len, offsets)) == 2 * len(offsets)
            and type(sum(starts) + sum(stops)) is int
            and min(starts, default=0) >= 0
            and max(stops, default=0) < _LARGEST_SIZE
        )
    except (TypeError, ValueError, LookupError, OverflowError):
        return None
    return (codes, sizes, max(stops, default=0)) if sound else None


def _make_entry(name: str, record: object, file: str) -> TensorEntry:
    """A record of the header, checked in full; DamagedFileError where it contradicts itself."""

    def refuse(what: str) -> DamagedFileError:
        return DamagedFileError(
            f"The header of {file} is damaged at {name!r}: {what}.", "Fetch the file again."
        )

    if not isinstance(record, dict):
        raise refuse("it is no record of a tensor")
    shape, offsets, code = record.get("shape"), record.get("data_offsets"), record.get("dtype")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < _LARGEST_SIZE for n in shape):
        raise refuse("its shape is not a list of sizes")
    if len(shape) > _MOST_DIMENSIONS:
        raise refuse(f"its shape has {len(shape):,} sizes")
    if not isinstance(code, str):
        raise refuse("it names no encoding")
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(offset) is int for offset in offsets)
        and 0 <= offsets[0] <= offsets[1] < _LARGEST_SIZE
    ):
        raise refuse("its offsets are not two growing numbers")
    start, stop = offsets
    elements = math.prod(shape)
    encoding = ENCODINGS.get(code)
    if encoding is None:
        # An encoding newer than this list: what can be told is how many bytes an element takes.
        n_bytes = stop - start
        common = math.gcd(elements, n_bytes) or 1
        encoding = Encoding(code, max(elements // common, 1), n_bytes // common)
    if encoding.count_bytes(elements) != stop - start:
        takes = f"{encoding.count_bytes(elements):,}" if elements < _LARGEST_SIZE else "more than any file's"
        raise refuse(
            f"a {code} tensor of shape ({shorten(shape)}) takes {takes} bytes, its offsets give {stop - start:,}"
        )
    return TensorEntry(name, tuple(shape), encoding, file, start, stop)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Parsing makes many small objects and no cycles; collecting among them only takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
