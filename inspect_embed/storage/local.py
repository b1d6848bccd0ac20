"""Files on this machine's disk, mapped into memory: bytes are read when they are touched, and not copied."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

from inspect_embed.errors import NotACheckpointError
from inspect_embed.storage import Place, Ranges


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

    def expect(self, ranges: Ranges) -> None:
        """Nothing to fetch."""

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

    def look_below(self, suffixes: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Folders below that hold files whose names end so, and links to what is not there."""
        entries = sorted(self.path.iterdir())
        folders = [entry.name for entry in entries if entry.is_dir() and _holds(entry, suffixes)]
        return folders, [entry.name for entry in entries if entry.is_symlink() and not entry.exists()]

    def open(self, name: str) -> LocalFile:
        """The file of this name; a path that leads elsewhere is no name."""
        if name in ("", ".", "..") or Path(name).name != name:
            raise FileNotFoundError(errno.ENOENT, "no file of this folder", name)
        return LocalFile(self.path / name)


def _holds(folder: Path, suffixes: tuple[str, ...]) -> bool:
    try:
        return any(entry.name.endswith(suffixes) for entry in folder.iterdir())
    except OSError:  # a folder that may not be entered
        return False


def locate(name: str) -> Place | None:
    """Which file or folder is at this path? A hub cache folder (models--org--name) stands for its snapshot.

    None where there is nothing; OSError where it cannot be looked at.
    """
    path = Path(name)
    if path.is_file():
        # The path is not resolved: a cached file is a link into blobs/, away from its config and tokenizer.
        return Place(LocalFolder(path.parent), path.name)
    if path.is_dir():
        if (path / "snapshots").is_dir():
            from inspect_embed.storage.hub import open_snapshot

            return open_snapshot(path)
        return Place(LocalFolder(path))
    if path.is_symlink():
        raise NotACheckpointError(f"{name} is a link to a file that is not there.", "Fetch the file again.")
    return None
