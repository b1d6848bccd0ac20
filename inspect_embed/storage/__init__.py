"""Where bytes are: a folder of named byte sources, on disk or in memory.

A location is one file in this package. It offers a `Folder` (what is there) whose `open` gives a
`ByteSource` (the bytes of one file). Nothing above this package knows where the bytes come from.
"""

from __future__ import annotations

from typing import Protocol

LOCATIONS = ("local", "memory")
"""The modules of this package, one a location."""


class ByteSource(Protocol):
    """The bytes of one file, read by ranges."""

    @property
    def size(self) -> int:
        """Bytes in the file."""
        ...

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes start to stop, read-only; shorter where the file ends sooner."""
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
