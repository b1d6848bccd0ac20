"""Files on servers, read by ranges: the first bytes, then only what is asked for, in parallel, and kept on disk.

How bytes come is a carrier's affair: `_http.py` for https:// and hf://, `_fsspec.py` for s3://, gs:// and whatever
else fsspec speaks.
"""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple, Protocol

from inspect_embed.errors import NotACheckpointError
from inspect_embed.storage import Place, Ranges, Tell
from inspect_embed.storage._sparse import Spans, SparseCopy, merge, subtract

FIRST_BYTES = 1 << 15
"""What is fetched when a file is opened: most headers lie within."""
PART_BYTES = 1 << 23
"""Longer ranges are fetched in parts, at one time."""
AT_ONCE = 8
_NEAR = 1 << 12
"""Ranges that lie so near to each other are fetched as one: a request costs more than these bytes."""
_SMALL = 1 << 14
_READ_ON = 1 << 16
"""How much is fetched where a small read goes on where the last one ended, as a reader of a header does."""


class Opened(NamedTuple):
    """A file as a server describes it: its size, a stamp that changes when it does ("" where the server gives none),
    and its first bytes, or all of them.
    """

    size: int
    stamp: str
    first: bytes


class Carrier(Protocol):
    """How files come from one folder of one server. Errors: PlaceError; FileNotFoundError where there is no such file."""

    address: str

    def names(self) -> list[str]:
        """Plain names of the files there."""
        ...

    def open(self, name: str) -> Opened:
        """What the server says of this file, and its first bytes."""
        ...

    def fetch(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start to stop of this file, all of them."""
        ...


class Traffic:
    """What has come over the network so far."""

    def __init__(self, tell: Tell | None = None) -> None:
        self.n_requests = 0
        self.n_bytes = 0
        self.n_kept_bytes = 0
        """Bytes that were asked for and were on disk already."""
        self._tell = tell
        self._lock = Lock()
        self._done, self._total = 0, 0

    def count(self, n_bytes: int, n_requests: int = 1) -> None:
        """So many bytes have come."""
        with self._lock:
            self.n_requests += n_requests
            self.n_bytes += n_bytes
            self._done += n_bytes
            if self._tell is not None and self._total > PART_BYTES // 8:
                self._tell(min(self._done, self._total), self._total)

    def end(self) -> None:
        """No more will come, whether all has or not: whoever draws a bar can wipe it away."""
        if self._tell is not None and 0 < self._done < self._total:
            self._tell(self._total, self._total)

    def begin(self, n_bytes: int) -> None:
        """So many bytes will come."""
        self._done, self._total = 0, n_bytes


class RemoteFile:
    """A file on a server."""

    def __init__(self, carrier: Carrier, name: str, copy: SparseCopy, traffic: Traffic) -> None:
        self.size = copy.size
        self._carrier = carrier
        self._name = name
        self._copy = copy
        self._traffic = traffic
        self._expected = False

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes start to stop, read-only, as a view of the copy on disk; fetched where they are not there yet."""
        stop = min(stop, self.size)
        if start >= stop:
            return memoryview(b"")
        missing = self._copy.missing([(start, stop)])
        if not self._expected:
            self._note_kept([(start, stop)])
        if missing:
            first, last = missing[-1]
            goes_on = any(high == first for _, high in self._copy.held)
            if last == stop and stop - start < _SMALL and goes_on:
                missing[-1] = first, min(max(last, first + _READ_ON), self.size)
            self._fetch(missing)
        return self._copy.view[start:stop]

    def expect(self, ranges: Ranges) -> None:
        """Fetch these bytes together, in parallel."""
        wanted = merge((max(start, 0), min(stop, self.size)) for start, stop in ranges)
        missing = self._copy.missing(wanted)
        self._note_kept(wanted)
        self._expected = True
        if missing:
            joined = [missing[0]]
            for start, stop in missing[1:]:
                if start - joined[-1][1] <= _NEAR:
                    joined[-1] = joined[-1][0], stop
                else:
                    joined.append((start, stop))
            self._fetch(joined)

    def close(self) -> None:
        """Nothing to give back: the folder keeps what was fetched."""

    def _note_kept(self, ranges: Spans) -> None:
        """Count what an earlier run has fetched of these ranges."""
        fresh = sum(high - low for a, b in ranges for low, high in subtract(a, b, self._copy.from_disk))
        self._traffic.n_kept_bytes += sum(stop - start for start, stop in ranges) - fresh

    def _fetch(self, ranges: list[tuple[int, int]]) -> None:
        parts = [
            (at, min(at + PART_BYTES, stop))
            for start, stop in ranges
            for at in range(start, stop, PART_BYTES)
        ]
        self._traffic.begin(sum(stop - start for start, stop in parts))

        def fetch(part: tuple[int, int]) -> None:
            self._copy.write(part[0], self._carrier.fetch(self._name, *part))

        try:
            if len(parts) == 1:
                fetch(parts[0])
                return
            with ThreadPoolExecutor(min(AT_ONCE, len(parts))) as pool:
                futures = [pool.submit(fetch, part) for part in parts]
                try:
                    for future in futures:
                        future.result()
                finally:
                    for future in futures:
                        future.cancel()
        finally:
            self._traffic.end()
            self._copy.save()


class RemoteFolder:
    """A folder on a server."""

    def __init__(self, carrier: Carrier, traffic: Traffic) -> None:
        self.traffic = traffic
        self._carrier = carrier
        self._names: list[str] | None = None
        self._copies: dict[str, SparseCopy] = {}

    @property
    def location(self) -> str:
        """Its address, without what is secret in it."""
        return self._carrier.address

    def names(self) -> list[str]:
        """Names of the files there, sorted; asked for once."""
        if self._names is None:
            self._names = sorted(set(self._carrier.names()))
        return [*self._names]

    def open(self, name: str) -> RemoteFile:
        """The file of this name; a path that leads elsewhere is no name."""
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            raise FileNotFoundError(errno.ENOENT, "no file of this folder", name)
        if name not in self._copies:
            opened = self._carrier.open(name)
            key = f"{self.location}/{name}\n{opened.size}\n{opened.stamp}" if opened.stamp else None
            copy = self._copies[name] = SparseCopy(opened.size, key)
            if opened.first:
                copy.write(0, opened.first)
                copy.save()
        return RemoteFile(self._carrier, name, self._copies[name], self.traffic)


def locate(address: str, tell: Tell | None = None) -> Place:
    """Which folder, or file, is at this address? Errors: NotACheckpointError, PlaceError, MissingExtraError."""
    traffic = Traffic(tell)
    scheme = address.partition("://")[0].lower()
    carrier: Carrier
    if scheme in ("http", "https", "hf"):
        from inspect_embed.storage import _http

        carrier, chosen, notes = _http.find(address, traffic)
    else:
        from inspect_embed.storage import _fsspec

        carrier, chosen, notes = _fsspec.find(address, traffic)
    folder = RemoteFolder(carrier, traffic)
    if chosen is not None:
        try:
            folder.open(chosen)
        except FileNotFoundError:
            raise NotACheckpointError(
                f"There is no file {chosen} at {folder.location}.", "Check the address."
            ) from None
    return Place(folder, chosen, notes)
