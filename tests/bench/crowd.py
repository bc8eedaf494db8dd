"""Many sidecars as one Redis sees them: a connection each, and one command at a time on it."""

from __future__ import annotations

import asyncio
import resource
import select
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from bench import wire
from sidecar.store.protocol import StoreError

if TYPE_CHECKING:
    import socket

    from sidecar.store.redis import RedisStore

PING: Final = b"*1\r\n$4\r\nPING\r\n"
IN_FLIGHT: Final = 64
_SPARE_FILES: Final = 200
_MOST_BYTES: Final = 65536


class Crowd:
    """``count`` sidecars that are connected to ``address``; leaving the context ends the connections.

    They send in turn, over all calls: command n of a list is always of sidecar n. Where the process may not open so
    many files, several sidecars share a connection.
    """

    def __init__(self, address: wire.Address, count: int) -> None:
        self._address = address
        self._wanted = count
        self._sockets: list[socket.socket] = []
        self._of_file: dict[int, socket.socket] = {}
        self._busy: set[int] = set()
        self._turn = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            for _ in range(min(self._wanted, files_allowed(self._wanted + _SPARE_FILES) - _SPARE_FILES)):
                connection = stack.enter_context(wire.connect(self._address))
                self._poll.register(connection, select.EPOLLIN)
                self._sockets.append(connection)
            self._stack = stack.pop_all()
        self._of_file = {one.fileno(): one for one in self._sockets}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def connections(self) -> int:
        return len(self._sockets)

    def pace(self, commands: Sequence[bytes], rate: float, seconds: float) -> int:
        """Send ``rate`` a second, evenly; how many were answered.

        It never sleeps: to wake it up would be work for Redis, which no sidecar on another machine makes.
        """
        begun, first = time.perf_counter(), self._turn
        while (elapsed := time.perf_counter() - begun) < seconds:
            while self._turn - first < int(elapsed * rate):
                self._send(commands)
            self._hear(0)
        self._hear_all()
        return self._turn - first

    def race(self, commands: Sequence[bytes], seconds: float) -> int:
        """Keep as many under way as may be, ``IN_FLIGHT`` or all connections; how many were answered."""
        begun, first = time.perf_counter(), self._turn
        while time.perf_counter() - begun < seconds:
            self._send(commands)
        self._hear_all()
        return self._turn - first

    def all_once(self, commands: Sequence[bytes]) -> None:
        """Each command once, as fast as it goes."""
        for _ in commands:
            self._send(commands)
        self._hear_all()

    def _send(self, commands: Sequence[bytes]) -> None:
        connection = self._sockets[self._turn % len(self._sockets)]
        while connection.fileno() in self._busy or len(self._busy) >= IN_FLIGHT:
            self._hear(wire.TIMEOUT_S)
        connection.sendall(commands[self._turn % len(commands)])
        self._busy.add(connection.fileno())
        self._turn += 1

    def _hear_all(self) -> None:
        while self._busy:
            self._hear(wire.TIMEOUT_S)

    def _hear(self, timeout_s: float) -> None:
        heard = self._poll.poll(timeout_s, IN_FLIGHT)
        if timeout_s and not heard:
            raise TimeoutError(f"{len(self._busy)} commands were not answered")
        for file, _ in heard:
            reply = self._of_file[file].recv(_MOST_BYTES)
            if reply[:1] not in (b"*", b"+"):
                raise RuntimeError(f"Redis answered {reply[:200]!r}")
            self._busy.discard(file)


def overheard(store: RedisStore, calls: Iterable[Callable[[], Awaitable[object]]]) -> list[bytes]:
    """What the store would send for each of these calls of it, which it does not."""
    return asyncio.run(_overheard(store, calls))


async def _overheard(store: RedisStore, calls: Iterable[Callable[[], Awaitable[object]]]) -> list[bytes]:
    store._link = ear = _Ear()  # type: ignore[assignment]  # it listens, and answers nothing
    for call in calls:
        with suppress(StoreError):
            await call()
    return ear.heard


class _Ear:
    """In the place of the link."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def ask(self, _: Callable[[Any], Any], *command: str | bytes) -> Any:
        words = [word.encode() if isinstance(word, str) else word for word in command]
        texts = (b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.heard.append(b"*%d\r\n" % len(words) + b"".join(texts))
        raise ConnectionError("it only listens")


def files_allowed(wanted: int) -> int:
    """Raise the process's own limit of open files as far as it may; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
