"""The main's end of a hand-over: sockets and state go to the one who waits, over a private unix socket.

Sockets are sent once (SCM_RIGHTS, unix(7)), so the standby holds them open whatever becomes of us; state follows
whenever it changes, and the past in its own time. What was sent is in the kernel's hands: it arrives also when we are
killed. Each message is a JSON object behind its length; descriptors come with the first byte of the message that names
them.

Nothing here waits for the standby: one that does not read misses what is old, and gets what is new.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

NAME: Final = "handover.sock"
FORMAT: Final = 1
LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 16 << 20
AT_ONCE: Final = 100
"""Descriptors in one message; Linux takes 253."""

STATE: Final = "state"
PAST: Final = "past"
READY: Final = b"R"
SEND_BUFFER: Final = 1 << 20
FLUSH_S: Final = 1.0
_UCRED: Final = struct.Struct("3i")


def path(directory: Path) -> str:
    """Where main and standby meet."""
    return str(directory / NAME)


def message(what: str, **fields: object) -> bytes:
    """One message as it goes over the wire."""
    content = json.dumps({"what": what, **fields}, separators=(",", ":")).encode()
    return LENGTH.pack(len(content)) + content


def is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as the user that we run as."""
    size = _UCRED.size
    _, user, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


class Offer:
    """Gives to whoever connects: ``sockets()`` by the names of their settings, ``state()`` and ``past()`` when told to.

    ``addresses``: what the names stand for, to see whether the standby was told the same; ``app``: whom we serve. One
    standby at a time: a new one takes the place of the last.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sockets: Callable[[], Sequence[tuple[int, str]]],
        addresses: dict[str, str],
        app: str = "",
        state: Callable[[], dict[str, Any] | None],
        past: Callable[[], dict[str, Any] | None] = lambda: None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._path = path(directory)
        self._sockets = sockets
        self._addresses = addresses
        self._app = app
        self._state = state
        self._past = past
        self._on_failure = on_failure
        self._listening: socket.socket | None = None
        self._feed: Feed | None = None

    @property
    def is_heard(self) -> bool:
        """Whether somebody hears what is told."""
        return self._feed is not None

    @property
    def is_ready(self) -> bool:
        """Whether a standby has said that it has all it needs."""
        return self._feed is not None and self._feed.is_ready

    def open(self) -> None:
        """Wait for a standby. Whoever holds the run lock takes the place of a main that is gone."""
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
        """End it; the standby sees that as our end. ``keep_path``: its successor may stand there already."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            if not keep_path:
                with suppress(OSError):
                    Path(self._path).unlink()
        self._drop()

    def tell(self) -> None:
        """Tell the state as it is now."""
        state = self._state() if self._feed is not None else None
        if state is not None and self._feed is not None:
            self._feed.tell(message(STATE, state=state))

    def tell_past(self) -> None:
        """Tell the past as it is now; a standby that knows no such message passes it over."""
        past = self._past() if self._feed is not None else None
        if past is not None and self._feed is not None:
            self._feed.tell(message(PAST, past=past), PAST)

    async def give(self, connections: Sequence[tuple[str, socket.socket]]) -> None:
        """Tell state and past for the last time, give these connections, and say that it is the standby's turn."""
        feed = self._feed
        if feed is None:
            return
        self.tell()
        self.tell_past()
        for begin in range(0, len(connections), AT_ONCE):
            if not await feed.flushed():
                break  # they are cut with us
            given = connections[begin : begin + AT_ONCE]
            names = [name for name, _ in given]
            feed.send(message("connections", names=names), [connection.fileno() for _, connection in given])
        feed.send(message("go"))
        await feed.flushed()

    def _accept(self) -> None:
        try:
            assert self._listening is not None  # noqa: S101 - it has just been found readable
            connection, _ = self._listening.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._on_failure(error)
            return
        if not is_ours(connection):
            connection.close()
            return
        self._drop()
        try:
            self._feed = Feed(connection, self._drop)
            self._introduce(self._feed)
        except OSError as error:
            self._on_failure(error)
            self._drop()

    def _introduce(self, feed: Feed) -> None:
        opened = self._sockets()
        names = [name for _, name in opened]
        feed.send(
            message("sockets", format=FORMAT, names=names, addresses=self._addresses, app=self._app),
            [descriptor for descriptor, _ in opened],
        )
        self.tell()
        self.tell_past()

    def _drop(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()


class Feed:
    """The way to one standby. ``on_end`` is called once it has gone."""

    def __init__(self, connection: socket.socket, on_end: Callable[[], None]) -> None:
        self.is_ready = False
        self._connection = connection
        self._on_end = on_end
        self._left = b""
        self._newest: dict[str, bytes] = {}
        self._loop = asyncio.get_running_loop()
        connection.setblocking(False)  # noqa: FBT003 - the name of the standard library
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._loop.add_reader(connection, self._hear)

    def tell(self, told: bytes, what: str = STATE) -> None:
        """Send it; while something older is on its way, keep the newest only of each kind."""
        if self._left:
            self._newest[what] = told
        else:
            self.send(told)

    def send(self, told: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send what nothing else may take the place of; with descriptors only after ``flushed``."""
        if self._left:
            self._left += told
            return
        try:
            self._left = told[self._sent(told, descriptors) :]
        except OSError:  # it has gone, as we shall read
            return
        if self._left:
            self._loop.add_writer(self._connection, self._send_on)

    async def flushed(self) -> bool:
        """Wait until the kernel has all, at most ``FLUSH_S``; whether it has."""
        ends_at = self._loop.time() + FLUSH_S
        while (self._left or self._newest) and self._loop.time() < ends_at:  # noqa: ASYNC110 - for milliseconds, once
            await asyncio.sleep(0.001)
        return not (self._left or self._newest)

    def close(self) -> None:
        """End it."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
        self._left = b""
        self._newest.clear()

    def _sent(self, told: bytes, descriptors: Sequence[int] = ()) -> int:
        if descriptors:  # the first byte brings them; the kernel has room for one message of ours, being empty
            return socket.send_fds(self._connection, [told], list(descriptors))
        try:
            return self._connection.send(told)
        except BlockingIOError:
            return 0

    def _send_on(self) -> None:
        try:
            self._left = self._left[self._sent(self._left) :]
        except OSError:
            self._on_end()
            return
        if not self._left:
            self._loop.remove_writer(self._connection)
            while self._newest and not self._left:
                self.send(self._newest.pop(STATE, b"") or self._newest.pop(PAST))

    def _hear(self) -> None:
        try:
            heard = self._connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._on_end()
        self.is_ready = self.is_ready or READY in heard
