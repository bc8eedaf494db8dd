"""Reads the heads of HTTP/1 requests before aiohttp sees them. Pure, linear in time.

It refuses a head that two parsers could read differently (RFC 9112, section 11.2), and a head that asks for what no
listener offers: another protocol, or a GET with a body. aiohttp parses the request again and refuses more.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

HEAD_LIMIT: Final = 16 * 1024
LINE_LIMIT: Final = 4 * 1024
HEADERS_LIMIT: Final = 32
END: Final = b"\r\n\r\n"
CHUNKED: Final = -1
"""The ``RequestHead.length`` of a chunked body."""

_REQUEST: Final = re.compile(rb"([A-Z]{1,32}+) ([\x21-\x7e]{1,4096}+) HTTP/1\.([01])")
_BEGINNING: Final = re.compile(rb"[A-Z]{1,32}+(?: (?:[\x21-\x7e]{1,4096}+(?: [HTP/1.0]{0,8}+\r?)?)?)?")
_REQUEST_BYTES: Final = 32 + 1 + 4096 + 1 + 8
"""The longest request line. The expressions are possessive: what cannot match is not tried again byte by byte."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_NO_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_ONCE: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
_READ: Final = _ONCE | {b"connection", b"upgrade", b"expect", b"user-agent"}
_IGNORED_UPGRADE: Final = b"h2c"
"""Java's HTTP client asks for it in every request; a server may answer in HTTP/1.1 (RFC 9110, section 7.8)."""

CACHED: Final = 64
CACHED_BYTES: Final = 512

TAKES_NO_BODY: Final = "body: nothing here takes one"
"""The answer of a read-only listener to a body."""


class BadHeadError(Exception):
    """The request is refused with a 4xx and a sentence; ``word`` is the metric's label."""

    def __init__(self, status: int, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.word = word


class RequestHead(NamedTuple):
    """Request line and headers. ``length`` is that of the body in bytes, or ``CHUNKED``.

    ``is_plain``: a cached response may answer it. ``keeps``: the client keeps its connection (for plain requests).
    """

    method: str
    target: str
    minor: int
    keeps: bool
    length: int
    user_agent: str
    is_plain: bool


class HeadParser:
    """Parses heads, and remembers short ones: a balancer sends the same head each time."""

    def __init__(self, *, takes_bodies: bool = True) -> None:
        self._takes_bodies = takes_bodies
        self._known: dict[bytes, RequestHead] = {}

    def read(self, raw: bytes) -> RequestHead:
        """Parse a head with its empty line; ``BadHeadError`` if it is refused."""
        head = self._known.get(raw)
        if head is None:
            head = parse(raw)
            if head.length and not self._takes_bodies:
                raise BadHeadError(400, "body", TAKES_NO_BODY)
            if len(raw) <= CACHED_BYTES:
                if len(self._known) >= CACHED:
                    self._known.clear()
                self._known[raw] = head
        return head


def parse(raw: bytes) -> RequestHead:
    """Parse a head that ends in an empty line; ``BadHeadError`` if it is refused."""
    first, *lines = raw[: -len(END)].split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise _not_http("no request line of HTTP/1")
    if len(raw) > HEAD_LIMIT:
        raise _not_http(f"a head of more than {HEAD_LIMIT} bytes")
    if len(lines) > HEADERS_LIMIT:
        raise _not_http(f"more than {HEADERS_LIMIT} headers")
    method, target, minor = request[1].decode(), request[2].decode(), int(request[3])
    fields = _fields(lines)
    if minor and b"host" not in fields:
        raise _not_http("no Host")
    _refuse_upgrade(method, fields)
    length = _length(fields, minor)
    if length and method in _NO_BODY:
        raise BadHeadError(400, "body", f"body: {method} has none")
    connection = fields.get(b"connection", b"").lower()
    is_plain = length == 0 and connection in {b"", b"close", b"keep-alive"} and b"expect" not in fields
    keeps = connection != b"close" if minor else connection == b"keep-alive"
    user_agent = fields.get(b"user-agent", b"").decode(errors="surrogateescape")
    return RequestHead(method, target, minor, keeps, length, user_agent, is_plain)


def refuse_hopeless(data: bytes) -> None:
    """Raise ``BadHeadError`` if no valid head begins with these bytes."""
    if len(data) > HEAD_LIMIT:
        raise _not_http(f"a head of more than {HEAD_LIMIT} bytes")
    end = data.find(b"\r\n", 0, _REQUEST_BYTES + 2)
    first = data[: end if end >= 0 else _REQUEST_BYTES + 2]
    if (_REQUEST if end >= 0 else _BEGINNING).fullmatch(first) is None:
        raise _not_http("no request line of HTTP/1")


def error_response(error: BadHeadError) -> bytes:
    """The whole response to a head that is refused."""
    return _error_response(error.status, str(error))


@lru_cache(maxsize=64)
def _error_response(status: int, sentence: str) -> bytes:
    content = json.dumps({"error": sentence}).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    """The values of the headers that matter here, by name in lower case."""
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise _not_http("a line that is no header")
        name = name.lower()
        if name in _READ:
            if name in fields:
                if name in _ONCE:
                    raise _not_http(f"{name.decode()}: given twice")
                fields[name] += b"," + value.strip(b" \t")
            else:
                fields[name] = value.strip(b" \t")
    return fields


def _refuse_upgrade(method: str, fields: dict[bytes, bytes]) -> None:
    protocol = fields.get(b"upgrade", _IGNORED_UPGRADE).lower()
    if method == "CONNECT" or protocol != _IGNORED_UPGRADE:
        raise BadHeadError(400, "upgrade", "Upgrade: no other protocol is spoken here")


def _length(fields: dict[bytes, bytes], minor: int) -> int:
    coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if coding is not None:
        if length is not None or not minor or coding.lower() != b"chunked":
            raise _not_http("Transfer-Encoding: takes chunked, with HTTP/1.1 and without a Content-Length")
        return CHUNKED
    if length is not None and not _LENGTH.fullmatch(length):
        raise _not_http("Content-Length: takes a number")
    return int(length or 0)


def _not_http(sentence: str) -> BadHeadError:
    return BadHeadError(400, "not_http", f"not HTTP: {sentence}")
