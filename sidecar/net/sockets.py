"""Unix sockets that take nobody's place, and addresses as people write them."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SOCKET_MODE: Final = 0o660
BACKLOG: Final = 1024

Inherited = Mapping[str, Sequence[socket.socket]]
"""By the name of the setting: sockets that another process opened and gave us, bound and maybe listening."""


class CannotListenError(Exception):
    """A door cannot be opened; the text begins with the setting that names it."""


@contextmanager
def named(setting: str, address: str) -> Iterator[None]:
    """Turn an OSError of opening ``address`` into ``CannotListenError`` that names the setting."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise CannotListenError(f"{setting}: cannot listen on {address}: {_cause(error).lower()}") from None


def _cause(error: OSError | UnicodeError) -> str:
    """The system's own words; asyncio's repeat the address."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    # A name that does not resolve has a number of the resolver's, below zero; a path too long has none.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def printed(address: Any) -> str:
    """``host:port`` of a socket address as ``getsockname`` gives it."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Shared(socket.socket):
    """A socket that another process may listen on too.

    asyncio's backlog is also how many it accepts at once: so small a number would push out who waits already.
    """

    def listen(self, _backlog: int = BACKLOG, /) -> None:
        """Listen, with the backlog of all our sockets."""
        super().listen(BACKLOG)


def bound_tcp(host: str, port: int) -> list[socket.socket]:
    """A socket at every address of ``host``, as asyncio binds them; OSError when one cannot be had."""
    opened: list[socket.socket] = []
    one: socket.socket
    try:
        for family, kind, number, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                one = Shared(family, kind, number)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:  # a kernel without IPv6, whose resolver has heard of it
                    continue
                raise
            opened.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


def located(opened: socket.socket) -> str:
    """The address of a socket as people write it: ``host:port``, or a path."""
    address = opened.getsockname()
    return address if isinstance(address, str) else printed(address)


def bound(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket at ``path``; OSError when something is there. asyncio would take the path from whoever listens on it."""
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
    """Remove a socket that nobody answers on any more; anything else in its place is left, and binding fails."""
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
            if error.errno != errno.EPROTOTYPE:  # somebody reads datagrams there: binding says that it is in use
                raise
