"""Files on this machine's disk, mapped into memory: bytes are read when they are touched, and not copied."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path


class LocalFile:
    """A file mapped into memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # An empty file cannot be mapped.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else None
        self._view = memoryview(self._map) if self._map is not None else memoryview(b"")

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes start to stop, read-only, as a view of the map."""
        return self._view[start:stop]

    def close(self) -> None:
        """Unmap the file, unless a view of it is still in use."""
        self._view.release()
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:
                return  # a view lives on; the map goes with it


class LocalFolder:
    """A folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def location(self) -> str:
        """The path as it was given."""
        return str(self.path)

    def names(self) -> list[str]:
        """Names of the files in this folder, sorted; a link counts when it leads to a file."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def open(self, name: str) -> LocalFile:
        """The file of this name; a path that leads elsewhere is no name."""
        if name in ("", ".", "..") or Path(name).name != name:
            raise FileNotFoundError(errno.ENOENT, "no file of this folder", name)
        return LocalFile(self.path / name)
