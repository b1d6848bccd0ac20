"""A web server on this machine that behaves as it is told, and remembers what it was asked and what it gave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit


@dataclass
class Request:
    """One request, and how it was answered."""

    method: str
    path: str
    query: str
    authorization: str | None
    start: int
    status: int = 0
    n_bytes: int = 0


@dataclass
class Loopback:
    """The server's behaviour, and its memory. `files` are by path, without the slash at the start."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    listing: bool = True
    lengths: bool = True
    head: bool = True
    etag: str = '"1"'
    token: str | None = None
    refusal: int = 401
    redirects: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    """For the next bodies: after how many bytes the connection breaks off."""
    busy: int = 0
    """How many of the next requests are answered with 503."""
    wrong_range: bool = False
    hang: threading.Event | None = None
    """Where given, nothing is answered before it is set."""
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def put(self, folder: str, files: Mapping[str, bytes]) -> str:
        """Put files into a folder; returns its address."""
        self.files.update({f"{folder}/{name}": data for name, data in files.items()})
        return f"{self.url}/{quote(folder)}"

    def given(self, path: str) -> list[tuple[int, int]]:
        """Ranges of a file that were sent."""
        sent = [r for r in self.requests if r.path == path and r.status in (200, 206) and r.n_bytes]
        return sorted((r.start, r.start + r.n_bytes) for r in sent)

    @property
    def n_bytes(self) -> int:
        """How many bytes were sent in all."""
        return sum(request.n_bytes for request in self.requests)

    def paths(self) -> list[str]:
        """What was asked for and was there."""
        return [request.path for request in self.requests if request.status in (200, 206)]


def _handler(server: Loopback) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(True)

        def do_HEAD(self) -> None:
            self.answer(False)

        def answer(self, with_body: bool) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path).removeprefix("/")
            wanted = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            start = int(wanted[0]) if wanted[0] and server.ranges else 0
            authorization = self.headers.get("Authorization")
            request = Request(self.command, path, parts.query, authorization, start)
            with lock:
                server.requests.append(request)
                busy = server.busy > 0
                server.busy -= busy
            if server.hang is not None:
                server.hang.wait(10)
            if busy:
                self.refuse(request, 503)
            elif server.token is not None and authorization != f"Bearer {server.token}":
                self.refuse(request, server.refusal)
            elif path in server.redirects:
                self.refuse(request, 302, server.redirects[path])
            elif not self.head_is_known(with_body):
                self.refuse(request, 501)
            elif path in server.files:
                self.give(
                    request, server.files[path], wanted[2] if wanted[0] and server.ranges else None, with_body
                )
            elif (
                server.listing
                and (here := sorted(f for f in server.files if f.startswith(path)))
                and path.endswith("/")
            ):
                names = [file.removeprefix(path) for file in here]
                links = "".join(f'<li><a href="{quote(name)}">{name}</a></li>\n' for name in names)
                page = f'<html><a href="../">up</a>{links}<a href="/etc/passwd">x</a></html>'.encode()
                self.give(request, page, None, with_body, "text/html; charset=utf-8")
            else:
                self.refuse(request, 404)

        def head_is_known(self, with_body: bool) -> bool:
            return with_body or server.head

        def refuse(self, request: Request, status: int, target: str = "") -> None:
            request.status = status
            self.send_response(status)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def give(
            self,
            request: Request,
            data: bytes,
            last: str | None,
            with_body: bool,
            kind: str = "application/octet-stream",
        ) -> None:
            size = len(data)
            if last is not None and request.start >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                request.status = 416
                return
            request.status = 200 if last is None else 206
            stop = size if last is None else min(int(last or size) + 1, size)
            body = data[request.start : stop]
            self.send_response(request.status)
            self.send_header("Content-Type", kind)
            if server.etag:
                self.send_header("ETag", server.etag)
            if last is not None:
                shift = 1 if server.wrong_range else 0
                self.send_header("Content-Range", f"bytes {request.start + shift}-{stop - 1}/{size}")
            if server.lengths:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            if not with_body:
                return
            with lock:
                cut = server.cuts.pop(0) if server.cuts else None
            try:
                self.wfile.write(body if cut is None else body[:cut])
                self.wfile.flush()
                request.n_bytes = len(body) if cut is None else min(cut, len(body))
            except OSError:  # the reader has seen enough
                self.close_connection = True
            if cut is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    return Handler


@contextmanager
def serve() -> Iterator[Loopback]:
    """A server that answers until the block ends."""
    server = Loopback()
    web = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    web.daemon_threads = True
    web.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    server.url = f"http://127.0.0.1:{web.server_address[1]}"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        if server.hang is not None:
            server.hang.set()
        web.shutdown()
        web.server_close()
        thread.join()


Start = Callable[[], Loopback]
