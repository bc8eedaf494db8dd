"""Free loopback ports."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from harness.waiting import eventually, wait_for

__all__ = ["eventually", "free_port", "free_ports", "is_open", "wait_for"]

_LOWEST = 12_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A loopback port that was free, for TCP and UDP, a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different free ports, chosen at random.

    They lie below the range that the kernel gives to outgoing connections: otherwise a client that knocks at
    a stopped server could take its port, or even connect to itself.
    """
    with ExitStack() as held:
        return [_hold_one(held) for _ in range(count)]


def is_open(port: int) -> bool:
    """Whether something on loopback accepts connections at this port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _hold_one(held: ExitStack) -> int:
    for port in islice(_candidates, 100):
        with contextlib.suppress(OSError):
            return _hold(held, port)
    raise AssertionError("no free port in 100 attempts")


def _hold(held: ExitStack, port: int) -> int:
    stream = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    stream.bind(("127.0.0.1", port))
    chosen = int(stream.getsockname()[1])
    datagram = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    datagram.bind(("127.0.0.1", chosen))
    return chosen


def _walk() -> Iterator[int]:
    """Every port of our part of the range in random order, over and over; 0, the kernel's choice, if there is none."""
    worker, workers = _place()
    ports = range(_LOWEST + worker, _lowest_ephemeral(), workers) or range(1)
    while True:
        yield from secrets.SystemRandom().sample(ports, len(ports))


def _place() -> tuple[int, int]:
    """Which of how many workers of pytest we are: no two of them must choose the same port before one binds it."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers, workers


def _lowest_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


# One walk for the whole run: many sidecars started at once must not be given the same port before they bind it.
_candidates = _walk()
