"""Receives StatsD packets on a UDP port and a unix socket, and sums equal lines before they are reported.

asyncio's own datagram endpoint allocates 256 KiB for each packet, which takes a system call. Here up to ``BATCH``
packets are received and reported in a turn of the loop, so that a flood waits in the kernel and not in front of health
answers. While packets come, the loop does not watch a UDP socket but reads it each ``PAUSE_S``: a wake-up for each
packet would cost ten times as much.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sidecar.core.app_reports import Report
from sidecar.inputs.statsd import PacketReader
from sidecar.net.listening import address_of, bind_unix, remove_stale

BATCH: Final = 128
BATCH_BYTES: Final = 4_096
"""Maximum number of packets, and of bytes of different packets before the last, in one turn of the loop. A line takes
up to 8 us, and a health answer takes several turns."""

PAUSE_S: Final = 0.001
"""Unix sockets have no pause: they queue ten packets (net.unix.max_dgram_qlen), then their senders wait or lose."""

PACKET_LIMIT: Final = 8_192
"""Bytes. DogStatsD clients send no larger packets (datadogpy: 8,192 over a unix socket, 1,432 over UDP)."""

RECEIVE_BUFFER: Final = 1_048_576
"""Bytes that the kernel queues for a UDP socket: some 2,700 packets, or 50 ms at 50,000 a second."""

SO_RCVBUFFORCE: Final = 33
SO_MEMINFO: Final = 55
MEMINFO: Final = struct.Struct("=9I")
"""Constants of Linux (asm-generic/socket.h, linux/sock_diag.h) that ``socket`` lacks. The last field counts drops."""


class Datagrams:
    """Passes the reports in StatsD packets to ``offer``, which returns False when too many reports are waiting.

    ``on_failure`` takes the error of a socket that cannot be read. ``prefix`` is that of the app's StatsD client;
    ``on_advice`` takes a sentence, once, if the names that come have another.
    Counts: ``packets``, ``lines``, ``unreadable`` lines, ``truncated`` packets (over 8 KiB; nothing in them counts)
    and reports that ``offer`` has ``refused``.
    """

    def __init__(
        self,
        offer: Callable[[Sequence[Report]], bool],
        *,
        on_failure: Callable[[Exception], None],
        on_advice: Callable[[str], None] = lambda _: None,
        prefix: str = "",
    ) -> None:
        self.addresses: list[str] = []
        self.packets = self.lines = self.unreadable = self.truncated = self.refused = 0
        self._offer = offer
        self._on_failure = on_failure
        self._on_advice = on_advice
        self._reader = PacketReader(prefix)
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._drops: dict[socket.socket, int] = {}
        self._dropped = 0

    async def open_udp(self, host: str, port: int) -> None:
        """Receive on every address of ``host``; OSError if that is not possible."""
        loop = asyncio.get_running_loop()
        for family, kind, protocol, _, address in await loop.getaddrinfo(host.encode(), port, type=socket.SOCK_DGRAM):
            opened = socket.socket(family, kind, protocol)
            try:
                if family == socket.AF_INET6:
                    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _enlarge_buffer(opened)
                opened.bind(address)
            except OSError:
                opened.close()
                raise
            self._open(opened)

    async def open_unix(self, path: str) -> None:
        """Receive on a unix socket that its owner and group may use; OSError if that is not possible."""
        remove_stale(path)
        self._open(bind_unix(path, socket.SOCK_DGRAM))

    def close(self) -> None:
        """Stop receiving, and remove the socket's file; the counts stay. A second call does nothing."""
        self._dropped = self.kernel_drops
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        while self._drops:
            opened, _ = self._drops.popitem()
            address = address_of(opened)
            asyncio.get_running_loop().remove_reader(opened.fileno())
            opened.close()
            if address.startswith("/"):
                with suppress(OSError):
                    remove_stale(address)

    @property
    def kernel_drops(self) -> int:
        """Packets that the kernel has dropped from full buffers; costs a system call for each socket."""
        for opened, before in self._drops.items():
            self._drops[opened] = now = _drops(opened, before)
            self._dropped += (now - before) % 2**32  # the kernel's counter has 32 bits
        return self._dropped

    @property
    def counts(self) -> dict[str, int]:
        """Packets, lines, and losses by reason."""
        return {
            "packets": self.packets,
            "lines": self.lines,
            "unreadable": self.unreadable,
            "truncated": self.truncated,
            "refused": self.refused,
            "kernel": self.kernel_drops,
        }

    def _open(self, opened: socket.socket) -> None:
        opened.settimeout(0)
        self._drops[opened] = _drops(opened, 0)
        self.addresses.append(address_of(opened))
        self._watch(opened)

    def _watch(self, opened: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(opened.fileno(), self._readable, opened)

    def _readable(self, opened: socket.socket) -> None:
        if self._read(opened) and opened.family != socket.AF_UNIX:
            asyncio.get_running_loop().remove_reader(opened.fileno())
            self._pause(opened)

    def _pause(self, opened: socket.socket) -> None:
        self._pauses[opened] = asyncio.get_running_loop().call_later(PAUSE_S, self._resume, opened)

    def _resume(self, opened: socket.socket) -> None:
        """Read what has come within a pause; watch the socket again if that is nothing, or more than a batch."""
        before = self.packets
        if self._read(opened) and self.packets > before:
            self._pause(opened)
        else:
            del self._pauses[opened]
            self._watch(opened)

    def _read(self, opened: socket.socket) -> bool:
        """Receive and report a batch of packets; whether no more of them wait."""
        packets: dict[bytes, int] = {}
        is_emptied = False
        try:
            self._receive(opened, packets)
        except BlockingIOError:
            is_emptied = True
        except OSError as error:
            self._on_failure(error)
        self._report(packets)
        return is_emptied

    def _receive(self, opened: socket.socket, packets: dict[bytes, int]) -> None:
        """Receive a batch of packets, and count equal ones; BlockingIOError when there are no more."""
        bytes_left = BATCH_BYTES
        for _ in range(BATCH):
            packet = opened.recv(PACKET_LIMIT + 1)
            self.packets += 1
            if len(packet) > PACKET_LIMIT:
                self.truncated += 1
            elif packet in packets:
                packets[packet] += 1
            else:
                packets[packet] = 1
                bytes_left -= len(packet)
                if bytes_left <= 0:
                    return

    def _report(self, packets: dict[bytes, int]) -> None:
        batch = self._reader.read(packets)
        self.lines += batch.lines
        self.unreadable += batch.unreadable
        if batch.advice:
            self._on_advice(batch.advice)
        if batch.reports and not self._offer(batch.reports):
            self.refused += len(batch.reports)


def _enlarge_buffer(opened: socket.socket) -> None:
    """Ask for the receive buffer, beyond the system's limit if permitted."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


def _drops(opened: socket.socket, before: int) -> int:
    """The kernel's count of drops; ``before`` if the kernel has none."""
    try:
        return int(MEMINFO.unpack(opened.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMINFO.size))[-1])
    except (OSError, struct.error):
        return before
