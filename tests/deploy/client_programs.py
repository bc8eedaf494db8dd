"""Programs of the clients in other languages: their runtimes, what they send, and the build of the one in Go."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import pytest

from harness.binaries import find
from harness.waiting import wait_for
from sidecar.inputs.statsd import PacketReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deploy.statsd_receiver import Receiver
    from harness.sidecar import Sidecar

TOP: Final = Path(__file__).parents[2]
CLIENTS: Final = TOP / "deploy" / "clients"


def runtime(name: str) -> str:
    """The program; the test is skipped without it."""
    program = find(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def run(command: list[str], environ: Mapping[str, str], cwd: Path = CLIENTS) -> str:
    """The output of a program on both streams; its exit code must be 0."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ARBITER_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def udp(listener: Receiver) -> dict[str, str]:
    return {"ARBITER_STATSD_LISTEN": listener.listen}


def counts_of(listener: Receiver, errors: int) -> dict[str, int]:
    """The totals once this many errors have arrived; every packet must be valid."""
    wait_for(lambda: sum(listener.totals().values()) >= errors, timeout_s=60, what=f"{errors} have come")
    assert PacketReader().read(dict.fromkeys(listener.packets, 1)).unreadable == 0
    return listener.totals()


def counted(sidecar: Sidecar) -> Counter[str]:
    """What a sidecar has counted: errors by kind, and requests."""
    evidence = sidecar.verdict()["evidence"]
    return Counter({**evidence["kinds"], "requests": evidence["requests"], "failed": evidence["failed"]})


Posted = tuple[int, list[tuple[str, bytes]]]
"""A loopback port, and path and body of every POST to it."""


@contextmanager
def answering(status: int) -> Iterator[Posted]:
    seen: list[tuple[str, bytes]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1], seen
        finally:
            server.shutdown()
            thread.join()
