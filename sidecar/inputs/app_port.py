"""Notices that the app was restarted, by the socket that listens at its port. The app needs to say nothing.

Where the sidecar shares the app's network (a task group of Nomad, a pod), the kernel lists the listening sockets, each
with a number that no other socket has. Elsewhere, and in a sandbox without such a list, the sidecar connects: a refused
connection, followed by an accepted one, is a restart. A process that passes its listening socket on to its successor
(systemd's socket activation, an upgrade in place) looks like one incarnation.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Final

from sidecar.core.app_reports import AppListening, Report

Offer = Callable[[Sequence[Report]], bool]

WELL_S: Final = 0.9
"""Time between two looks while the app is well: every restart is noticed within a second, and then starts the grace."""

UNWELL_S: Final = 0.5
"""The same while it is suspect or out of balance: a restart ends that."""

SETTLE_S: Final = 10.0
"""Time in which the workers of one incarnation open their sockets, if each has its own (``SO_REUSEPORT``)."""

CONNECT_S: Final = 1.0

ABSENT_S: Final = 10.0
"""Time, with the grace of the app, after which a port at which nobody listens is reported: it may be the wrong one."""

MOST_SOCKETS: Final = 256
"""Number of sockets per family that are read: each takes 13 microseconds. No app has as many workers."""

# From linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_DUMP_REQUEST: Final = 0x301
_ERROR, _DONE = 2, 3
_ONLY_LISTENING: Final = 1 << 10
_HEAD: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI2s46x")
_FOUND_INODE: Final = struct.Struct("=68xI")
_ERROR_NUMBER: Final = struct.Struct("=i")


class AppPort:
    """Looks at the app's port again and again, and offers an ``AppListening`` for each new incarnation.

    ``target``: host (None: in this network) and port. ``present``: the socket of the present incarnation, if another
    sidecar knew it. ``offer`` takes reports; False means that they must be offered again. ``is_well``: whether the app
    is up. ``on_failure`` gets what a look raised: the next look is made all the same. ``on_absent`` is called when
    nobody has listened for ``grace_s`` seconds and ``ABSENT_S`` more, once each time. ``is_listening``: what the last
    look that could tell has seen.
    """

    def __init__(
        self,
        target: tuple[str | None, int],
        *,
        offer: Offer,
        is_well: Callable[[], bool],
        on_failure: Callable[[Exception], None],
        on_absent: Callable[[], None] = lambda: None,
        grace_s: float = 0.0,
        present: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        host, port = target
        self.is_listening = False
        self._port = port
        self._connections = None if host is None else AcceptedConnections(host, port, present)
        self._present = present
        self._incarnations = SocketIncarnations(present)
        self._offer = offer
        self._is_well = is_well
        self._on_failure = on_failure
        self._on_absent = on_absent
        self._absent_after_s = grace_s + ABSENT_S
        self._listened_at: float | None = None
        self._is_reported = False
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - without a look the app stays what it was
                self._on_failure(error)
            await asyncio.sleep(WELL_S if self._is_well() else UNWELL_S)

    async def look(self) -> None:
        """Look once."""
        sockets = await self._sockets()
        now = self._clock()
        if sockets is not None:
            self.is_listening = bool(sockets)
            self._incarnations.see(sockets, now)
        if self.is_listening or self._listened_at is None:
            self._listened_at, self._is_reported = now, False
        elif not self._is_reported and now >= self._listened_at + self._absent_after_s:
            self._is_reported = True
            self._on_absent()
        begun = self._incarnations.unreported
        if begun and self._offer([AppListening(begun)]):
            self._incarnations.unreported = ""

    async def _sockets(self) -> frozenset[str] | None:
        """What listens; None if that is not known."""
        if self._connections is None:
            try:
                return listening_sockets(self._port)
            except OSError:
                if self._listened_at is not None:  # the kernel has answered before
                    raise
                self._connections = AcceptedConnections("localhost", self._port, self._present)
        return await self._connections.look()


class SocketIncarnations:
    """Tells the incarnations of the app apart by the sockets that listen at its port.

    An incarnation ends when none of the sockets is left that were there when it settled: workers come and go. While
    nobody listens nothing has begun. ``unreported``: the first socket of a new incarnation, until the owner clears it.
    """

    def __init__(self, present: str = "") -> None:
        self.unreported = ""
        self._sockets = frozenset({present}) if present else frozenset()
        self._settled_at: float | None = None

    def see(self, sockets: frozenset[str], now: float) -> None:
        """Note which sockets listen at ``now`` (seconds of a monotonic clock)."""
        if not sockets:
            return
        if not sockets & self._sockets:
            self.unreported, self._sockets, self._settled_at = min(sockets), sockets, now + SETTLE_S
        elif self._settled_at is None:
            self._sockets, self._settled_at = sockets, now + SETTLE_S
        elif now < self._settled_at:
            self._sockets |= sockets


class AcceptedConnections:
    """Finds out by connecting whether the app listens; each time that it began to listen has a name of its own."""

    def __init__(self, host: str, port: int, present: str = "") -> None:
        self._address = host, port
        self._name = present or _new_name()
        self._was_refused = False

    async def look(self) -> frozenset[str] | None:
        """The name of this time, nothing if the app refuses connections, None if that is not known."""
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(*self._address)
        except ConnectionRefusedError:
            self._was_refused = True
            return frozenset()
        except OSError:  # a time-out, a name that is not known, no route: this says nothing about the app
            return None
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        if self._was_refused:
            self._name, self._was_refused = _new_name(), False
        return frozenset({self._name})


def _new_name() -> str:
    return f"seen-{os.urandom(6).hex()}"


def listening_sockets(port: int) -> frozenset[str]:
    """The inode numbers of the sockets that listen at ``port``, of any address and family.

    The kernel is asked for listening sockets alone (sock_diag(7)), in 60 microseconds. It puts its answer together at
    once, so nothing waits. OSError if it has none, as in some sandboxes.
    """
    return frozenset(chain.from_iterable(_of_family(family, port) for family in (socket.AF_INET, socket.AF_INET6)))


def _of_family(family: int, port: int) -> Iterator[str]:
    # A socket of its own: the kernel refuses the next question before the last answer has been read to its end.
    kinds = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kinds, _SOCK_DIAG) as kernel:
        yield from islice(_asked(kernel, family, port), MOST_SOCKETS)


def _asked(kernel: socket.socket, family: int, port: int) -> Iterator[str]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ONLY_LISTENING, port.to_bytes(2))
    kernel.send(_HEAD.pack(_HEAD.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 0, 0) + request)
    while True:
        answer = memoryview(kernel.recv(1 << 16))
        while answer:
            length, kind, _, _, _ = _HEAD.unpack_from(answer)
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -_ERROR_NUMBER.unpack_from(answer, _HEAD.size)[0]
                raise OSError(number, os.strerror(number))
            yield str(_FOUND_INODE.unpack_from(answer, _HEAD.size)[0])
            answer = answer[max(length + 3 & ~3, _HEAD.size) :]
