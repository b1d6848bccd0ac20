"""Files that are held in memory: for tests, and for bytes that came from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from inspect_embed.storage import Ranges


class MemoryFile:
    """Bytes as a file."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._view = memoryview(data).toreadonly()
        self.size = len(self._view)

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes start to stop, read-only."""
        return self._view[start:stop]

    def expect(self, ranges: Ranges) -> None:
        """Nothing to fetch."""

    def close(self) -> None:
        """Nothing to give back."""


class MemoryFolder:
    """A folder of named bytes."""

    def __init__(self, files: Mapping[str, bytes], location: str = "memory") -> None:
        self._files = dict(files)
        self._location = location

    @property
    def location(self) -> str:
        """The name it was given."""
        return self._location

    def names(self) -> list[str]:
        """Names of the files, sorted."""
        return sorted(self._files)

    def open(self, name: str) -> MemoryFile:
        """The file of this name."""
        try:
            return MemoryFile(self._files[name])
        except KeyError:
            raise FileNotFoundError(name) from None
