"""Loopback ports for servers that cannot bind port 0 and tell its number.

A port is reserved until this process ends, or until it has reserved ``_MOST`` more: the reservation is an abstract
unix socket (unix(7)) named after the port, so other workers and other test runs on this machine choose other ports.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOWEST: Final = 12_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MOST: Final = 400
_reserved: Final = deque[int]()
"""File descriptors of the reservations, the oldest first."""


def free_port() -> int:
    """A reserved loopback port that is free for TCP and UDP.

    It lies below the range that the kernel gives to outgoing connections. Otherwise a client of a stopped server could
    be given the server's port, or even connect to itself.
    """
    highest = int(_EPHEMERAL.read_text().split()[0])
    for _ in range(1000):
        port = _LOWEST + secrets.randbelow(highest - _LOWEST)
        with suppress(OSError):
            return _reserve(port)
    raise AssertionError("no free port in 1000 attempts")


def free_ports(count: int) -> list[int]:
    """Several such ports."""
    return [free_port() for _ in range(count)]


def is_open(port: int) -> bool:
    """Whether a loopback server accepts connections at this port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _reserve(port: int) -> int:
    """Reserve the port; OSError when another process has it, or has reserved it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reservation:
        reservation.bind(f"\0health-arbiter-test-port-{port}")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", port))
        _reserved.append(reservation.detach())
    if len(_reserved) > _MOST:
        os.close(_reserved.popleft())
    return port
