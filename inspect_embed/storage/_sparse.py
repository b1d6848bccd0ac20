"""A copy of a far file with holes: what has been fetched of it, kept on disk from one run to the next."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from inspect_embed.storage import Ranges

Spans = list[tuple[int, int]]


def cache_folder() -> Path | None:
    """Where fetched bytes are kept: INSPECT_EMBED_CACHE, else the user's cache; None where that variable is empty."""
    named = os.environ.get("INSPECT_EMBED_CACHE")
    if named is not None:
        return Path(named).expanduser() if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "inspect-embed"


def merge(ranges: Ranges) -> Spans:
    """The same bytes in as few ranges as can be, ascending."""
    merged: Spans = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def subtract(start: int, stop: int, held: Spans) -> Spans:
    """The parts of start to stop that are not held; `held` is merged."""
    missing: Spans = []
    for low, high in held:
        if high <= start or low >= stop:
            continue
        if low > start:
            missing.append((start, low))
        start = max(start, high)
    if start < stop:
        missing.append((start, stop))
    return missing


class SparseCopy:
    """A file of the far file's size, mapped into memory, and the ranges of it that are there.

    `key` tells the far file and its version; without one, or without a folder that can be written, the copy lives
    as long as the program.
    """

    def __init__(self, size: int, key: str | None) -> None:
        self.size = size
        self._lock = Lock()
        self._path: Path | None = None
        self.held: Spans = []
        self._file = self._open(key)
        self.from_disk = [*self.held]
        """What an earlier run has fetched."""
        weakref.finalize(self, self._file.close)
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        self.view = memoryview(self._map) if self._map is not None else memoryview(b"")

    def _open(self, key: str | None) -> BinaryIO:
        folder = cache_folder()
        if key is not None and folder is not None:
            name = hashlib.sha256(key.encode()).hexdigest()[:40]
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                path = folder / f"{name}.bytes"
                # Never emptied: another run may be reading it.
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
                file = os.fdopen(descriptor, "r+b", buffering=0)
                known = os.fstat(descriptor).st_size == self.size
                if not known:
                    file.truncate(self.size)
                self._path = path.with_suffix(".ranges")
                self.held = self._read_ranges() if known else []
                return file
            except OSError:
                self._path = None
        temporary = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as the copy
        temporary.truncate(self.size)
        return temporary

    def missing(self, ranges: Ranges) -> Spans:
        """The parts of these ranges that have not been fetched."""
        return [part for start, stop in merge(ranges) for part in subtract(start, stop, self.held)]

    def write(self, start: int, data: bytes) -> None:
        """Keep these bytes; may be called by several threads."""
        with self._lock:
            self._file.seek(start)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            self.held = merge([*self.held, (start, start + len(data))])

    def save(self) -> None:
        """Note on disk which ranges are there, beside those that another run has noted meanwhile."""
        if self._path is None:
            return
        try:
            known = merge([*self.held, *self._read_ranges()])
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(known, file)
            os.replace(temporary, self._path)
        except OSError:
            self._path = None  # a full disk: what is there is good for this run

    def _read_ranges(self) -> Spans:
        if self._path is None:
            return []
        try:
            content = json.loads(self._path.read_text(encoding="ascii"))
            return merge((start, stop) for start, stop in content if 0 <= start <= stop <= self.size)
        except (OSError, ValueError, TypeError):
            return []
