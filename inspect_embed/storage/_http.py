"""https:// and hf://: ranges of bytes over HTTP, with what Python brings along.

A secret (the hub's token, a password in an address) goes to the host it is for and to no other: redirects are followed
here, and leave it out where they lead elsewhere. Messages hold addresses without passwords and queries.

Source: RFC 9110, sections 14 (ranges) and 15 (status codes); huggingface_hub, hf_api.py and constants.py (addresses).
"""

from __future__ import annotations

import base64
import errno
import html
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse, InvalidURL
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from inspect_embed import __version__
from inspect_embed.errors import NotACheckpointError, PlaceError, shorten
from inspect_embed.storage.hub import home_folder
from inspect_embed.storage.remote import AT_ONCE, FIRST_BYTES, Opened, Traffic

ATTEMPTS = 4
"""How often a request is made that brings nothing."""
PAUSE_SECONDS = 0.5
"""How long is waited before the second attempt; each time twice as long."""
TIMEOUT_SECONDS = 30.0
MOST_WITHOUT_RANGES = 1 << 26
"""A longer file is not fetched as a whole where a server knows no ranges."""

_MOST_REDIRECTS = 5
_LONGEST_LISTING = 1 << 22
_CHUNK = 1 << 18
_PASSING = (408, 429, 500, 502, 503, 504)
"""Answers that may be others a moment later."""
_FILE = re.compile(r"[^/]+\.(?:safetensors|gguf|bin|pt|pth|ckpt|npz|npy|vec|w2v|txt|json)", re.IGNORECASE)
"""The last part of an address that names a file; all others name folders."""
_BESIDE = (
    "config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt",
)  # fmt: skip
_MODELS = (
    "model.safetensors.index.json", "model.safetensors", "consolidated.safetensors", "adapter_model.safetensors",
    "pytorch_model.bin.index.json", "pytorch_model.bin",
)  # fmt: skip
"""Files that are asked for one by one where a server does not list a folder."""
_LINK = re.compile(rb"""<a\s[^>]*?href\s*=\s*["']([^"'<>]{1,2048})["']""", re.IGNORECASE)
_HUB_ADDRESS = re.compile(r"(?P<model>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.*))?", re.ASCII)
_HUB_PAGE = re.compile(
    r"/(?P<model>[^/]+/[^/]+)(?:/(?:tree|blob|resolve)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?/?"
)


T = TypeVar("T")


class _Answer(Exception):  # noqa: N818 - no error by itself: what it means depends on the question
    """A server's refusal."""

    def __init__(self, status: int, host: str) -> None:
        super().__init__(f"{status} from {host}")
        self.status = status
        self.host = host


