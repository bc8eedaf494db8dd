"""An answer of the public listener, prepared: only the date and the end of the connection differ between requests."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final

PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class PublicAnswer:
    """``status`` with a ``body`` and ``headers``, which may hold no newline."""

    def __init__(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, content_type: str = PLAIN
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {"Content-Type": content_type, **(headers or {}), "Content-Length": str(len(body))}
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name}: {text}" for name, text in self.headers.items()),
        ]
        self._head = "\r\n".join([*lines, "Server: health-arbiter", "Date: "]).encode("latin-1")

    def written(self, method: str, *, keeps: bool) -> bytes:
        """The whole response to a request of this method; ``keeps``: the connection is kept after it."""
        body = b"" if method == "HEAD" else self.body
        connection = b"keep-alive" if keeps else b"close"
        return b"%b%b\r\nConnection: %b\r\n\r\n%b" % (self._head, _date(int(time.time())), connection, body)


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> PublicAnswer:
    """A JSON document with the reason."""
    return PublicAnswer(status, json.dumps({"error": sentence}).encode() + b"\n", headers, JSON)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """Unix seconds as in RFC 9110, section 5.6.7."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(second)).encode()
