"""Clients that mean harm, from a process of their own: as many connections as they like, opened again when cut.

``python -m harness.attacks ATTACK HOST PORT`` goes on until its input ends, and then prints how often it was cut.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

BLOCK: Final = 64 * 1024
MOST_S: Final = 1_200.0
REST_S: Final = 0.002
_TESTS: Final = Path(__file__).parents[1]


class Attack(NamedTuple):
    """What each of its connections sends: ``first``, and then ``again`` without end. Answers are read or not.

    A connection that neither sends nor reads any more stays as it is. ``words``: what the door counts.
    """

    door: str
    connections: int
    first: bytes
    again: bytes = b""
    reads: bool = False
    words: tuple[str, ...] = ("crowded",)


def _request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


_UPGRADE: Final = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: YQ==", "Sec-WebSocket-Version: 13")
_CHUNKS: Final = ("Transfer-Encoding: chunked",)
_ONE_BYTE: Final = b"1\r\nx\r\n"

ATTACKS: Final = {
    "upgrade": Attack("public", 8, _request("GET /health", *_UPGRADE), b"x", words=("upgrade",)),
    "upgrade_local": Attack("local", 8, _request("GET /verdict", *_UPGRADE), b"x", words=("upgrade",)),
    "upgrade_behind_a_body": Attack(
        "local", 8, _request("POST /errors", *_UPGRADE, "Content-Length: 100000"), b"x", words=("upgrade",)
    ),
    "pages_unread": Attack("public", 20, b"", _request("GET /metrics"), words=()),
    "polls_unread": Attack("public", 120, b"", _request("GET /health"), words=()),
    "verdicts_unread": Attack("local", 120, b"", _request("GET /verdict"), words=()),
    "polls_pipelined": Attack("public", 120, b"", _request("GET /health"), reads=True, words=()),
    "pages_pipelined": Attack("public", 20, b"", _request("GET /metrics"), reads=True, words=()),
    "chunks_public": Attack("public", 120, _request("POST /health", *_CHUNKS), _ONE_BYTE, words=("body",)),
    "chunks_local": Attack("local", 120, _request("POST /errors", *_CHUNKS), _ONE_BYTE, words=("chunks",)),
    "endless_head": Attack("public", 120, b"GET /health HTTP/1.1\r\n", b"A: b\r\n", words=("not_http",)),
    "endless_line": Attack("public", 120, b"GET /", b"x", words=("not_http",)),
    "endless_body": Attack(
        "local", 120, _request("POST /errors", "Content-Length: 999999999999"), b"x", words=("too_large",)
    ),
    "bodies_held": Attack("local", 400, _request("POST /errors", "Content-Length: 65536") + b"x" * 65_000),
    "body_on_get": Attack("public", 60, _request("GET /health", "Content-Length: 99999999"), b"x", words=("body",)),
    "idle": Attack("public", 400, b""),
    "half_heads": Attack("public", 400, b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 2_000),
    "noise": Attack("public", 60, b"", b"\x16\x03\x01\x02\x00", words=("not_http",)),
    "agent": Attack("agent", 300, b"", reads=True, words=()),
    "agent_unread": Attack("agent", 300, b"x" * 100, words=()),
}


class _Client:
    def __init__(self, attack: Attack, address: tuple[str, int]) -> None:
        block = attack.again * (1 + BLOCK // len(attack.again)) if attack.again else b""
        self._rest = memoryview(attack.first)
        self._again = memoryview(block)
        self.socket = socket.socket()
        self.socket.settimeout(0)
        with suppress(BlockingIOError):
            self.socket.connect(address)
        self.events = select.EPOLLOUT | (select.EPOLLIN if attack.reads or not block else 0)

    def go_on(self, events: int) -> int | None:
        """The events to wait for next; None when it was cut."""
        try:
            if events & (select.EPOLLHUP | select.EPOLLERR):
                return None
            if events & select.EPOLLIN and not self.socket.recv(BLOCK):
                return None
            if events & select.EPOLLOUT:
                return self._send()
        except BlockingIOError:
            pass
        except OSError:
            return None
        return self.events

    def _send(self) -> int:
        self._rest = self._rest or self._again
        if self._rest:
            self._rest = self._rest[self.socket.send(self._rest) :]
        if not self._rest and not self._again:
            self.events = select.EPOLLIN
        return self.events


def attack(what: Attack, address: tuple[str, int]) -> int:
    """Go on until standard input ends; how many connections were cut."""
    poll, clients, cut = select.epoll(), dict[int, _Client](), 0
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    ends_at = time.monotonic() + MOST_S
    while time.monotonic() < ends_at:
        while len(clients) < what.connections:
            client = _Client(what, address)
            clients[client.socket.fileno()] = client
            poll.register(client.socket, client.events)
        for fd, events in poll.poll(0.1):
            if fd == sys.stdin.fileno():
                return cut
            client = clients[fd]
            wanted = client.go_on(events)
            if wanted is None:
                del clients[fd]
                client.socket.close()
                cut += 1
            else:
                poll.modify(fd, wanted)
    return cut


class Attacking:
    """An attack that goes on while the context lasts. ``cut`` is known after that."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.cut = 0
        paths = os.pathsep.join((str(_TESTS), str(_TESTS.parent)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.attacks", name, address[0], str(address[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def __enter__(self) -> Self:
        assert self._process.stdout
        assert self._process.stdout.readline() == b"attacking\n"
        return self

    def __exit__(self, *_: object) -> None:
        output, _error = self._process.communicate(timeout=30)
        self.cut = int(output)


def main(name: str, host: str, port: str) -> None:
    """One attack."""
    os.nice(5)  # it is the door that is measured, not the queue for the processor
    sys.stdout.write("attacking\n")
    sys.stdout.flush()
    sys.stdout.write(f"{attack(ATTACKS[name], (host, int(port)))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