class _EmptyFile(Exception):  # noqa: N818
    """There is the file, and nothing in it."""

    def __init__(self, stamp: str) -> None:
        super().__init__()
        self.stamp = stamp


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Redirects are answers like others: `_Client` follows them itself."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class _Client:
    """Asks servers; knows which secret is for which of them."""

    def __init__(self, traffic: Traffic, secrets: Mapping[str, str]) -> None:
        self.traffic = traffic
        self._secrets = secrets
        self._sent_on: dict[str, str] = {}
        """Where files really are, so that not every range takes the long way."""
        self._opener = urllib.request.build_opener(_StayHere)

    def has_secret(self, url: str) -> bool:
        """Whether a secret is sent to the host of this address."""
        return _origin(url) in self._secrets

    @contextmanager
    def ask(
        self, url: str, start: int = 0, stop: int | None = None, method: str = "GET"
    ) -> Iterator[HTTPResponse]:
        """The answer to one request, redirects followed; _Answer where it is a refusal."""
        asked = url
        url = self._sent_on.get(asked, asked)
        for _ in range(_MOST_REDIRECTS + 1):
            headers = {"User-Agent": f"inspect-embed/{__version__}", "Accept-Encoding": "identity"}
            if stop is not None:
                headers["Range"] = f"bytes={start}-{stop - 1}"
            if secret := self._secrets.get(_origin(url)):
                headers["Authorization"] = secret
            request = urllib.request.Request(url, headers=headers, method=method)
            try:
                response = cast(HTTPResponse, self._opener.open(request, timeout=TIMEOUT_SECONDS))
            except urllib.error.HTTPError as error:
                status, target = error.code, error.headers.get("Location")
                error.close()
                if status in (301, 302, 303, 307, 308) and target:
                    url = urljoin(url, target)
                    if urlsplit(url).scheme not in ("http", "https"):
                        raise PlaceError(
                            f"{show(url)} is no address that a server may send on to.", "Check the address."
                        ) from None
                    continue
                if status == 416 and error.headers.get("Content-Range", "").strip() == "bytes */0":
                    raise _EmptyFile(error.headers.get("ETag") or "") from None
                if self._sent_on.pop(asked, None) is not None:  # an address that was good for a while
                    url = asked
                    continue
                raise _Answer(status, urlsplit(url).hostname or "") from None
            if url != asked:
                self._sent_on[asked] = url
            with response:
                yield response
            return
        raise PlaceError(f"{show(url)} only sends on and on.", "Check the address.")

    def fetch(self, url: str, start: int, stop: int) -> bytes:
        """Bytes start to stop, all of them: a connection that is cut is opened again where it broke off."""
        got = bytearray()

        def go_on() -> None:
            before = len(got)
            with self.ask(url, start + before, stop) as response:
                _check_range(response, url, start + before)
                _read_into(got, response, stop - start)
            self.traffic.count(len(got) - before)
            if len(got) == before:
                raise ConnectionResetError("the connection was cut")

        while len(got) < stop - start:
            self.retry(url, go_on)
        return bytes(got)

    def open(self, url: str) -> Opened:
        """Size, stamp, and the first bytes; the whole file where a server knows no ranges and it is not too long."""

        def once() -> Opened:
            got = bytearray()
            with self.ask(url, 0, FIRST_BYTES) as response:
                stamp = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
                size: int | None
                if response.status == 206:
                    size = _check_range(response, url, 0)
                    wanted: int | None = min(FIRST_BYTES, size)
                else:
                    size = wanted = _whole_size(response, url)
                # Where no length is told, the end of the answer is the end of the file.
                most = wanted if wanted is not None else MOST_WITHOUT_RANGES + 1
                while len(got) < most:
                    before = len(got)
                    _read_into(got, response, most)
                    if len(got) == before:
                        break
            self.traffic.count(len(got))
            if wanted is None and len(got) > MOST_WITHOUT_RANGES:
                raise _no_ranges(url, None)
            if wanted is not None and len(got) < wanted:
                raise ConnectionResetError("the connection was cut")
            return Opened(len(got) if size is None else size, stamp, bytes(got))

        try:
            return self.retry(url, once)
        except _EmptyFile as empty:
            return Opened(0, empty.stamp, b"")

    def exists(self, url: str) -> bool:
        """Whether there is such a file, as far as one may ask."""
        for method, stop in (("HEAD", None), ("GET", 1)):

            def once(method: str = method, stop: int | None = stop) -> bool:
                with self.ask(url, 0, stop, method) as response:
                    self.traffic.count(0)
                    return response.status in (200, 206)

            try:
                return self.retry(url, once)
            except _EmptyFile:
                return True
            except _Answer as answer:
                if answer.status not in (405, 501):
                    return False
        return False

    def read_all(self, url: str, longest: int) -> tuple[bytes, str]:
        """What is there, and of what type; cut where it is too long."""

        def once() -> tuple[bytes, str]:
            got = bytearray()
            with self.ask(url) as response:
                while len(got) < longest:
                    before = len(got)
                    _read_into(got, response, longest)
                    if len(got) == before:
                        break
                self.traffic.count(len(got))
                return bytes(got), response.headers.get_content_type()

        return self.retry(url, once)

    def retry(self, url: str, once: Callable[[], T]) -> T:
        """What `once` gives, tried again where a connection breaks off or a server is overburdened."""
        trouble = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                return once()
            except _Answer as answer:
                if answer.status not in _PASSING:
                    raise
                trouble = f"it answers {answer.status}"
            except urllib.error.URLError as error:
                reason = error.reason
                trouble = getattr(reason, "strerror", None) or str(reason)
                if isinstance(reason, socket.gaierror | ConnectionRefusedError | ssl.SSLError):
                    raise _unreachable(url, trouble) from None
            except TimeoutError:
                trouble = f"nothing came for {TIMEOUT_SECONDS:.0f} seconds"
            except InvalidURL:
                raise NotACheckpointError(
                    f"{show(url)} is no address.", "Spaces in it are written as %20."
                ) from None
            except (HTTPException, ConnectionError) as error:
                trouble = getattr(error, "strerror", None) or str(error) or "the connection was cut"
            except ValueError:  # a port that is no number, a host that is no name
                raise NotACheckpointError(f"{show(url)} is no address.", "Check it.") from None
        raise PlaceError(
            f"{show(url)} could not be read in {ATTEMPTS} attempts: {trouble}.",
            "Ask again later: what has come so far is kept.",
        )


