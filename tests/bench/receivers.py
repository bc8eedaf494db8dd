"""The baselines of ``datagrams.py``: other receivers of StatsD packets.

``python -m bench.receivers blocking|endpoint ADDRESS SECONDS`` receives for this long after a warm-up, and prints
``Received`` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from bench.flood import split

RECEIVE_BUFFER: Final = 1_048_576
SO_RCVBUFFORCE: Final = 33
WARM_UP_S: Final = 0.3


@dataclass(frozen=True)
class Received:
    """Received packets, the duration, and the CPU time of the process."""

    packets: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.packets / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.packets) * 1e6


def blocking(opened: socket.socket, seconds: float) -> Received:
    """A loop over ``recv`` that parses name, value and type, and counts: the fastest in plain Python."""
    counts: dict[bytes, int] = {}
    receive = opened.recv

    def run(seconds: float) -> int:
        packets = 0
        ends_at = time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            for _ in range(64):
                name, _, rest = receive(65_536).partition(b":")
                value, _, rest = rest.partition(b"|")
                if rest.partition(b"|")[0] == b"c":
                    counts[name] = counts.get(name, 0) + int(value)
            packets += 64
        return packets

    receive(65_536)
    run(WARM_UP_S)
    begun, cpu_s = time.perf_counter(), time.process_time()
    packets = run(seconds)
    return Received(packets, time.perf_counter() - begun, time.process_time() - cpu_s)


class _Counting(asyncio.DatagramProtocol):
    """Parses and counts as ``blocking`` does."""

    def __init__(self) -> None:
        self.packets = 0
        self.counts: dict[bytes, int] = {}
        self.begun = asyncio.Event()

    def datagram_received(self, data: bytes, _address: object) -> None:
        name, _, rest = data.partition(b":")
        value, _, rest = rest.partition(b"|")
        if rest.partition(b"|")[0] == b"c":
            self.counts[name] = self.counts.get(name, 0) + int(value)
        self.packets += 1
        self.begun.set()


async def _endpoint(opened: socket.socket, seconds: float) -> Received:
    opened.settimeout(0)
    counting = _Counting()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: counting, sock=opened)
    await counting.begun.wait()
    await asyncio.sleep(WARM_UP_S)
    begun, cpu_s, before = time.perf_counter(), time.process_time(), counting.packets
    await asyncio.sleep(seconds)
    return Received(counting.packets - before, time.perf_counter() - begun, time.process_time() - cpu_s)


def endpoint(opened: socket.socket, seconds: float) -> Received:
    """The datagram endpoint of asyncio."""
    return asyncio.run(_endpoint(opened, seconds))


RECEIVERS: Final[dict[str, Callable[[socket.socket, float], Received]]] = {"blocking": blocking, "endpoint": endpoint}


def _bound(address: str) -> socket.socket:
    """A socket with the receive buffer of the sidecar."""
    is_path = address.startswith("/")
    opened = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET, socket.SOCK_DGRAM)
    with suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    if is_path:
        Path(address).unlink(missing_ok=True)
    opened.bind(address if is_path else split(address))
    return opened


if __name__ == "__main__":
    receiver, place, how_long = sys.argv[1:]
    with _bound(place) as receiving:
        sys.stdout.write(json.dumps(astuple(RECEIVERS[receiver](receiving, float(how_long)))))
