"""Posts to the sidecar's local listener: to the unix socket if one is set, else to an address, by default of loopback.

It waits for the sidecar, so only the thread of the emitter and the end of the process use it. A
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
RETRY_S: Final = 1.0
"""Pause before another attempt to reach a sidecar that is away."""

_STATUS: Final = slice(9, 12)
"""Where the status is in ``HTTP/1.1 202 Accepted``."""


class Outcome(Enum):
    """What became of a request."""

    SENT = auto()
    FULL = auto()  # the sidecar takes no more now: it may be sent again
    AWAY = auto()  # no sidecar answers: as FULL
    USELESS = auto()  # no address is set, or it is no sidecar that answers


class LocalHttp:
    """Posts to the first address that accepts a connection: ``path``, a unix socket, else ``listen``, ``host:port``.

    ``listen`` takes no names, because a resolver may hang at the end of the process. ``fault`` says for people why the
    last request did not reach a sidecar. Not safe for threads: its owner holds a lock.
    """

    def __init__(self, path: str = "", listen: str = OFF) -> None:
        self.fault = ""
        self._retry_at = float("-inf")
        self._targets: list[tuple[str, socket.AddressFamily, Any]] = []
        self._names = [path] if path else []
        if path:
            self._targets.append((path, socket.AF_UNIX, path))
        if listen and listen != OFF:
            try:
                self._targets.append((listen, *_address(listen)))
                self._names.append(listen)
            except (OSError, ValueError):
                self._names.append(f"{listen}, which is no address of numbers")

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The one that the settings of the sidecar name."""
        return cls(environ.get("ARBITER_SOCKET", ""), environ.get("ARBITER_LOCAL_LISTEN") or DEFAULT)

    def post(self, path: str, body: bytes, now: float, timeout_s: float) -> Outcome:
        """Post one request. ``now``: seconds on a monotonic clock; ``timeout_s``: of each step."""
        if not self._names:
            return Outcome.USELESS
        if now < self._retry_at:
            return Outcome.AWAY
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        for name, family, target in self._targets:
            answer = _exchanged(family, target, head.encode() + body, timeout_s)
            if answer is not None:
                return self._outcome(name, answer)
        self._retry_at = now + RETRY_S
        self.fault = f"no sidecar answers at {' and '.join(self._names)}"
        return Outcome.AWAY

    def _outcome(self, name: str, answer: bytes) -> Outcome:
        status = answer[_STATUS]
        if status == b"503":
            return Outcome.FULL
        if not answer or status[:1] == b"2":
            return Outcome.SENT
        what = status.decode() if status.isdigit() else "without HTTP"
        self.fault = f"{name} answers {what}: it is not the local listener of a sidecar"
        return Outcome.USELESS


def _address(listen: str) -> tuple[socket.AddressFamily, Any]:
    """Return family and target of ``host:port``. Raises OSError or ValueError for a name, except ``localhost``."""
    host, _, port = listen.strip().rpartition(":")
    host = "127.0.0.1" if host.lower() == "localhost" else host.removeprefix("[").removesuffix("]")
    if not host or not 0 < int(port) <= 0xFFFF:  # noqa: PLR2004 - the largest port
        raise ValueError(listen)
    # As bytes: for a text Python loads a codec from a file, for which the app may have no descriptor left.
    family, *_, target = socket.getaddrinfo(host.encode(), int(port), flags=socket.AI_NUMERICHOST)[0]
    return family, target


def _exchanged(family: socket.AddressFamily, target: Any, request: bytes, timeout_s: float) -> bytes | None:
    """Return the beginning of the answer, b"" if none came; None if nobody accepts a connection."""
    try:
        connection = socket.socket(family)
    except OSError:  # the app has no descriptor left
        return None
    with connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(target)
        except (OSError, ValueError):  # ValueError: a path with a zero byte
            return None
        try:
            connection.sendall(request)
            return connection.recv(4096)
        except OSError:
            return b""
