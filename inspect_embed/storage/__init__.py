"""Where bytes are: a folder of named byte sources, on disk, in memory, in the hub's cache, or on a server.

A location is one file in this package. It offers a `Folder` (what is there) whose `open` gives a
`ByteSource` (the bytes of one file), and, where a person can name such a place, a `locate` that finds it by name. Nothing
above this package knows where the bytes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from inspect_embed.errors import NotACheckpointError

LOCATIONS = ("local", "memory", "hub", "remote")
"""The modules of this package, one a location."""

HINT = "Give a folder, a file with tensors in it, an index of such files, a hub cache folder, a model id, or an address."

Ranges = Iterable[tuple[int, int]]
"""Ranges of bytes, from start to stop."""
Tell = Callable[[int, int], None]
"""Called with how many bytes have come, and of how many."""


class ByteSource(Protocol):
    """The bytes of one file, read by ranges."""

    @property
    def size(self) -> int:
        """Bytes in the file."""
        ...

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes start to stop, read-only; shorter where the file ends sooner."""
        ...

    def expect(self, ranges: Ranges) -> None:
        """These bytes will be read next: a place that is far away fetches them together, all others do nothing."""
        ...

    def close(self) -> None:
        """Give the file back; views that are still in use stay valid."""
        ...


class Folder(Protocol):
    """A flat set of named files."""

    @property
    def location(self) -> str:
        """How a person would name this folder."""
        ...

    def names(self) -> list[str]:
        """Plain names of the files in it, sorted."""
        ...

    def open(self, name: str) -> ByteSource:
        """The file of this name; FileNotFoundError where there is none."""
        ...


class Place(NamedTuple):
    """What a name names: a folder, the file chosen in it (None for the whole), and what is worth saying of the choice."""

    folder: Folder
    chosen: str | None = None
    notes: tuple[str, ...] = ()


def locate(name: str, tell: Tell | None = None) -> Place:
    """Which place does this name mean: a path, an address (https://, hf://, s3://), or a model id (org/name@revision)?

    `tell` hears how far a place that is far away has got. NotACheckpointError where there is no such place; PlaceError
    where one cannot be reached.
    """
    if not name:
        raise NotACheckpointError("No checkpoint was named.", HINT)
    if not name:
        raise NotACheckpointError("No checkpoint was named.", HINT)
    if "://" in name:
        from inspect_embed.storage import remote

        return remote.locate(name, tell)
    from inspect_embed.storage import local

    try:
        place = local.locate(name)
    except OSError as error:  # a name too long for a file, a folder that may not be entered
        raise NotACheckpointError(f"{name[:200]} cannot be opened: {error.strerror}.", HINT) from None
    if place is not None:
        return place
    from inspect_embed.storage import hub

    place = hub.locate(name)
    if place is None:
        raise NotACheckpointError(f"There is no file or folder {name}.", hub.explain_absence(name) or HINT)
    return place
