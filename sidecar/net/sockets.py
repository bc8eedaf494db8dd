"""Opens the sockets of listeners at addresses and unix socket files."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
