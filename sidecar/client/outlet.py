"""One non-blocking datagram socket to the sidecar, opened at the first packet and opened again after a failure.

It never blocks, asks no resolver and raises nothing.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from .lines import MOST, StatsdSeries, Sum

RETRY_S: Final = 0.25
"""Pause before another attempt to reach a sidecar that is away."""

PACKET_LIMIT: Final = 1_400
"""Bytes; fits any network and any reader's buffer."""

_FULL: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
_LOCALHOST: Final = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here


class Outcome(Enum):
    """The outcome of a packet. FULL and AWAY: it may be sent again. NOWHERE: no address is set."""

    SENT = "sent"
    FULL = "full"
    AWAY = "away"
    NOWHERE = "nowhere"
    REFUSED = "refused"


class Address(NamedTuple):
    """A socket to send to."""

    family: socket.AddressFamily
    target: str | tuple[str, int]

    def __str__(self) -> str:
        return self.target if isinstance(self.target, str) else "{}:{}".format(*self.target)


Addresses = tuple[Address, ...]


def read_addresses(unix_socket: str = "", listen: str = "") -> Addresses:
    """Return the sockets to send to, the preferred one first: the unix socket, then ``host:port`` of UDP.

    Invalid addresses are left out, and so are host names except ``localhost``, because a resolver may block.
    """
    addresses = [Address(socket.AF_UNIX, unix_socket)] if unix_socket else []
    if (address := read_address(listen)) is not None:
        addresses.append(address)
    return tuple(addresses)


def read_address(listen: str) -> Address | None:
    """Return the address of ``host:port``; None if it is invalid, or if a resolver would be needed."""
    host, _, port = listen.strip().lower().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = _family(host := _LOCALHOST.get(host, host))
    if family is not None and port.isdecimal() and 0 < int(port) <= 0xFFFF:  # noqa: PLR2004 - the largest port
        return Address(family, (host, int(port)))
    return None


def unreachable(listen: str) -> Addresses:
    """Return an address that is always AWAY, for an address that ``read_address`` cannot read: so the log names it."""
    if not listen or listen == "off":
        return ()
    return (Address(socket.AF_UNSPEC, f"{listen}, which is no address of numbers"),)


def addresses_of(environ: Mapping[str, str] = os.environ) -> Addresses:
    """Return the sockets that the sidecar's settings name."""
    return read_addresses(environ.get("ARBITER_STATSD_SOCKET", ""), environ.get("ARBITER_STATSD_LISTEN", ""))


def _family(host: str) -> socket.AddressFamily | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


class Outlet:
    """Sends to the first of the addresses that accepts a connection.

    Not safe for threads: its owner holds a lock. After a fork the child calls ``close``.
    """

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self._is_udp = False
        self._retry_at = float("-inf")

    def packets(self, kept: Mapping[StatsdSeries, Sum]) -> Iterator[tuple[bytes, dict[StatsdSeries, int]]]:
        """Yield all sums as lines in packets, each packet with its counts."""
        lines: list[bytes] = []
        counts: dict[StatsdSeries, int] = {}
        size = 0
        for series, total in kept.items():
            count = min(total.count, MOST)
            line = series.line(count, total.message)
            if lines and size + len(line) >= PACKET_LIMIT:
                yield b"\n".join(lines), counts
                lines, counts, size = [], {}, 0
            lines.append(line)
            counts[series] = count
            size += len(line) + 1
        if lines:
            yield b"\n".join(lines), counts

    def send(self, packet: bytes, now: float) -> Outcome:
        """Hand one packet to the kernel. ``now``: seconds on a monotonic clock."""
        for attempt in (0, 1):
            if self._socket is None and not self._connect(now):
                return Outcome.AWAY if self._addresses else Outcome.NOWHERE
            outcome = self._try(packet)
            if outcome is not Outcome.AWAY:
                return outcome
            self.close()
            if self._is_udp or attempt:
                break
            # Try again: a new sidecar may listen at the same path on another socket.
        self._retry_at = now + RETRY_S
        return Outcome.AWAY

    def close(self) -> None:
        """Close the socket; the next packet opens another one."""
        self._retry_at = float("-inf")
        open_socket, self._socket = self._socket, None
        if open_socket is not None:
            try:
                open_socket.close()
            except OSError:
                open_socket.detach()

    def __str__(self) -> str:
        return " and ".join(str(address) for address in self._addresses)

    def _try(self, packet: bytes) -> Outcome:
        assert self._socket is not None  # noqa: S101 - for the type checker: send has connected
        try:
            self._socket.send(packet)
            # Over loopback the kernel knows at once that no process listens; else the error would fail the next send.
            refused = self._is_udp and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            return Outcome.FULL if error.errno in _FULL else Outcome.AWAY
        return Outcome.AWAY if refused else Outcome.SENT

    def _connect(self, now: float) -> bool:
        if now < self._retry_at:
            return False
        for address in self._addresses:
            self._socket = _connected(address)
            if self._socket is not None:
                self._is_udp = address.family != socket.AF_UNIX
                return True
        self._retry_at = now + RETRY_S
        return False


def _connected(address: Address) -> socket.socket | None:
    try:
        opened = socket.socket(address.family, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        opened.settimeout(0)
        opened.connect(address.target)
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        opened.close()
        return None
    return opened