def _lists_of(array: str) -> tuple[str, ...]:
    """Names of lists of words that may lie beside an array; nothing for other files."""
    stem, dot, kind = array.rpartition(".")
    return (
        (f"{stem}.txt", f"{stem}.vocab", "words.txt", "tokens.txt") if kind in ("npy", "npz") and dot else ()
    )


def _read_into(got: bytearray, response: HTTPResponse, wanted: int) -> None:
    """Adds bytes up to `wanted`; what came before a connection was cut counts, and nothing at all is an error."""
    before = len(got)
    try:
        while len(got) < wanted:
            chunk = response.read1(min(_CHUNK, wanted - len(got)))
            if not chunk:
                break
            got += chunk
    except (HTTPException, ConnectionError, TimeoutError):
        if len(got) == before:
            raise


def _check_range(response: HTTPResponse, url: str, start: int) -> int:
    """The file's size; PlaceError where the answer is not what was asked for."""
    if response.status != 206:
        raise _no_ranges(url, None)
    told = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", response.headers.get("Content-Range", ""))
    if told is None or int(told[1]) != start:
        raise PlaceError(
            f"{show(url)}: the server answers with other bytes than were asked for.",
            "Download the file and open it from disk.",
        )
    return int(told[3])


def _whole_size(response: HTTPResponse, url: str) -> int | None:
    """The length of a file that comes as a whole; None where none is told."""
    length = response.headers.get("Content-Length", "")
    if not length.isdigit():
        return None
    if int(length) > MOST_WITHOUT_RANGES:
        raise _no_ranges(url, int(length))
    return int(length)


def _no_ranges(url: str, size: int | None) -> PlaceError:
    all_of_it = f"all {size:,} bytes" if size is not None else "the whole file"
    return PlaceError(
        f"{show(url)}: the server knows no ranges of bytes, so that {all_of_it} would have to be fetched.",
        "Download the file and open it from disk.",
    )


def _unreachable(url: str, trouble: str) -> PlaceError:
    host = urlsplit(url).hostname
    return PlaceError(
        f"{host} cannot be reached: {trouble}.",
        "Check the address and the network; a model that the hub's library has fetched opens by its id, org/name.",
    )


