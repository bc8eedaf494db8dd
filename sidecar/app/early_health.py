"""Waits for the settings of ``run``, and then answers health polls while the rest of the daemon is imported.

A thread answers plain polls with "up", as the daemon would: it has read that the state file has no latch, and nothing
can cull the container before the daemon runs. All other requests wait for the daemon, and so do the polls of a
container that was culled, or whose state file cannot be read. This module must import nothing large: neither asyncio
nor aiohttp.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from sidecar.config import addresses
from sidecar.config.slices import Config, config_of
from sidecar.controller import state_file
from sidecar.net.request_head import END, BadHeadError, RequestHead, parse
from sidecar.net.sockets import bind_tcp

PATHS: Final = frozenset({"/health", "/health/haproxy", "/health/nomad", "/health/restart"})
METHODS: Final = frozenset({"GET", "HEAD"})
HEAD_BYTES: Final = 4096
MAX_WAITING: Final = 16
"""Accepted connections that wait for the daemon; the others wait in the backlog. The imports need descriptors, too."""

POLL_MS: Final = 5
STOP_S: Final = 1.0
SWITCH_S: Final = 0.0005
"""Time after which an import gives way to a poll, a tenth of the default."""


class EarlyHealth(threading.Thread):
    """The public listener, until the daemon takes it over. ``source``: the pipe with the settings as JSON."""

    def __init__(self, source: int) -> None:
        super().__init__(name="early-health", daemon=True)
        self._source = source
        self._config: Config | None = None
        self._is_read = threading.Event()
        self._sockets: list[socket.socket] = []
        self._waiting: dict[int, socket.socket] = {}
        self._is_bound = threading.Event()
        self._is_stopping = threading.Event()
        self._is_over = threading.Event()
        self._interval_s = sys.getswitchinterval()

    def run(self) -> None:
        """Read the settings, bind the public listener and answer polls."""
        try:
            with os.fdopen(self._source, "rb") as pipe:
                answer = pipe.read()
            self._config = config_of(json.loads(answer)) if answer else None
        finally:
            self._is_read.set()
        if self._config is not None:
            with suppress(Exception):  # the daemon meets the same failure, and reports it
                self._serve(self._config)
        self._is_over.set()

    def config(self) -> Config | None:
        """Wait for the settings; None if the child wrote none."""
        self._is_read.wait()
        return self._config

    def stop(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Stop answering. Returns the bound sockets, and the connections that wait for an answer of the daemon.

        Only after ``config`` has returned settings.
        """
        self._is_bound.wait()
        self._is_stopping.set()
        self._is_over.wait(STOP_S)  # not for ever: the disk with the state file may hang
        sys.setswitchinterval(self._interval_s)
        return self._sockets, [*self._waiting.values()]

    def _serve(self, config: Config) -> None:
        try:
            self._sockets = _bind(config)
        finally:
            self._is_bound.set()
        if self._sockets and not _has_latch(config) and not self._is_stopping.is_set():
            self._answer_polls()

    def _answer_polls(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        poll, listening = select.poll(), {opened.fileno(): opened for opened in self._sockets}
        for opened in self._sockets:
            opened.settimeout(0)
            opened.listen()
            poll.register(opened, select.POLLIN)
        while not self._is_stopping.is_set():
            for number, _ in poll.poll(POLL_MS):
                if number in listening:
                    with suppress(BlockingIOError, ConnectionAbortedError):
                        connection, _address = listening[number].accept()
                        connection.settimeout(0)
                        self._waiting[connection.fileno()] = connection
                        poll.register(connection, select.POLLIN)
                else:
                    poll.unregister(number)
                    if _answer(self._waiting[number]):
                        self._waiting.pop(number).close()
            if len(self._waiting) >= MAX_WAITING:
                return


def _bind(config: Config) -> list[socket.socket]:
    """The sockets of the public listener; none if others may hold them, or if not everybody may ask without TLS."""
    if config.run_lock.run_lock or config.server.public_allow or config.tls.covers("public"):
        return []
    return bind_tcp(*addresses.split(config.server.public_listen))


def _has_latch(config: Config) -> bool:
    directory = config.state_directory
    return bool(directory) and state_file.has_latch(state_file.path_of(directory, config.identity.app))


def _answer(connection: socket.socket) -> bool:
    """Answer a plain poll; False, with every byte left for the daemon, if it is anything else."""
    try:
        received = connection.recv(HEAD_BYTES, socket.MSG_PEEK)
        if received.find(END) + len(END) != len(received) or len(received) < len(END):
            return not received
        head = parse(received)
        if head.target not in PATHS or head.method not in METHODS or not head.is_plain:
            return False
        connection.recv(len(received))
        connection.send(_up(head))
    except BadHeadError:
        return False
    except OSError:
        pass  # the client has gone
    return True


def _up(head: RequestHead) -> bytes:
    """The daemon's answer to a poll when it knows nothing about the container."""
    body = "up\n"
    lines = (
        f"HTTP/1.{head.minor} 200 OK",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        "Server: health-arbiter",
        "Connection: close",
        "",
        body if head.method == "GET" else "",
    )
    return "\r\n".join(lines).encode()
