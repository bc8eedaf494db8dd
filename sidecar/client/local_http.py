"""Posts to the sidecar's local listener: to the unix socket if one is set, else to an address, by default of loopback.

It waits for the sidecar, at most ``TIMEOUT_S``, so only the thread of the emitter and the end of the process use it. A
request that was handed over counts as sent even without an answer: sent twice, it could count twice.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, Self

DEFAULT: Final = "127.0.0.1:9180"
OFF: Final = "off"
TIMEOUT_S: Final = 1.0
RETRY_S: Final = 1.0
"""Pause before another attempt to reach a sidecar that is away."""

_STATUS: Final = slice(9, 12)
"""Where the status is in ``HTTP/1.1 202 Accepted``."""


class Outcome(Enum):
    """The outcome of a request."""

    SENT = auto()
    FULL = auto()  # the sidecar takes no more now: it may be sent again
    AWAY = auto()  # no sidecar answers: as FULL
    NOWHERE = auto()  # no address is set
    REFUSED = auto()  # it is not a sidecar that answers


class LocalHttp:
    """Posts to the first address that accepts a connection: ``path``, a unix socket, else ``listen``, ``host:port``.

    ``listen`` takes no names, because a resolver may hang at the end of the process. ``str`` gives the addresses for
    people, ``refusal`` a sentence on the last answer that was REFUSED. Not safe for threads: its owner holds a lock.
    """

    def __init__(self, path: str = "", listen: str = OFF) -> None:
        self.timeout_s = TIMEOUT_S
        self.refusal = ""
        self._retry_at = float("-inf")
        self._targets: list[tuple[socket.AddressFamily, Any, str]] = []
        self._names = [path] if path else []
        if path:
            self._targets.append((socket.AF_UNIX, path, path))
        if listen and listen != OFF:
            try:
                self._targets.append((*_address(listen), listen))
                self._names.append(listen)
            except (OSError, ValueError):
                self._names.append(f"{listen}, which is no address of numbers")

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The one that the settings of the sidecar name."""
        return cls(environ.get("ARBITER_SOCKET", ""), environ.get("ARBITER_LOCAL_LISTEN") or DEFAULT)

    def post(self, path: str, body: bytes, now: float) -> Outcome:
        """Post one request. ``now``: seconds on a monotonic clock."""
        if not self._names:
            return Outcome.NOWHERE
        if now < self._retry_at:
            return Outcome.AWAY
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        for family, target, name in self._targets:
            try:
                connection = socket.socket(family, socket.SOCK_STREAM)
            except OSError:  # the app has no descriptor left
                continue
            with connection:
                connection.settimeout(self.timeout_s)
                try:
                    connection.connect(target)
                except (OSError, ValueError):  # ValueError: a path with a zero byte
                    continue
                return self._outcome(name, _exchanged(connection, head.encode() + body))
        self._retry_at = now + RETRY_S
        return Outcome.AWAY

    def _outcome(self, name: str, answer: bytes) -> Outcome:
        status = answer[_STATUS]
        if status == b"503":
            return Outcome.FULL
        if not answer or status[:1] == b"2":
            return Outcome.SENT
        what = status.decode() if status.isdigit() else "without HTTP"
        self.refusal = f"{name} answers {what}: it is not the local listener of a sidecar"
        return Outcome.REFUSED

    def __str__(self) -> str:
        return " and ".join(self._names)


def _address(listen: str) -> tuple[socket.AddressFamily, Any]:
    """Return family and target of ``host:port``. Raises OSError or ValueError for a name, except ``localhost``."""
    host, _, port = listen.strip().rpartition(":")
    host = "127.0.0.1" if host.lower() == "localhost" else host.removeprefix("[").removesuffix("]")
    if not host or not 0 < int(port) <= 0xFFFF:  # noqa: PLR2004 - the largest port
        raise ValueError(listen)
    family, *_, target = socket.getaddrinfo(host, int(port), flags=socket.AI_NUMERICHOST)[0]
    return family, target


def _exchanged(connection: socket.socket, request: bytes) -> bytes:
    """Return the beginning of the answer, or nothing if none came."""
    try:
        connection.sendall(request)
        return connection.recv(4096)
    except OSError:
        return b""
