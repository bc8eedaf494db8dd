"""Minimal HTTP/1.1 for the benchmarks: prepared requests, answers of a known form, plain sockets."""

from __future__ import annotations

import re
import socket
import time
from typing import Final

Address = tuple[str, int] | str
"""Host and port, or the path of a unix socket."""

TIMEOUT_S: Final = 5.0
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def request(method: str, path: str, body: str | None = None, *, close: bool = False) -> bytes:
    """A request as bytes; ``body`` is JSON, and a POST without it has the length 0."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body:
        lines.append("Content-Type: application/json")
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body or '')}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", body or ""]).encode()


def connect(address: Address) -> socket.socket:
    """A connection with the timeout ``TIMEOUT_S``."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(TIMEOUT_S)
        connection.connect(address)
        if family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connection.close()
        raise
    return connection


def is_whole(answer: bytes) -> bool:
    """Whether the answer is complete; without a Content-Length it ends with its head, as 204 does."""
    head, end, body = answer.partition(_HEAD_END)
    length = _LENGTH.search(head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


def status(answer: bytes) -> int:
    """The status of an answer; 0 if it is not HTTP."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") and answer[9:12].isdigit() else 0


def body(answer: bytes) -> bytes:
    """The body of an answer."""
    return answer.partition(_HEAD_END)[2]


def ask(connection: socket.socket, request: bytes) -> bytes:
    """One whole answer; OSError when the connection ends or the time does."""
    connection.sendall(request)
    answer = connection.recv(65536)
    ends_at = time.monotonic() + TIMEOUT_S
    while not is_whole(answer):
        more = connection.recv(65536)
        if not more or time.monotonic() > ends_at:
            raise ConnectionError(f"the connection ended within an answer: {answer[:200]!r}")
        answer += more
    return answer


def ask_once(address: Address, request: bytes) -> bytes:
    """``ask`` on a new connection."""
    with connect(address) as connection:
        return ask(connection, request)


def expect(wanted: int, connection: socket.socket, request: bytes) -> bytes:
    """``ask`` on an open connection; RuntimeError for another status."""
    answer = ask(connection, request)
    if status(answer) != wanted:
        raise RuntimeError(f"answered {answer[:200]!r} where {wanted} was expected")
    return answer
