"""The HTTP of the public listener: requests by GET, HEAD and OPTIONS without a body, and prepared answers. Pure.

It refuses a head that two parsers could read differently (RFC 9112, section 11.2), and a head that asks for what the
listener does not offer: another method, another protocol, a body.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from sidecar.net.http_error import HttpError

HEAD_LIMIT: Final = 8 * 1024
HEADERS_LIMIT: Final = 32
END: Final = b"\r\n\r\n"
METHODS: Final = ("GET", "HEAD", "OPTIONS")
TAKES_NO_BODY: Final = "body: nothing here takes one"

_LINE: Final = re.compile(rb"([A-Z]{1,32}+) ([\x21-\x7e]{1,4096}+) HTTP/1\.([01])")
"""The expression is possessive: what cannot match is not tried again byte by byte."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_ONCE: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
_READ: Final = _ONCE | {b"connection", b"upgrade", b"expect"}
_IGNORED_UPGRADE: Final = b"h2c"
"""Java's HTTP client asks for it in every request; a server may answer in HTTP/1.1 (RFC 9110, section 7.8)."""


class PublicRequest(NamedTuple):
    """A request without a body."""

    method: str
    path: str
    query: str
    keeps: bool
    """Whether the client keeps its connection after the answer."""


@lru_cache(maxsize=64)  # a balancer sends the same head each time
def parse(raw: bytes) -> PublicRequest:
    """Parse a head that ends in an empty line, of at most ``HEAD_LIMIT`` bytes; ``HttpError`` if it is refused."""
    first, *lines = raw[: -len(END)].split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise _not_http("no request line of HTTP/1")
    if len(lines) > HEADERS_LIMIT:
        raise _not_http(f"more than {HEADERS_LIMIT} headers")
    fields = _fields(lines)
    is_1_1 = line[3] == b"1"
    if is_1_1 and b"host" not in fields:
        raise _not_http("no Host")
    method = line[1].decode()
    _refuse_what_is_not_offered(method, fields)
    path, _, query = line[2].decode().partition("?")
    connection = {option.strip() for option in fields.get(b"connection", b"").lower().split(b",")}
    keeps = b"close" not in connection and (is_1_1 or b"keep-alive" in connection)
    return PublicRequest(method, path, query, keeps)


def refuse_hopeless(data: bytes) -> None:
    """Raise ``HttpError`` if these bytes, which are not empty, are no beginning of a head: a client may wait for it."""
    if len(data) > HEAD_LIMIT:
        raise _not_http(f"a head of more than {HEAD_LIMIT} bytes")
    line, newline, _ = data.partition(b"\r\n")
    if not (_LINE.fullmatch(line) if newline else line[:1].isupper()):
        raise _not_http("no request line of HTTP/1")


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    """The values of the headers that matter here, by name in lower case."""
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise _not_http("a line that is no header")
        name = name.lower()
        if name in _READ:
            if name in fields and name in _ONCE:
                raise _not_http(f"{name.decode()}: given twice")
            fields[name] = (fields[name] + b"," if name in fields else b"") + value.strip(b" \t")
    return fields


def _refuse_what_is_not_offered(method: str, fields: Mapping[bytes, bytes]) -> None:
    protocol = fields.get(b"upgrade", _IGNORED_UPGRADE).lower()
    if method == "CONNECT" or protocol != _IGNORED_UPGRADE:
        raise HttpError(400, "upgrade", "Upgrade: no other protocol is spoken here")
    if b"transfer-encoding" in fields or b"expect" in fields or fields.get(b"content-length", b"0") != b"0":
        raise HttpError(400, "body", TAKES_NO_BODY)
    if method not in METHODS:
        allowed = ", ".join(METHODS)
        raise HttpError(405, "method", f"method: this listener takes {allowed}", {"Allow": allowed})


def _not_http(sentence: str) -> HttpError:
    return HttpError(400, "not_http", f"not HTTP: {sentence}")


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
