"""Many sidecars as one Redis sees them: a connection each, with one command at a time."""

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
    from sidecar.store.scripts import Script

PING: Final = b"*1\r\n$4\r\nPING\r\n"
IN_FLIGHT: Final = 64
_SPARE_FILES: Final = 200
_MOST_BYTES: Final = 65536


class Crowd:
    """``count`` sidecars that are connected to ``address`` while the context lasts.

    They send in turn, across calls: command n of a list is always sent by sidecar n. If the process may not open that
    many files, sidecars share connections.
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
        """Send ``rate`` commands a second, evenly; the number of answers.

        It never sleeps, because waking it up would cost the processor of Redis time.
        """
        begun, first = time.perf_counter(), self._turn
        while (elapsed := time.perf_counter() - begun) < seconds:
            while self._turn - first < int(elapsed * rate):
                self._send(commands)
            self._receive(0)
        self._receive_all()
        return self._turn - first

    def race(self, commands: Sequence[bytes], seconds: float) -> int:
        """Keep ``IN_FLIGHT`` commands under way, or one per connection; the number of answers."""
        begun, first = time.perf_counter(), self._turn
        while time.perf_counter() - begun < seconds:
            self._send(commands)
        self._receive_all()
        return self._turn - first

    def all_once(self, commands: Sequence[bytes]) -> None:
        """Send each command once, as fast as possible."""
        for _ in commands:
            self._send(commands)
        self._receive_all()

    def _send(self, commands: Sequence[bytes]) -> None:
        connection = self._sockets[self._turn % len(self._sockets)]
        while connection.fileno() in self._busy or len(self._busy) >= IN_FLIGHT:
            self._receive(wire.TIMEOUT_S)
        connection.sendall(commands[self._turn % len(commands)])
        self._busy.add(connection.fileno())
        self._turn += 1

    def _receive_all(self) -> None:
        while self._busy:
            self._receive(wire.TIMEOUT_S)

    def _receive(self, timeout_s: float) -> None:
        ready = self._poll.poll(timeout_s, IN_FLIGHT)
        if timeout_s and not ready:
            raise TimeoutError(f"{len(self._busy)} commands were not answered")
        for file, _ in ready:
            reply = self._of_file[file].recv(_MOST_BYTES)
            if reply[:1] not in (b"*", b"+"):
                raise RuntimeError(f"Redis answered {reply[:200]!r}")
            self._busy.discard(file)


def recorded_commands(store: RedisStore, calls: Iterable[Callable[[], Awaitable[object]]]) -> list[bytes]:
    """The commands that the store would send for these calls; nothing is sent."""
    return asyncio.run(_recorded(store, calls))


async def _recorded(store: RedisStore, calls: Iterable[Callable[[], Awaitable[object]]]) -> list[bytes]:
    store._client = recorder = _Recorder()  # type: ignore[assignment]  # it sends nothing
    for call in calls:
        with suppress(StoreError):
            await call()
    return recorder.commands


class _Recorder:
    """Takes the place of the client."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    async def run(
        self, read: Callable[[Any], Any], script: Script, keys: Sequence[bytes], arguments: Iterable[str | bytes]
    ) -> Any:
        await self.ask(read, "EVALSHA", script.sha, str(len(keys)), *keys, *arguments)

    async def ask(self, _: Callable[[Any], Any], *command: str | bytes) -> Any:
        words = [word.encode() if isinstance(word, str) else word for word in command]
        texts = (b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.commands.append(b"*%d\r\n" % len(words) + b"".join(texts))
        raise StoreError("connection")

    def forget_lost_connection(self) -> None:
        """There is no connection."""


def files_allowed(wanted: int) -> int:
    """Raise the soft limit of open files as far as allowed; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
