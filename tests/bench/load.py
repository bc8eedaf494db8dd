"""The load generator: keep-alive connections with one request in flight each, in its own process.

``python -m bench.load ORDER`` takes ``Order`` as a JSON object. It prints ``ready`` after the warm-up, and the tally as
JSON at the end of its time or of its standard input. The status of every answer is checked.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bench import wire

if TYPE_CHECKING:
    import socket

MOST_S = 120.0


@dataclass(frozen=True)
class Order:
    """What to send and where. ``rate``: requests a second, evenly spaced; 0: the next one after each answer."""

    address: wire.Address
    request: str
    status: int
    connections: int
    rate: float
    warmup_s: float
    seconds: float


@dataclass(frozen=True)
class Tally:
    """The result: ``wrong`` answers by status, connections that the server ``cut``, and requests that were ``unsent``
    because no connection was free."""

    answers: int
    seconds: float
    wrong: dict[str, int]
    cut: int
    unsent: int


class Load:
    """Connections to one server, and the count of its answers."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._request = order.request.encode()
        self._expected = f"HTTP/1.1 {order.status} ".encode()
        self._epoll = select.epoll()
        self._connections: dict[int, socket.socket] = {}
        self._idle: deque[socket.socket] = deque()
        self._length = -1  # of the last whole answer, and most likely of the next
        self._answers = self._cut = self._unsent = 0
        self._wrong: Counter[str] = Counter()
        for _ in range(order.connections):
            self._idle.append(self._open())

    def run(self, seconds: float) -> Tally:
        """Send for this long, or until the end of standard input."""
        self._answers = self._cut = self._unsent = 0
        self._wrong.clear()
        begun = time.perf_counter()
        send = self._paced if self._order.rate else self._at_once
        send(begun + min(seconds, MOST_S))
        took = time.perf_counter() - begun
        return Tally(self._answers, took, dict(self._wrong), self._cut, self._unsent)

    def stop_at_end_of_input(self) -> None:
        """Watch standard input along with the connections."""
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)

    def _at_once(self, ends_at: float) -> None:
        connections = self._connections
        while self._idle:
            self._send(self._idle.popleft())
        while time.perf_counter() < ends_at:
            for fd, _ in self._epoll.poll(0.1):
                if fd not in connections:
                    return
                self._send(self._receive(fd))

    def _paced(self, ends_at: float) -> None:
        connections, idle = self._connections, self._idle
        gap = 1 / self._order.rate
        due = now = time.perf_counter()
        while now < ends_at:
            while due <= now:
                if idle:
                    self._send(idle.popleft())
                else:
                    self._unsent += 1
                due += gap
            # epoll counts in milliseconds, select in microseconds.
            if select.select([self._epoll], [], [], max(0.0, due - time.perf_counter()))[0]:
                for fd, _ in self._epoll.poll(0):
                    if fd not in connections:
                        return
                    idle.append(self._receive(fd))
            now = time.perf_counter()

    def _send(self, connection: socket.socket) -> None:
        try:
            connection.send(self._request)
        except OSError:
            self._replace(connection.fileno()).send(self._request)

    def _receive(self, fd: int) -> socket.socket:
        """Count an answer; the connection for the next request."""
        connection = self._connections[fd]
        try:
            answer = connection.recv(65536)
            if len(answer) != self._length or not answer.startswith(self._expected):
                self._read_on(connection, answer)
        except OSError:
            return self._replace(fd)
        self._answers += 1
        return connection

    def _read_on(self, connection: socket.socket, answer: bytes) -> None:
        """Read an answer that differs from the one before it: in pieces, or with another length or status."""
        while not wire.is_whole(answer):
            if not select.select([connection], [], [], wire.TIMEOUT_S)[0]:
                raise TimeoutError("half an answer")
            more = connection.recv(65536)
            if not more:
                raise ConnectionError("cut")
            answer += more
        self._length = len(answer)
        if not answer.startswith(self._expected):
            self._wrong[str(wire.status(answer))] += 1

    def _open(self) -> socket.socket:
        connection = wire.connect(self._order.address)
        connection.settimeout(0)
        self._epoll.register(connection, select.EPOLLIN)
        self._connections[connection.fileno()] = connection
        return connection

    def _replace(self, fd: int) -> socket.socket:
        self._cut += 1
        self._epoll.unregister(fd)
        self._connections.pop(fd).close()
        return self._open()

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.close()
        self._epoll.close()


def main() -> None:
    """One order, one tally."""
    values = json.loads(sys.argv[1])
    address = values.pop("address")
    order = Order(address=address if isinstance(address, str) else tuple(address), **values)
    load = Load(order)
    load.run(order.warmup_s)
    load.stop_at_end_of_input()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    tally = load.run(order.seconds)
    sys.stdout.write(json.dumps(asdict(tally)) + "\n")
    load.close()


if __name__ == "__main__":
    main()
