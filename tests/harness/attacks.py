"""Hostile clients in another process: many connections, opened again when the sidecar closes them.

``python -m harness.attacks ATTACK HOST PORT`` prints ``ready`` and attacks until its input ends.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final, NamedTuple, Self

from harness.child import python_env

BLOCK: Final = 64 * 1024
DATAGRAM: Final = 60_000
MOST_S: Final = 1_200.0


class Attack(NamedTuple):
    """What each connection sends: ``first``, and then ``again`` without end. ``reads``: it reads the answers.

    ``words``: the reasons by which ``listener`` counts the refusals. To ``statsd`` it sends datagrams.
    """

    listener: str
    connections: int
    first: bytes
    again: bytes = b""
    reads: bool = False
    words: tuple[str, ...] = ("crowded",)
    source: str = "127.0.0.1"
    """The address that it comes from."""


def _request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def _errors(reports: list[dict[str, str]]) -> bytes:
    body = json.dumps(reports).encode()
    return _request("POST /errors", "Content-Type: application/json", f"Content-Length: {len(body)}") + body


_UPGRADE: Final = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: YQ==", "Sec-WebSocket-Version: 13")

ATTACKS: Final = {
    "upgrade": Attack("public", 8, _request("GET /health", *_UPGRADE), b"x", words=("upgrade",)),
    "upgrade_behind_a_body": Attack(
        "local", 8, _request("POST /errors", *_UPGRADE, "Content-Length: 100000"), b"x", words=("upgrade",)
    ),
    "pages_unread": Attack("public", 20, b"", _request("GET /metrics"), words=()),
    "polls_unread": Attack("public", 120, b"", _request("GET /health"), words=()),
    "verdicts_unread": Attack("local", 120, b"", _request("GET /verdict"), words=()),
    "polls_pipelined": Attack("public", 120, b"", _request("GET /health"), reads=True, words=()),
    "chunks_local": Attack(
        "local", 120, _request("POST /errors", "Transfer-Encoding: chunked"), b"1\r\nx\r\n", words=("chunks",)
    ),
    "endless_head": Attack("public", 120, b"GET /health HTTP/1.1\r\n", b"A: b\r\n", words=("not_http",)),
    "endless_body": Attack(
        "local", 120, _request("POST /errors", "Content-Length: 999999999999"), b"x", words=("too_large",)
    ),
    "bodies_held": Attack("local", 400, _request("POST /errors", "Content-Length: 65536") + b"x" * 65_000),
    "idle": Attack("public", 400, b""),
    "idle_elsewhere": Attack("public", 1_000, b"", source="127.0.0.2"),
    "noise": Attack("public", 60, b"", b"\x16\x03\x01\x02\x00", words=("not_http",)),
    "restarts": Attack(
        "local", 32, b"", _errors([{"app_start": f"boot-{at}"} for at in range(1000)]), reads=True, words=()
    ),
    "agent": Attack("agent", 300, b"", reads=True, words=()),
    "agent_unread": Attack("agent", 300, b"x" * 100, words=()),
    "large_datagrams": Attack(
        "statsd", 8, b"", b"".join(b"errors:1|c|#kind:k%d\n" % at for at in range(350)), words=()
    ),
    "small_datagrams": Attack("statsd", 8, b"errors:x|c", words=()),
}


class _Client:
    def __init__(self, attack: Attack, address: tuple[str, int]) -> None:
        block = attack.again * (1 + BLOCK // len(attack.again)) if attack.again else b""
        is_datagram = attack.listener == "statsd"
        self._rest = memoryview(attack.first)
        self._again = (
            self._rest if is_datagram and not block else memoryview(block)[: DATAGRAM if is_datagram else None]
        )
        self.socket = socket.socket(type=socket.SOCK_DGRAM if is_datagram else socket.SOCK_STREAM)
        self.socket.settimeout(0)
        self.socket.bind((attack.source, 0))
        with suppress(BlockingIOError):
            self.socket.connect(address)
        self.events = select.EPOLLOUT | (select.EPOLLIN if attack.reads or not self._again else 0)

    def go_on(self, events: int) -> int | None:
        """The events to wait for next; None when the connection was closed."""
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


def attack(what: Attack, address: tuple[str, int]) -> None:
    """Attack until standard input ends."""
    poll, clients = select.epoll(), dict[int, _Client]()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    ends_at = time.monotonic() + MOST_S
    while time.monotonic() < ends_at:
        while len(clients) < what.connections:
            client = _Client(what, address)
            clients[client.socket.fileno()] = client
            poll.register(client.socket, client.events)
        for fd, events in poll.poll(0.1):
            if fd == sys.stdin.fileno():
                return
            client = clients[fd]
            wanted = client.go_on(events)
            if wanted is None:
                del clients[fd]
                client.socket.close()
            else:
                poll.modify(fd, wanted)


class Attacking:
    """An attack while the context lasts."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        command = [sys.executable, "-m", "harness.attacks", name, *map(str, address)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=python_env())

    def __enter__(self) -> Self:
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)


def _page(errors: str) -> bytes:
    """A metrics page with a counter at ``errors``, and with lines that take long if expressions are not linear."""
    lines = [f'errors_total{{path="{letter}"}} {errors}' for letter in "ab"]
    lines += [f'errors_total{{path="{"a" * 60_000}{at}"}} 1' for at in range(4)]
    content = "\n".join([*lines, ""]).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


class HostileServer(socketserver.ThreadingTCPServer):
    """An app with hostile metrics, and a Redis that announces a huge list to each command, while the context lasts."""

    daemon_threads = True
    selector: Final = 'errors_total{path=~"(.*a)*b",path=~".*a.*a.*c",path!~"(a|aa)+d"}'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HostileConnection)
        self.port: int = self.server_address[1]
        self.scrapes = self.commands = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _HostileConnection(socketserver.BaseRequestHandler):
    server: HostileServer

    def handle(self) -> None:
        with suppress(OSError):
            while received := self.request.recv(BLOCK):
                if received.startswith(b"GET "):
                    self.server.scrapes += 1
                    self.request.sendall(_page(("0", "1.7e308", "Inf", "1")[self.server.scrapes % 4]))
                else:
                    self.server.commands += 1
                    self.request.sendall(b"*1000000000\r\n" * 100)


def main(name: str, host: str, port: str) -> None:
    """One attack."""
    os.nice(5)  # the listener is measured, not the queue for the processor
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_048, 2_048))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    attack(ATTACKS[name], (host, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