class Server:
    """A folder of an HTTP server; a `Carrier`.

    `base` is its address, with a slash at its end; `queries` are those of addresses of single files. `listed`: names
    that are known already.
    """

    def __init__(
        self,
        client: _Client,
        base: str,
        address: str,
        chosen: str | None = None,
        query: str = "",
        listed: Iterable[str] | None = None,
    ) -> None:
        self.address = address
        self._client = client
        self._base = base
        self._chosen = chosen
        self._query = query
        self._listed = None if listed is None else [*listed]

    def names(self) -> list[str]:
        """The names that the server lists; where it lists none, those that are there of the names that models have."""
        if self._listed is None:
            self._listed = self._read_listing() or self._try_names()
        chosen = [self._chosen] if self._chosen is not None else []
        if not self._listed and not chosen:
            raise NotACheckpointError(
                f"There is no model at {self.address}: no list of files, and none of {', '.join(_MODELS[:2])}.",
                "Give the address of the file itself.",
            )
        return [*self._listed, *chosen]

    def open(self, name: str) -> Opened:
        """What the server says of this file, and its first bytes."""
        try:
            return self._client.open(self._url(name))
        except _Answer as answer:
            raise self._explain(answer, name) from None

    def fetch(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start to stop of this file."""
        try:
            return self._client.fetch(self._url(name), start, stop)
        except _Answer as answer:
            raise self._explain(answer, name) from None
        except _EmptyFile:
            raise PlaceError(
                f"{show(self._url(name))} has changed while it was read.", "Ask again."
            ) from None

    def _url(self, name: str) -> str:
        return self._base + quote(name) + (self._query if name == self._chosen else "")

    def _explain(self, answer: _Answer, name: str) -> PlaceError | FileNotFoundError:
        if answer.status in (404, 410):
            return FileNotFoundError(errno.ENOENT, "the server has no such file", name)
        url = self._url(name)
        if answer.status in (401, 403):
            return refused(show(url), answer, self._client.has_secret(url))
        return PlaceError(f"{show(url)}: {answer.host} answers {answer.status}.", "Check the address.")

    def _read_listing(self) -> list[str]:
        """Names that the folder's page links to; nothing where it is no list of files."""
        try:
            page, kind = self._client.read_all(self._base, _LONGEST_LISTING)
        except (_Answer, _EmptyFile):
            return []
        if kind != "text/html":
            return []
        here = urlsplit(self._base).path
        names = []
        for link in _LINK.findall(page):
            target = urlsplit(urljoin(self._base, html.unescape(link.decode("utf-8", "replace"))))
            name = unquote(target.path.removeprefix(here))
            if (
                _origin(urlunsplit(target)) == _origin(self._base)
                and target.path.startswith(here)
                and not target.query
            ):
                names.append(name)
        plain = [name for name in names if name and "/" not in name and "\\" not in name]
        return plain if any(_FILE.fullmatch(name) for name in plain) else []

    def _try_names(self) -> list[str]:
        tried = (*_BESIDE, *(_MODELS if self._chosen is None else _lists_of(self._chosen)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            there = [*pool.map(lambda name: self._client.exists(self._base + quote(name)), tried)]
        names = [name for name, found in zip(tried, there, strict=True) if found]
        for name in names:
            if name.endswith(".index.json"):
                names += self._names_in_index(name)
        return names

    def _names_in_index(self, index: str) -> list[str]:
        """Names of shards, which no list tells of."""
        try:
            placed = json.loads(self._client.read_all(self._base + quote(index), 1 << 26)[0])[
                "weight_map"
            ].values()
        except (_Answer, _EmptyFile, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []
        return sorted({name for name in placed if isinstance(name, str) and _FILE.fullmatch(name)})


def find(address: str, traffic: Traffic) -> tuple[Server, str | None, tuple[str, ...]]:
    """The server's folder, the file chosen in it, and what is worth saying. Errors: NotACheckpointError, PlaceError."""
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = _hub_token()
    secrets = {_origin(endpoint): f"Bearer {token}"} if token else {}
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise NotACheckpointError(f"{show(address)} is no address.", "Check it.") from None
    if parts.scheme.lower() == "hf":
        match = _HUB_ADDRESS.fullmatch(address.partition("://")[2].strip("/"))
        if match is None:
            raise NotACheckpointError(
                f"{address[:200]} names no model of the hub.",
                "Give hf://org/name, or hf://org/name@revision.",
            )
        return _find_on_hub(_Client(traffic, secrets), endpoint, **match.groupdict())
    if not host:
        raise NotACheckpointError(f"{show(address)} is no address: it names no host.", "Check it.")
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    bare = urlunsplit((parts.scheme.lower(), netloc, parts.path, "", ""))
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        secrets = {**secrets, _origin(bare): f"Basic {base64.b64encode(pair.encode()).decode()}"}
    client = _Client(traffic, secrets)
    if _origin(bare) == _origin(endpoint) and (match := _HUB_PAGE.fullmatch(parts.path)):
        return _find_on_hub(client, endpoint, **match.groupdict())
    folder, _, last = parts.path.rpartition("/")
    name = unquote(last) if _FILE.fullmatch(unquote(last)) and "/" not in unquote(last) else None
    path = f"{folder}/" if name is not None else parts.path.rstrip("/") + "/"
    base = urlunsplit((parts.scheme.lower(), netloc, path, "", ""))
    query = f"?{parts.query}" if parts.query and name is not None else ""
    return Server(client, base, base.rstrip("/"), name, query), name, ()


def _find_on_hub(
    client: _Client, endpoint: str, model: str, revision: str | None, path: str | None
) -> tuple[Server, str | None, tuple[str, ...]]:
    """A model of the hub, pinned to the commit that its revision stands for now."""
    asked = f"hf://{model}" + (f"@{revision}" if revision else "")
    url = f"{endpoint}/api/models/{quote(model)}/revision/{quote(unquote(revision or 'main'), safe='')}"
    try:
        content = json.loads(client.read_all(url, 1 << 26)[0])
        commit = content["sha"]
        files = [entry["rfilename"] for entry in content["siblings"]]
        if not re.fullmatch("[0-9a-f]{7,64}", commit) or not all(isinstance(file, str) for file in files):
            raise ValueError
    except _Answer as answer:
        if answer.status in (401, 403):
            raise refused(asked, answer, client.has_secret(url)) from None
        if answer.status == 404:
            raise NotACheckpointError(
                f"The hub has no model {asked}.", "Check the name, and the revision after the @."
            ) from None
        raise PlaceError(f"{answer.host} answers {answer.status} for {asked}.", "Ask again later.") from None
    except (ValueError, KeyError, TypeError, RecursionError, _EmptyFile):
        raise PlaceError(
            f"{asked}: the hub's answer is none that is known.", "Is HF_ENDPOINT right?"
        ) from None
    inside = (path or "").strip("/")
    chosen = None
    if inside in files:
        inside, _, chosen = inside.rpartition("/")
    lead = f"{inside}/" if inside else ""
    here = [file.removeprefix(lead) for file in files if file.startswith(lead)]
    here = [file for file in here if file and "/" not in file]
    if not here:
        raise NotACheckpointError(
            f"{asked} has no folder or file {inside}.", f"It has {shorten(sorted(files))}."
        )
    base = f"{endpoint}/{quote(model)}/resolve/{commit}/{quote(lead)}"
    address = asked + (f"/{inside}" if inside else "")
    return Server(client, base, address, chosen, "", here), chosen, (f"Commit {commit} of hf://{model}.",)


def refused(what: str, answer: _Answer, had_secret: bool) -> PlaceError:
    """What to do where a server wants to know who asks, or does not let them in."""
    if had_secret:
        return PlaceError(
            f"{answer.host} does not let you read {what} (it answers {answer.status}).",
            "Ask for access on the model's page, and check that the token in HF_TOKEN may read it.",
        )
    return PlaceError(
        f"{answer.host} does not let everybody read {what} (it answers {answer.status}): it is gated, private, or "
        f"not there.",
        "Check the name; for a gated or private model set HF_TOKEN to a token that may read it.",
    )


def _hub_token() -> str:
    """The user's token for the hub, as the hub's own library finds it; empty where there is none."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := os.environ.get(name, "").strip():
            return token
    path = Path(os.environ.get("HF_TOKEN_PATH") or home_folder() / "token").expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _origin(url: str) -> str:
    """Scheme, host and port: who is given a secret."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def show(url: str) -> str:
    """An address as it may be shown: without a password, and without a query, which may hold a signature."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].partition("?")[0]
    return f"{scheme}{separator}{host}{slash}{path.partition('?')[0].partition('#')[0]}"[:300]
