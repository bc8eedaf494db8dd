"""The datagram sender: packets of one error each to one address, as fast as possible or at a fixed rate.

``python flood.py ADDRESS equal|different [COUNT RATE]``, ADDRESS being ``HOST:PORT`` or a path. Without a count it
sends until its standard input is closed. It prints the number of packets that the kernel accepted.
"""

from __future__ import annotations

import ctypes
import select
import socket
import sys
import time
from contextlib import suppress
from typing import ClassVar, Final

EQUAL: Final = b"errors:1|c"
DIFFERENT: Final = 16_384
"""Number of different packets, sent in turn: many more than any receiver remembers."""

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


def packets(variety: str) -> list[bytes]:
    """What is sent in turn: ``different`` packets have a tag of the app's own, such as the id of a request."""
    numbers = range(DIFFERENT)
    return [b"errors:1|c|#kind:redis,request:%d" % one for one in numbers] if variety == "different" else [EQUAL]


def flood(opened: socket.socket, contents: list[bytes]) -> int:
    """Send until standard input is closed, with ``sendmmsg``: one call a packet would be too slow."""
    contents = contents * (AT_ONCE if len(contents) == 1 else 1)
    pieces = [_Piece(packet, len(packet)) for packet in contents]
    every = [_Header(pieces=ctypes.pointer(piece), piece_count=1) for piece in pieces]
    messages = (_Message * len(every))(*map(_Message, every))
    send, size = ctypes.CDLL(None).sendmmsg, ctypes.sizeof(_Message)
    starts = [ctypes.byref(messages, first * size) for first in range(0, len(every), AT_ONCE)]
    sent, turn, ends_at = 0, 0, time.monotonic() + MOST_S
    while time.monotonic() < ends_at and not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(20):
            # Negative: no receiver listens at this port now.
            sent += max(0, send(opened.fileno(), starts[turn % len(starts)], AT_ONCE, 0))
            turn += 1
    return sent


def paced(opened: socket.socket, contents: list[bytes], count: int, rate: float) -> int:
    """Send ``count`` packets, evenly spaced."""
    clock = time.perf_counter
    begun = clock()
    for sent in range(count):
        while (clock() - begun) * rate < sent:
            pass
        opened.send(contents[sent % len(contents)])
    return count


if __name__ == "__main__":
    place, which, *how = sys.argv[1:]
    chosen = packets(which)
    with connected(place) as sender:
        taken = paced(sender, chosen, int(how[0]), float(how[1])) if how else flood(sender, chosen)
    sys.stdout.write(f"{taken}\n")
