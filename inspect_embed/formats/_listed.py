"""Tensors that are listed one by one: what the formats whose headers make a record of each have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inspect_embed.errors import DamagedFileError, NotACheckpointError
from inspect_embed.formats import TensorEntry
from inspect_embed.spelling import encode, show
from inspect_embed.storage import ByteSource, Folder, Ranges


def open_file(folder: Folder, name: str) -> ByteSource:
    """Open a file of a checkpoint; NotACheckpointError where that cannot be done."""
    try:
        return folder.open(name)
    except OSError as error:
        raise NotACheckpointError(
            f"{name} cannot be opened: {error.strerror or error}.", "Check that it is there and may be read."
        ) from None


def quote(name: str) -> str:
    """A name that a file gives, as it stands in a message: in quotes, spelled so that it can be read, and not too long."""
    shown = show(encode(name[:_LONGEST_SHOWN]))
    return f"'{shown}'" if len(name) <= _LONGEST_SHOWN else f"'{shown}...'"


_LONGEST_SHOWN = 80


class ListedTensors:
    """The tensors of one file or of several, each with its entry: all of a `TensorSet` but how values are read."""

    format = ""

    def __init__(self, folder: Folder, allow_partial: bool = False) -> None:
        self._folder = folder
        self._allow_partial = allow_partial
        self._entries: dict[str, TensorEntry] = {}
        self._open: dict[str, ByteSource] = {}
        self._short: dict[str, str] = {}
        self.files: tuple[str, ...] = ()
        self.missing_files: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.metadata: Mapping[str, str] = {}
        self.stated: Mapping[str, Any] = {}
        self.config: Mapping[str, Any] = {}
        self.vocabulary_file: str | None = None
        self.aliases: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> TensorEntry:
        """The entry of this tensor, under any of its names; KeyError where there is none."""
        return self._entries[self.aliases.get(name, name)]

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor, under any of its names."""
        return name in self._entries or name in self.aliases

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._entries)

    def names(self) -> list[str]:
        """Every tensor's name, in the order of the files."""
        return list(self._entries)

    def count_bytes(self) -> dict[str, int]:
        """Bytes of data for each encoding that occurs."""
        sizes: dict[str, int] = {}
        for entry in self._entries.values():
            sizes[entry.encoding.name] = sizes.get(entry.encoding.name, 0) + entry.n_bytes
        return sizes

    def batches(self) -> Iterator[tuple[list[str], list[str], list[int]]]:
        """Names, names of encodings, and numbers of bytes of all tensors, file by file."""
        for file in self.files:
            here = [entry for entry in self._entries.values() if entry.file == file]
            yield (
                [entry.name for entry in here],
                [entry.encoding.name for entry in here],
                [entry.n_bytes for entry in here],
            )

    def missing_names(self) -> list[str]:
        """Names of the tensors in missing files: no index tells them."""
        return []

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """These bytes of a tensor will be read next."""
        self._source(entry.file).expect((entry.start + start, entry.start + stop) for start, stop in ranges)

    def close(self) -> None:
        """Give the files back."""
        for source in self._open.values():
            source.close()
        self._open.clear()

    def _add(self, entry: TensorEntry) -> None:
        if entry.name in self:
            raise DamagedFileError(
                f"{entry.file} holds two tensors called {quote(entry.name)}.", "Ask who wrote the file."
            )
        self._entries[entry.name] = entry

    def _source(self, file: str) -> ByteSource:
        source = self._open.get(file)
        if source is None:
            source = self._open[file] = open_file(self._folder, file)
        return source

    def _read_range(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes of a file, counted from its beginning; DamagedFileError where they are not there."""
        problem = self._short.get(entry.file)
        if problem and not self._allow_partial:
            raise DamagedFileError(
                problem,
                "Fetch the file again, or pass --allow-partial to use the tensors that lie wholly inside it.",
            )
        source = self._source(entry.file)
        view = source.read(start, stop)
        if len(view) != stop - start:
            raise DamagedFileError(
                f"{entry.file} is cut short: {quote(entry.name)} needs bytes {start:,} to {stop:,}, "
                f"the file has {source.size:,}.",
                "Fetch the file again.",
            )
        return view
