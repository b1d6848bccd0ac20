"""Which tensors a checkpoint holds: one file a format.

A format offers `NAME`, `claims` (is this folder, or the file chosen in it, mine?) and `read_tensors`,
which reads headers only and gives a `TensorSet`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from inspect_embed.encodings import Encoding
from inspect_embed.storage import Folder

FORMATS = ("safetensors",)
"""The modules of this package, one a format, in the order in which they are asked."""


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
    def stated(self) -> Mapping[str, Any]:
        """What an index states about the whole, as it was written: to be checked, never to be used."""
        ...

    def __getitem__(self, name: str) -> TensorEntry:
        """The entry of this tensor; KeyError where there is none."""
        ...

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor."""
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

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, counted from its first byte; DamagedFileError where they are not there."""
        ...


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> TensorSet | None:
    """Which tensors does this folder, or the file chosen in it, hold? None where no format knows it."""
    names = folder.names()
    for name in FORMATS:
        module = import_module(f"{__name__}.{name}")
        if module.claims(names, chosen):
            return cast(TensorSet, module.read_tensors(folder, chosen, allow_partial))
    return None
