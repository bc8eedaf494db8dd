"""The main's side of a takeover: it sends its sockets and its state to the standby over a private unix socket.

The main sends every listening socket once (SCM_RIGHTS, unix(7)), so they stay open in the standby when the main ends.
It sends its state whenever the state changes. The kernel delivers sent messages even if the main is killed. A message
is its length and a JSON object. Descriptors come with the first byte of the message that names them.

The main never waits for the standby: a standby that reads slowly misses older states and gets the newest one.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

SOCKET_NAME: Final = "handover.sock"
FORMAT: Final = 1
LENGTH: Final = struct.Struct("!I")
MAX_BYTES: Final = 16 << 20
MAX_DESCRIPTORS: Final = 100
"""Descriptors in one message; Linux takes 253."""

STATE: Final = "state"
READY: Final = b"R"
SEND_BUFFER: Final = 1 << 20
FLUSH_S: Final = 1.0
_UCRED: Final = struct.Struct("3i")


def socket_path(directory: Path) -> str:
    """Return the path of the socket on which the main waits for a standby."""
    return str(directory / SOCKET_NAME)


def message(what: str, **fields: object) -> bytes:
    """Encode one message."""
    content = json.dumps({"what": what, **fields}, separators=(",", ":")).encode()
    return LENGTH.pack(len(content)) + content


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as the same user."""
    _, user, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return bool(user == os.geteuid())


class HandoverServer:
    """Sends ``sockets()``, each with the name of its setting, and ``state()`` to the standby that connects.

    ``addresses`` are the addresses by setting: the standby keeps a socket only if its own address is the same. ``app``
    is ``service/instance``. There is one standby at a time: a new one replaces the last.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sockets: Callable[[], Sequence[tuple[int, str]]],
        addresses: Mapping[str, str],
        app: str,
        state: Callable[[], dict[str, Any] | None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._path = socket_path(directory)
        self._sockets = sockets
        self._addresses = dict(addresses)
        self._app = app
        self._state = state
        self._on_failure = on_failure
        self._listening: socket.socket | None = None
        self._standby: StandbyConnection | None = None

    @property
    def is_connected(self) -> bool:
        """Whether a standby is connected."""
        return self._standby is not None

    @property
    def is_ready(self) -> bool:
        """Whether the standby is ready to take over."""
        return self._standby is not None and self._standby.is_ready

    def open(self) -> None:
        """Listen for a standby. Replaces the socket that a killed main has left."""
        with suppress(FileNotFoundError):
            Path(self._path).unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            listening.bind(self._path)
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        listening.listen(4)
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept)

    def close(self, *, keep_path: bool = False) -> None:
        """Stop. For the standby the main then has ended. ``keep_path``: a successor may listen there."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            if not keep_path:
                with suppress(OSError):
                    Path(self._path).unlink()
        self._disconnect()

    def send_state(self) -> None:
        """Send the present state, if a standby is connected."""
        state = self._state() if self._standby is not None else None
        if state is not None and self._standby is not None:
            self._standby.send_newest(message(STATE, state=state))

    async def hand_over(self, connections: Sequence[tuple[str, socket.socket]]) -> None:
        """Send the last state and these connections, then order the standby to take over."""
        standby = self._standby
        if standby is None:
            return
        self.send_state()
        for begin in range(0, len(connections), MAX_DESCRIPTORS):
            if not await standby.flushed():
                break  # these connections end with the main
            batch = connections[begin : begin + MAX_DESCRIPTORS]
            names = [name for name, _ in batch]
            standby.send(message("connections", names=names), [connection.fileno() for _, connection in batch])
        standby.send(message("go"))
        await standby.flushed()

    def _accept(self) -> None:
        try:
            assert self._listening is not None  # noqa: S101 - the event loop has just found it readable
            connection, _ = self._listening.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._on_failure(error)
            return
        if not is_same_user(connection):
            connection.close()
            return
        self._disconnect()
        try:
            self._standby = StandbyConnection(connection, self._disconnect)
            self._send_sockets(self._standby)
            self.send_state()
        except OSError as error:
            self._on_failure(error)
            self._disconnect()

    def _send_sockets(self, standby: StandbyConnection) -> None:
        sockets = self._sockets()
        names = [name for _, name in sockets]
        standby.send(
            message("sockets", format=FORMAT, names=names, addresses=self._addresses, app=self._app),
            [descriptor for descriptor, _ in sockets],
        )

    def _disconnect(self) -> None:
        standby, self._standby = self._standby, None
        if standby is not None:
            standby.close()


class StandbyConnection:
    """The connection to one standby. ``on_end`` is called when the standby disconnects."""

    def __init__(self, connection: socket.socket, on_end: Callable[[], None]) -> None:
        self.is_ready = False
        self._connection = connection
        self._on_end = on_end
        self._unsent = b""
        self._newest = b""
        self._loop = asyncio.get_running_loop()
        connection.setblocking(False)  # noqa: FBT003 - the name of the standard library
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._loop.add_reader(connection, self._receive)

    def send_newest(self, content: bytes) -> None:
        """Send a state; while the standby has not read an older one, keep only the newest."""
        if self._unsent:
            self._newest = content
        else:
            self.send(content)

    def send(self, content: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a message that must arrive. Pass ``descriptors`` only after ``flushed``."""
        if self._unsent:
            self._unsent += content
            return
        try:
            self._unsent = content[self._write(content, descriptors) :]
        except OSError:  # the standby has disconnected, which the next read finds
            return
        if self._unsent:
            self._loop.add_writer(self._connection, self._send_rest)

    async def flushed(self) -> bool:
        """Wait at most ``FLUSH_S`` until the kernel has everything; return whether it has."""
        ends_at = self._loop.time() + FLUSH_S
        while (self._unsent or self._newest) and self._loop.time() < ends_at:  # noqa: ASYNC110 - milliseconds, once
            await asyncio.sleep(0.001)
        return not (self._unsent or self._newest)

    def close(self) -> None:
        """Close the connection; further calls do nothing."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
        self._unsent = self._newest = b""

    def _write(self, content: bytes, descriptors: Sequence[int] = ()) -> int:
        if descriptors:  # they travel with the first byte; an empty send buffer always takes one message
            return socket.send_fds(self._connection, [content], list(descriptors))
        try:
            return self._connection.send(content)
        except BlockingIOError:
            return 0

    def _send_rest(self) -> None:
        try:
            self._unsent = self._unsent[self._write(self._unsent) :]
        except OSError:
            self._on_end()
            return
        if not self._unsent:
            self._loop.remove_writer(self._connection)
            newest, self._newest = self._newest, b""
            if newest:
                self.send(newest)

    def _receive(self) -> None:
        try:
            received = self._connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._on_end()
        self.is_ready = self.is_ready or READY in received
