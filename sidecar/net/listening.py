"""Sockets that listen at TCP addresses and unix socket files, and accept on the turns of the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate

SOCKET_MODE: Final = 0o660
IN_USE_S: Final = 0.3
RETRY_S: Final = 0.002
"""The kernel closes the files of a killed process in any order: its run lock may be free before its address is."""


class CannotListenError(Exception):
    """A listener cannot be opened. The text begins with the setting that names its address."""


@contextmanager
def naming_setting(setting: str, address: str) -> Iterator[None]:
    """Turn an OSError of opening ``address`` into a ``CannotListenError`` that names the setting."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise CannotListenError(f"{setting}: cannot listen on {address}: {_cause(error).lower()}") from None


def _cause(error: OSError | UnicodeError) -> str:
    """The system's own words; asyncio's repeat the address."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    # The resolver's errors have a number below zero; a path that is too long has none.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """A socket at every address of ``host``; OSError if one of them cannot be bound within ``IN_USE_S``. Blocks."""
    ends_at = time.monotonic() + IN_USE_S
    while True:
        try:
            return _bind_tcp(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= ends_at:
                raise
        time.sleep(RETRY_S)


def _bind_tcp(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    name = host.encode() or None  # for a text Python would load 0.2 MiB of tables for international names
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                opened = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:  # the resolver knows IPv6, the kernel does not
                    continue
                raise
            sockets.append(opened)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.bind(address)
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return sockets


def bind_unix(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket at ``path``; OSError if the path exists. asyncio would take the path from another process."""
    opened = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        opened.bind(path)
    except OSError:
        opened.close()
        raise
    finally:
        os.umask(before)
    return opened


def remove_stale(path: str) -> None:
    """Remove a socket file that no process serves. Anything else stays, and binding fails."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:  # a datagram socket in use: binding will say so
                raise


def address_of(opened: socket.socket) -> str:
    """The address of a socket as people write it: ``host:port``, or a path."""
    address = opened.getsockname()
    if isinstance(address, str):
        return address
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
