"""Which tensors a checkpoint holds: one file a format.

A format offers `NAME`, `SUFFIXES` (how its files are called), `claims` (is this folder, or the file chosen in it,
mine by its name?), `recognizes` (do these first bytes begin one of my files?) and `read_tensors`, which reads headers
only and gives a `TensorSet`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from inspect_embed.encodings import Encoding
from inspect_embed.storage import Folder, Ranges

FORMATS = ("safetensors", "gguf", "torch_zip", "npy", "word_vectors")
"""The modules of this package, one a format, in the order in which they are asked."""

_SHARED_SUFFIXES = (".bin",)
"""Ends of names that files of several formats have: their first bytes tell which is meant."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor as its file's header describes it.

    `start` and `stop` are byte offsets in `file`; no value has been read.
    """

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    file: str
    start: int
    stop: int

    @property
    def n_elements(self) -> int:
        """How many numbers it holds; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """How many bytes it takes in its file."""
        return self.stop - self.start


class TensorSet(Protocol):
    """The tensors of a checkpoint, by name; entries are made when they are asked for."""

    @property
    def format(self) -> str:
        """Name of the format, as people say it."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that were read."""
        ...

    @property
    def missing_files(self) -> tuple[str, ...]:
        """Files that should be there and are not, or cannot be read."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the files, a sentence each."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing about the files, a sentence each."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """Free text that the files carry about themselves."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """What the files themselves say of the model, in the words of config.json; empty where they say nothing."""
        ...

    @property
    def vocabulary_file(self) -> str | None:
        """The file among them that holds the vocabulary too; None in formats that hold tensors alone."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names under which a tensor is stored, and the name by which it is listed."""
        ...

    @property
    def stated(self) -> Mapping[str, Any]:
        """What an index states about the whole, as it was written: to be checked, never to be used."""
        ...

    def __getitem__(self, name: str) -> TensorEntry:
        """The entry of this tensor, under any of its names; KeyError where there is none."""
        ...

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor, under any of its names."""
        ...

    def __len__(self) -> int:
        """How many tensors there are."""
        ...

    def names(self) -> list[str]:
        """Every tensor's name, in the order of the files."""
        ...

    def count_bytes(self) -> dict[str, int]:
        """Bytes of data for each encoding that occurs, by its name."""
        ...

    def batches(self) -> Iterator[tuple[list[str], list[str], list[int]]]:
        """Names, names of encodings, and numbers of bytes of all tensors, file by file.

        What counting needs, without making an entry for each of hundreds of thousands of tensors.
        """
        ...

    def missing_names(self) -> list[str]:
        """Names of the tensors that should lie in the missing files, where an index tells."""
        ...

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """These bytes of a tensor will be read next: they are fetched together where they are far away."""
        ...

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, row by row, counted from its first byte.

        A view of the file where its rows lie there in one run, else a copy. DamagedFileError where they are not there.
        """
        ...

    def close(self) -> None:
        """Give the files back; a later question opens them again."""
        ...


class _Format(Protocol):
    """What a module of this package offers."""

    NAME: str
    SUFFIXES: tuple[str, ...]

    def claims(self, names: Iterable[str], chosen: str | None) -> bool:
        """Is this folder, or the file chosen in it, in this format by its name?"""
        ...

    def recognizes(self, start: bytes) -> bool:
        """Do these first bytes begin a file of this format?"""
        ...

    def read_tensors(self, folder: Folder, chosen: str | None, allow_partial: bool) -> TensorSet:
        """The tensors in this folder, or in the file chosen in it."""
        ...


def _formats() -> Iterator[_Format]:
    """Each format when it is asked: the later ones are not loaded where an earlier one knows the files."""
    return (cast(_Format, import_module(f"{__name__}.{module}")) for module in FORMATS)


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> TensorSet | None:
    """Which tensors does this folder, or the file chosen in it, hold? None where no format knows it.

    A chosen file whose name says nothing is known by its first bytes.
    """
    names = folder.names()
    claimants = (reader for reader in _formats() if reader.claims(names, chosen))
    if chosen is None or not chosen.endswith(_SHARED_SUFFIXES):
        reader = next(claimants, None)
        if reader is None and chosen is not None:
            start = _read_start(folder, chosen)
            reader = next((reader for reader in _formats() if reader.recognizes(start)), None)
    else:
        rivals, start = list(claimants), _read_start(folder, chosen)
        reader = next((rival for rival in rivals if rival.recognizes(start)), rivals[0])
    return None if reader is None else reader.read_tensors(folder, chosen, allow_partial)


def _read_start(folder: Folder, name: str) -> bytes:
    source = folder.open(name)
    try:
        return bytes(source.read(0, 64))
    finally:
        source.close()


def list_suffixes() -> tuple[str, ...]:
    """How are the files called that can be read?"""
    return tuple(dict.fromkeys(suffix for reader in _formats() for suffix in reader.SUFFIXES))
