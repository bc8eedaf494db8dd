"""The connection that tells of the app's end, held by a process of its own to a listener of the test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.client.life_connection import REQUEST

ROOT = Path(__file__).parents[2]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WAIT_S = 60.0

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def path(run_dir: Path) -> str:
    return str(run_dir / "local.sock")


@pytest.fixture
def start(path: str) -> Iterator[Start]:
    """Starts an app that reports its life, and then does what it is asked until its standard input ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(then: str = "") -> subprocess.Popen[bytes]:
        code = f"import os, sys\nfrom sidecar.client import report_life\nreport_life()\n{then}\nsys.stdin.read()"
        app = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(ROOT), "ARBITER_SOCKET": path},
            stdin=subprocess.PIPE,
        )
        started.append(app)
        return app

    yield start
    for app in started:
        app.kill()
        app.wait(WAIT_S)
        assert app.stdin
        app.stdin.close()


def _listen(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    listener.settimeout(WAIT_S)
    return listener


def _accept(listener: socket.socket) -> socket.socket:
    """The next connection that asks to be held, answered as the sidecar does."""
    connection, _ = listener.accept()
    connection.settimeout(WAIT_S)
    assert connection.recv(4096) == REQUEST
    connection.sendall(HEAD)
    return connection


def _is_open(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(WAIT_S)


def _has_ended(connection: socket.socket) -> bool:
    """Whether it ends, which is waited for. An app that is killed before it has read our answer resets it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connection_ends_with_the_app_and_is_opened_again_for_a_new_sidecar(path: str, start: Start) -> None:
    with _listen(path) as listener:
        app = start()
        _accept(listener).close()
        with _accept(listener) as connection:
            assert _is_open(connection)
            app.kill()
            assert _has_ended(connection)


def test_connection_ends_with_the_last_process_of_the_app(path: str, start: Start) -> None:
    with _listen(path) as listener:
        app = start("sys.stdin.readline()\nif os.fork(): os._exit(0)")
        assert app.stdin
        with _accept(listener) as connection:
            app.stdin.write(b"fork\n")
            app.stdin.flush()
            assert app.wait(WAIT_S) == 0
            assert _is_open(connection)
            app.stdin.close()
            assert _has_ended(connection)
