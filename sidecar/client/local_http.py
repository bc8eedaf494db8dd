"""Sends reports over HTTP to the sidecar's local listener: the unix socket if one is set, else loopback.

It waits for the sidecar, at most ``TIMEOUT_S``, so only the thread of the emitter and the end of the process use it. A
request that was handed over counts as sent even without an answer: sent twice, it could count twice.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from .lines import MOST, StatsdSeries, Sum
from .outlet import Address, Outcome, read_address, unreachable

DEFAULT: Final = "127.0.0.1:9180"
TIMEOUT_S: Final = 1.0
RETRY_S: Final = 1.0
"""Pause before another attempt to reach a sidecar that is away."""

OBJECTS: Final = 40
"""Maximum number of objects in one request; its body stays below the 64 KiB that the listener takes."""

_STATUS: Final = slice(9, 12)
"""Where the status is in ``HTTP/1.1 202 Accepted``."""


class LocalHttp:
    """Posts to the first address that accepts a connection. Not safe for threads: its owner holds a lock.

    ``refusal`` is a sentence on the last answer that was REFUSED.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.addresses: list[Address] = []
        if path := environ.get("ARBITER_SOCKET"):
            self.addresses.append(Address(socket.AF_UNIX, path))
        listen = environ.get("ARBITER_LOCAL_LISTEN") or DEFAULT
        if (address := read_address(listen)) is not None:
            self.addresses.append(address)
        else:
            self.addresses += unreachable(listen)
        self.timeout_s = TIMEOUT_S
        self.refusal = ""
        self._retry_at = float("-inf")

    def packets(self, kept: Mapping[StatsdSeries, Sum]) -> Iterator[tuple[bytes, dict[StatsdSeries, int]]]:
        """Yield all sums as requests, each with its counts: errors, results and heartbeats."""
        paths: dict[str, list[tuple[StatsdSeries, Sum]]] = {}
        for series, total in kept.items():
            paths.setdefault(series.path, []).append((series, total))
        for path, sums in paths.items():
            for at in range(0, len(sums), OBJECTS):
                part = sums[at : at + OBJECTS]
                counts = {series: min(total.count, MOST) for series, total in part}
                objects = [series.fields(counts[series], total.message) for series, total in part]
                yield _request(path, objects), counts

    def send(self, request: bytes, now: float) -> Outcome:
        """Post one request. ``now``: seconds on a monotonic clock."""
        if not self.addresses:
            return Outcome.NOWHERE
        if now < self._retry_at:
            return Outcome.AWAY
        for address in self.addresses:
            try:
                connection = socket.socket(address.family, socket.SOCK_STREAM)
            except OSError:
                continue
            with connection:
                connection.settimeout(self.timeout_s)
                try:
                    connection.connect(address.target)
                except (OSError, ValueError):  # ValueError: a path with a zero byte
                    continue
                return self._outcome(address, _exchanged(connection, request))
        self._retry_at = now + RETRY_S
        return Outcome.AWAY

    def _outcome(self, address: Address, answer: bytes) -> Outcome:
        status = answer[_STATUS]
        if status == b"503":
            return Outcome.FULL
        if not answer or status[:1] == b"2":
            return Outcome.SENT
        what = status.decode() if status.isdigit() else "without HTTP"
        self.refusal = f"{address} answers {what}: it is not the local listener of a sidecar"
        return Outcome.REFUSED

    def close(self) -> None:
        """Forget that the sidecar was away; there is no connection to close."""
        self._retry_at = float("-inf")

    def __str__(self) -> str:
        return " and ".join(str(address) for address in self.addresses)


def _exchanged(connection: socket.socket, request: bytes) -> bytes:
    """Return the beginning of the answer, or nothing if none came."""
    try:
        connection.sendall(request)
        return connection.recv(4096)
    except OSError:
        return b""


def _request(path: str, objects: list[dict[str, object]]) -> bytes:
    """Return the request: errors are an array, results are one object, and a heartbeat has no body."""
    from json import dumps  # noqa: PLC0415 - an app that sends datagrams does not need it

    body = b""
    if path != "/heartbeat":
        joined = {name: value for each in objects for name, value in each.items()}
        body = dumps(objects if path == "/errors" else joined, ensure_ascii=False).encode(errors="replace")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
