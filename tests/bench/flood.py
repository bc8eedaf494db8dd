"""The datagram sender: equal packets to one address, as fast as possible or at a fixed rate.

``python flood.py ADDRESS [COUNT RATE]``, ADDRESS being ``HOST:PORT`` or a path. Without a count it sends until its
standard input is closed. It prints the number of packets that the kernel accepted.
"""

from __future__ import annotations

import ctypes
import select
import socket
import sys
import time
from contextlib import suppress
from typing import ClassVar, Final

PACKET: Final = b"errors:1|c"
AT_ONCE: Final = 64
MOST_S: Final = 60.0


class _Piece(ctypes.Structure):
    """``struct iovec``."""

    _fields_: ClassVar = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    """``struct msghdr``."""

    _fields_: ClassVar = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("pieces", ctypes.POINTER(_Piece)),
        ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Message(ctypes.Structure):
    """``struct mmsghdr``."""

    _fields_: ClassVar = [("header", _Header), ("sent", ctypes.c_uint)]


def connected(address: str, wait_s: float = 10.0) -> socket.socket:
    """A connected socket; a path is tried until a receiver listens."""
    is_path = address.startswith("/")
    opened = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET, socket.SOCK_DGRAM)
    ends_at = time.monotonic() + wait_s
    while is_path and time.monotonic() < ends_at:
        with suppress(OSError):
            opened.connect(address)
            return opened
        time.sleep(0.01)
    opened.connect(address if is_path else split(address))
    return opened


def split(address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def flood(opened: socket.socket) -> int:
    """Send until standard input is closed, with ``sendmmsg``: one call a packet would be too slow."""
    piece = _Piece(PACKET, len(PACKET))
    header = _Header(pieces=ctypes.pointer(piece), piece_count=1)
    messages = (_Message * AT_ONCE)(*[_Message(header)] * AT_ONCE)
    send = ctypes.CDLL(None).sendmmsg
    sent, ends_at = 0, time.monotonic() + MOST_S
    while time.monotonic() < ends_at and not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(20):
            # Negative: no receiver listens at this port now.
            sent += max(0, send(opened.fileno(), messages, AT_ONCE, 0))
    return sent


def paced(opened: socket.socket, count: int, rate: float) -> int:
    """Send ``count`` packets, evenly spaced."""
    clock = time.perf_counter
    begun = clock()
    for sent in range(count):
        while (clock() - begun) * rate < sent:
            pass
        opened.send(PACKET)
    return count


if __name__ == "__main__":
    place, *how = sys.argv[1:]
    with connected(place) as sender:
        taken = paced(sender, int(how[0]), float(how[1])) if how else flood(sender)
    sys.stdout.write(f"{taken}\n")
