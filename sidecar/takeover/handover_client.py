"""The standby's side of a takeover: it holds the main's sockets open and keeps the last state that the main sent.

The standby waits without an asyncio loop. It stores states as they arrive and parses only the one it needs.
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

from sidecar.takeover.handover import FORMAT, LENGTH, MAX_BYTES, READY, is_same_user, socket_path
from sidecar.telemetry.log import logger

CONNECT_S: Final = 1.0
READ_BYTES: Final = 1 << 18
_DESCRIPTOR: Final = struct.Struct("i")
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(253 * _DESCRIPTOR.size)
_STATE: Final = b'{"what":"state"'


class HandoverClient:
    """Receives what a main sends. ``addresses`` are those of the standby's own settings, by setting.

    ``sockets``: by setting, only those whose address is the same on both sides. ``connections``: each with the name of
    its listener. ``is_our_turn``: the main has ordered the standby to take over. ``app``: the main's, "" if unknown.
    """

    def __init__(self, directory: Path, addresses: Mapping[str, str]) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}
        self.connections: list[tuple[str, socket.socket]] = []
        self.is_our_turn = False
        self.app = ""
        self._is_other_version = False
        self._path = socket_path(directory)
        self._addresses = addresses
        self._connection: socket.socket | None = None
        self._has_sockets = False
        self._received = bytearray()
        self._descriptors: deque[int] = deque()
        self._state = b""
        self._state_at = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the connection to a main is open."""
        return self._connection is not None

    def state(self) -> tuple[Any, float] | None:
        """Return the main's last state and when it came, in monotonic seconds; None without one.

        Raises ValueError, LookupError, TypeError or RecursionError for a message that cannot be parsed.
        """
        return (json.loads(self._state)["state"], self._state_at) if self._state else None

    def connect(self) -> bool:
        """Connect to a main and receive its sockets; False if there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(self._path)
            if not is_same_user(connection):
                raise PermissionError
        except OSError:
            connection.close()
            return False
        self._close_sockets()
        self._connection = connection
        ends_at = time.monotonic() + CONNECT_S
        while self.is_connected and not self._has_sockets and time.monotonic() < ends_at:
            self.wait(CONNECT_S)
        return self.is_connected

    def wait(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` seconds for a message or for the end of the main."""
        if self._connection is None:
            time.sleep(timeout_s)
        elif select.select([self._connection], [], [], timeout_s)[0]:
            self._receive()

    def read_all(self) -> None:
        """Read everything that has arrived, also from a main that has ended."""
        while self._connection is not None and select.select([self._connection], [], [], 0)[0]:
            self._receive()

    def say_ready(self) -> None:
        """Tell the main that this standby can take over."""
        if self._connection is not None:
            try:
                self._connection.sendall(READY)
            except OSError:
                self._disconnect()

    def close(self) -> None:
        """Close the connection and every socket that was received."""
        self._disconnect()
        self._close_sockets()

    def _receive(self) -> None:
        assert self._connection is not None  # noqa: S101 - the callers have checked
        try:
            # socket.recv_fds drops its flags: without MSG_CMSG_CLOEXEC every child process would inherit the sockets.
            read, ancillary, flags, _ = self._connection.recvmsg(READ_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self._descriptors.extend(number for (number,) in _DESCRIPTOR.iter_unpack(content))
            if not read or flags & socket.MSG_CTRUNC:
                raise ConnectionError
            self._received += read
            while (received := self._next_message()) is not None:
                self._handle(received)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._disconnect()  # the main has ended, or its message is invalid

    def _next_message(self) -> bytes | None:
        if len(self._received) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._received)
        if length > MAX_BYTES:
            raise ValueError("message too long")
        end = LENGTH.size + length
        if len(self._received) < end:
            return None
        content = bytes(self._received[LENGTH.size : end])
        del self._received[:end]
        return content

    def _handle(self, content: bytes) -> None:
        if content.startswith(_STATE):
            self._state, self._state_at = content, time.monotonic()
            return
        fields = json.loads(content)
        if fields["what"] == "sockets":
            self._take_sockets(fields)
        elif fields["what"] == "connections":
            self.connections += [(str(name), self._next_socket()) for name in fields["names"]]
        elif fields["what"] == "go":
            self.is_our_turn = True

    def _take_sockets(self, fields: Mapping[str, Any]) -> None:
        if fields["format"] != FORMAT:
            if not self._is_other_version:  # once: the standby connects again and again
                logger.warning("the main is of another version and hands nothing over: there will be a gap")
            self._is_other_version = True
            raise ValueError("another version")
        self.app = str(fields.get("app", ""))
        for name in fields["names"]:
            received = self._next_socket()
            if self._addresses.get(name) == fields["addresses"].get(name):
                self.sockets.setdefault(name, []).append(received)
            else:
                received.close()
        self._has_sockets = True

    def _next_socket(self) -> socket.socket:
        return socket.socket(fileno=self._descriptors.popleft())

    def _close_sockets(self) -> None:
        """Close the sockets that an earlier main sent."""
        for sockets in self.sockets.values():
            for opened in sockets:
                opened.close()
        for _, connection in self.connections:
            connection.close()
        self.sockets, self.connections, self.is_our_turn, self._has_sockets = {}, [], False, False
        self._received.clear()

    def _disconnect(self) -> None:
        """Keep the sockets that the main named, and close descriptors that no message named."""
        while self._descriptors:
            socket.close(self._descriptors.popleft())
        if self._connection is not None:
            self._connection.close()
            self._connection = None
