"""A small HTTP server, in threads of its own, on loopback or on a unix socket: a function answers each request."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: Message
    body: bytes


class Said(NamedTuple):
    """The answer to it."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class _UnixServer(ThreadingMixIn, UnixStreamServer):
    """What ``ThreadingHTTPServer`` is for TCP."""


@contextmanager
def http_server(answer: Callable[[Asked], Said], at: str | Path = "127.0.0.1") -> Iterator[int]:
    """The port at which ``answer`` is asked while the context lasts; ``at``: the host, or the path of a unix socket."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content, headers = answer(Asked(self.command, self.path, self.headers, body))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # a client that waited long enough has gone
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = _answer  # noqa: N815 - the names are those of http.server

        def log_message(self, *_: object) -> None:
            """Nothing: a test looks at its own side."""

    is_path = isinstance(at, Path)
    with _UnixServer(str(at), Handler) if is_path else ThreadingHTTPServer((str(at), 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield 0 if is_path else server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()
