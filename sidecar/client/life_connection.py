"""A connection that lasts as long as the app: its end shows the sidecar that the app has ended."""

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
    """Hold a connection to the sidecar's local unix socket; a thread opens it again after a restart of the sidecar.

    ``path`` is by default ``ARBITER_SOCKET`` of the environment; without a path nothing happens. Call it once at the
    start. In a server of several processes call it before the first fork: the children then share the connection, and
    it ends with the last of them. Never blocks, never raises.
    """
    path = path or os.environ.get("ARBITER_SOCKET", "")
    if path:
        try:
            _thread.start_new_thread(_keep_connected, (path,))
        except RuntimeError:  # no more threads: the sidecar does not learn of the end
            return


def _keep_connected(path: str) -> None:
    while True:
        with suppress(OSError, ValueError):  # ValueError: a path with a zero byte
            _connect(path)
        time.sleep(RETRY_S)


def _connect(path: str) -> None:
    """Connect, and return when the sidecar ends the connection. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        connection.sendall(REQUEST)
        if connection.recv(4096):
            connection.settimeout(None)
            while connection.recv(4096):
                pass
