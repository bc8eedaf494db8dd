"""A connection that lives as long as the app: its end tells the sidecar that the app has gone."""

from __future__ import annotations

import _thread
import os
import socket
import time
from contextlib import suppress
from typing import Final

REQUEST: Final = b"POST /life HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
RETRY_S: Final = 1.0
ANSWER_S: Final = 5.0


def report_life(path: str = "") -> None:
    """Hold a connection to the sidecar's local unix socket from now on; a thread opens it again after a restart.

    ``path`` is ``ARBITER_SOCKET`` of the environment unless given; without either nothing happens. Call it once, at the
    start: in a server of several processes before the first fork, since the children then hold the same connection and
    it ends with the last of them. Never blocks, never raises.
    """
    path = path or os.environ.get("ARBITER_SOCKET", "")
    if path:
        try:
            _thread.start_new_thread(_stay, (path,))
        except RuntimeError:  # no more threads: the sidecar will not learn of the end this way
            return


def _stay(path: str) -> None:
    while True:
        with suppress(OSError, ValueError):  # ValueError: a path with a zero byte
            _hold(path)
        time.sleep(RETRY_S)


def _hold(path: str) -> None:
    """Return when the sidecar ends the connection, or OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        connection.sendall(REQUEST)
        if connection.recv(4096):
            connection.settimeout(None)
            while connection.recv(4096):
                pass
