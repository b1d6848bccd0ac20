"""s3://, gs:// and every other address that fsspec speaks; the package is an extra."""

from __future__ import annotations

import errno
import sys
from importlib.util import find_spec
from typing import Any

from inspect_embed.errors import MissingExtraError, NotACheckpointError, PlaceError
from inspect_embed.storage.remote import FIRST_BYTES, Opened, Traffic

_STAMPS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
"""What file systems call a value that changes when a file does."""

_TROUBLES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("aiohttp", "ClientError"),
    ("requests", "RequestException"),
    ("azure.core.exceptions", "AzureError"),
)
"""Errors of the libraries below fsspec that are no OSError."""


class FileSystem:
    """A folder of a file system; a `Carrier`."""

    def __init__(self, files: Any, path: str, address: str, traffic: Traffic) -> None:
        self.address = address
        self._files = files
        self._path = path.rstrip("/")
        self._traffic = traffic

    def names(self) -> list[str]:
        """Names of the files in the folder."""
        try:
            listed = self._files.ls(self._path, detail=True)
        except _troubles() as error:
            raise _explain(error, self.address) from None
        self._traffic.count(0)
        files = (entry for entry in listed if entry.get("type") == "file")
        return [name for entry in files if (name := entry["name"].rstrip("/").rpartition("/")[2])]

    def open(self, name: str) -> Opened:
        """What the file system says of this file, and its first bytes."""
        path = f"{self._path}/{name}"
        try:
            facts = self._files.info(path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name) from None
        except _troubles() as error:
            raise _explain(error, f"{self.address}/{name}") from None
        size = facts.get("size")
        if facts.get("type") != "file" or not isinstance(size, int):
            raise FileNotFoundError(errno.ENOENT, "this is no file", name)
        stamp = next((str(facts[key]) for key in _STAMPS if facts.get(key)), "")
        return Opened(size, stamp, self.fetch(name, 0, min(FIRST_BYTES, size)) if size else b"")

    def fetch(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start to stop of this file."""
        try:
            data = bytes(self._files.cat_file(f"{self._path}/{name}", start=start, end=stop))
        except _troubles() as error:
            raise _explain(error, f"{self.address}/{name}") from None
        self._traffic.count(len(data))
        if len(data) != stop - start:
            raise PlaceError(
                f"{self.address}/{name}: {len(data):,} bytes came of the {stop - start:,} that were asked for.",
                "Ask again.",
            )
        return data


def find(address: str, traffic: Traffic) -> tuple[FileSystem, str | None, tuple[str, ...]]:
    """The folder at this address, the file chosen in it, and nothing to say."""
    scheme, _, rest = address.partition("://")
    # Whatever stands before an @ may be a password.
    shown = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}".rstrip("/")
    if find_spec("fsspec") is None:
        raise MissingExtraError("fsspec", "remote", f"Reading {scheme}://")
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(address)
        is_file, is_folder = files.isfile(path), files.isdir(path)
    except ImportError:
        known = fsspec.registry.known_implementations.get(scheme, {}).get("err", "")
        raise PlaceError(
            f"Reading {scheme}:// needs a package that is not installed.",
            'pip install "inspect-embed[remote]"'
            if scheme in ("s3", "s3a", "gs", "gcs")
            else f"fsspec says: {known}",
        ) from None
    except ValueError:
        raise NotACheckpointError(
            f"{scheme}:// is no address that is known here.",
            f"Known are hf://, https://, and what fsspec speaks: {', '.join(('s3', 'gs', 'abfs', 'sftp'))}.",
        ) from None
    except _troubles() as error:
        raise _explain(error, shown) from None
    traffic.count(0)
    if not is_file and not is_folder:
        raise NotACheckpointError(f"There is no file or folder {shown}.", "Check the address.")
    if not is_file:
        return FileSystem(files, path, shown, traffic), None, ()
    folder, _, name = path.rstrip("/").rpartition("/")
    return FileSystem(files, folder, shown.rpartition("/")[0], traffic), name, ()


def _troubles() -> tuple[type[BaseException], ...]:
    """What goes wrong below fsspec: OSError, and the errors of those libraries that are loaded."""
    found: list[type[BaseException]] = [OSError]
    for module, name in _TROUBLES:
        error = getattr(sys.modules.get(module), name, None)
        if isinstance(error, type) and issubclass(error, BaseException):
            found.append(error)
    return tuple(found)


def _explain(error: BaseException, shown: str) -> PlaceError | NotACheckpointError:
    """What went wrong, without the library's own words, which may hold addresses with signatures."""
    if isinstance(error, FileNotFoundError):
        return NotACheckpointError(f"There is no {shown}.", "Check the address.")
    if (
        isinstance(error, PermissionError)
        or "Credential" in type(error).__name__
        or "Auth" in type(error).__name__
    ):
        return PlaceError(
            f"{shown} may not be read.",
            "Set the credentials that its file system asks for, as for its own tools.",
        )
    reason = getattr(error, "strerror", None) or type(error).__name__
    return PlaceError(f"{shown} cannot be read: {reason}.", "Check the address and the network.")
