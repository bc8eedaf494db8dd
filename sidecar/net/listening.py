"""Sockets that listen, and accept on the turns of the event loop: at TCP addresses, and at a unix socket file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.net.sockets import address_of, bind_tcp, bind_unix, remove_stale
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate

BACKLOG: Final = 1024
"""Connections that wait to be accepted."""

ACCEPTS: Final = 16
"""Connections that are accepted at one socket in one turn."""

NO_DESCRIPTOR_S: Final = 0.1


class Listening:
    """``take(connection, host)`` gets each new connection, which never blocks; ``host`` is ``""`` for a unix socket.

    ``gate`` says which clients are taken, None: all. ``on_ready`` is called when a connection waits; it calls
    ``accept``, at once or with other work. ``on_full``: no descriptor is left; a socket then pauses, and the connection
    that waits is accepted later.
    """

    def __init__(
        self,
        take: Callable[[socket.socket, str], None],
        *,
        gate: AddressGate | None = None,
        on_ready: Callable[[], None] | None = None,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self.addresses: list[str] = []
        self._take = take
        self._gate = gate
        self._on_ready = on_ready or self.accept
        self._on_full = on_full
        self._loop = asyncio.get_running_loop()
        self._open: list[socket.socket] = []
        self._accepting: list[socket.socket] = []
        """The open sockets without those that pause."""

    async def open_tcp(self, host: str, port: int) -> None:
        """Listen on ``host:port``; OSError when that is not possible."""
        for opened in await in_thread(bind_tcp, host, port):
            self._listen(opened)

    async def open_unix(self, path: str) -> None:
        """Listen on a unix socket that its owner and group may use; OSError when that is not possible."""
        remove_stale(path)
        self._listen(bind_unix(path))

    def accept(self) -> None:
        """Take the connections that wait."""
        for opened in self._accepting[:]:
            for _ in range(ACCEPTS):
                try:
                    connection, address = opened.accept()
                except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                    break
                except OSError:  # no descriptor is left
                    self._pause(opened)
                    break
                connection.settimeout(0)
                host = address[0] if isinstance(address, tuple) else ""
                if self._gate is None or self._gate.admits(connection, host):
                    self._take(connection, host)
                else:
                    connection.close()

    def stop(self) -> None:
        """Close the sockets, and remove their files. A second call does nothing; connections stay open."""
        self._accepting.clear()
        while self._open:
            opened = self._open.pop()
            self._loop.remove_reader(opened)
            is_file, address = opened.family == socket.AF_UNIX, address_of(opened)
            opened.close()
            if is_file:
                with suppress(OSError):
                    remove_stale(address)

    def _listen(self, opened: socket.socket) -> None:
        self._open.append(opened)
        opened.listen(BACKLOG)
        opened.settimeout(0)
        self.addresses.append(address_of(opened))
        self._resume(opened)

    def _pause(self, opened: socket.socket) -> None:
        self._accepting.remove(opened)
        self._loop.remove_reader(opened)
        self._loop.call_later(NO_DESCRIPTOR_S, self._resume, opened)
        self._on_full()

    def _resume(self, opened: socket.socket) -> None:
        if opened in self._open:
            self._accepting.append(opened)
            self._loop.add_reader(opened, self._on_ready)
