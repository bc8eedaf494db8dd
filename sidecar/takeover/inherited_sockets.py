"""The standby's end of a hand-over: it keeps open what the main has open, and the last that was told of its state.

It waits without a loop of asyncio and reads nothing but lengths: state and past are looked at when they are needed.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sidecar.net.sockets import Shared
from sidecar.takeover.handover import FORMAT, LENGTH, MOST_BYTES, READY, is_ours, path
from sidecar.telemetry.log import logger

CONNECT_S: Final = 1.0
READ_BYTES: Final = 1 << 18
MOST_DESCRIPTORS: Final = 253
MOST_PAST_BYTES: Final = 4 << 20
_DESCRIPTOR: Final = struct.Struct("i")
_ROOM: Final = socket.CMSG_LEN(MOST_DESCRIPTORS * _DESCRIPTOR.size)
_STATE: Final = b'{"what":"state"'
_PAST: Final = b'{"what":"past"'


class Inheritance:
    """What a main gives to a process that was told ``addresses`` for the names of its settings.

    ``sockets`` by name: those alone of which both were told the same. ``connections`` each with its listener's name.
    ``is_told``: the main has said that it is our turn. ``app``: whom the main serves, "" if it did not say.
    ``past``: the last that was told of it, as it came, and when on the monotonic clock; None if nothing was.
    """

    def __init__(self, directory: Path, addresses: Mapping[str, str]) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}
        self.connections: list[tuple[str, socket.socket]] = []
        self.is_told = False
        self.app = ""
        self.past: tuple[bytes, float] | None = None
        self._is_strange = False
        self._path = path(directory)
        self._addresses = addresses
        self._link: socket.socket | None = None
        self._is_introduced = False
        self._read = bytearray()
        self._received: deque[int] = deque()
        self._state = b""
        self._state_at = 0.0

    @property
    def is_linked(self) -> bool:
        """Whether a main is there that tells us."""
        return self._link is not None

    def state(self) -> tuple[Any, float] | None:
        """The last that was told of the main's state, and when on the monotonic clock; None if nothing was."""
        return (json.loads(self._state)["state"], self._state_at) if self._state else None

    def link(self) -> bool:
        """Connect to a main, and hear all that it has to give; False when there is none."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(CONNECT_S)
        try:
            link.connect(self._path)
            if not is_ours(link):
                raise PermissionError
        except OSError:
            link.close()
            return False
        self._forget()
        self._link = link
        ends_at = time.monotonic() + CONNECT_S
        while self.is_linked and not self._is_introduced and time.monotonic() < ends_at:
            self.wait(CONNECT_S)
        return self.is_linked

    def wait(self, timeout_s: float) -> None:
        """Wait for the main to say something or to end, at most so long; hear it."""
        if self._link is None:
            time.sleep(timeout_s)
        elif select.select([self._link], [], [], timeout_s)[0]:
            self._hear()

    def hear_out(self) -> None:
        """Hear all that was sent before the main ended."""
        while self._link is not None and select.select([self._link], [], [], 0)[0]:
            self._hear()

    def say_ready(self) -> None:
        """Tell the main that it may end."""
        if self._link is not None:
            try:
                self._link.sendall(READY)
            except OSError:
                self._unlink()

    def close(self) -> None:
        """Let go of everything."""
        self._unlink()
        self._forget()

    def _hear(self) -> None:
        assert self._link is not None  # noqa: S101 - only who is linked is heard
        try:
            # recv_fds does not hand its flags on, and then every program that is executed would have our sockets.
            read, ancillary, flags, _ = self._link.recvmsg(READ_BYTES, _ROOM, socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self._received.extend(number for (number,) in _DESCRIPTOR.iter_unpack(content))
            if not read or flags & socket.MSG_CTRUNC:
                raise ConnectionError
            self._read += read
            while (told := self._next()) is not None:
                self._take(told)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._unlink()  # gone, or not what a main says

    def _next(self) -> bytes | None:
        if len(self._read) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._read)
        if length > MOST_BYTES:
            raise ValueError("more than a main has to say")
        end = LENGTH.size + length
        if len(self._read) < end:
            return None
        told = bytes(self._read[LENGTH.size : end])
        del self._read[:end]
        return told

    def _take(self, told: bytes) -> None:
        if told.startswith(_STATE):
            self._state, self._state_at = told, time.monotonic()
            return
        if told.startswith(_PAST):
            self.past = (told, time.monotonic()) if len(told) <= MOST_PAST_BYTES else None
            return
        fields = json.loads(told)
        if fields["what"] == "sockets":
            self._take_sockets(fields)
        elif fields["what"] == "connections":
            self.connections += [(str(name), self._socket()) for name in fields["names"]]
        elif fields["what"] == "go":
            self.is_told = True

    def _take_sockets(self, fields: Mapping[str, Any]) -> None:
        if fields["format"] != FORMAT:
            if not self._is_strange:  # once: it is asked again and again
                logger.warning("the main is of another version and hands nothing over: there will be a gap")
            self._is_strange = True
            raise ValueError("another version's")
        self.app = str(fields.get("app", ""))
        for name in fields["names"]:
            given = self._socket()
            if self._addresses.get(name) == fields["addresses"].get(name):
                self.sockets.setdefault(name, []).append(given)
            else:
                given.close()
        self._is_introduced = True

    def _socket(self) -> socket.socket:
        return Shared(fileno=self._received.popleft())

    def _forget(self) -> None:
        for opened in (
            *(one for several in self.sockets.values() for one in several),
            *(c for _, c in self.connections),
        ):
            opened.close()
        self.sockets, self.connections, self.is_told, self._is_introduced = {}, [], False, False
        self.past = None
        self._read.clear()

    def _unlink(self) -> None:
        """The main has gone, or says what we do not understand. What it gave stays; what nobody named does not."""
        while self._received:
            socket.close(self._received.popleft())
        if self._link is not None:
            self._link.close()
            self._link = None
