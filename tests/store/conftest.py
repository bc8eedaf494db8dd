"""Stores in memory, on fakeredis and on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fakeredis import TcpFakeServer
from redis import Redis

from harness.claims import S
from harness.memory_store import MemoryStore
from harness.stores import redis_store
from sidecar.store.alone import AloneStore
from sidecar.store.protocol import Store
from sidecar.store.redis import RedisStore
from sidecar.store.redis_content import BEAT, COMMIT, READ

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer


@contextmanager
def fake_redis() -> Iterator[str]:
    """A new and empty one; its URL. It knows the store's scripts, because it hangs up instead of saying NOSCRIPT."""
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"redis://127.0.0.1:{server.server_address[1]}"
    with Redis.from_url(url, protocol=2) as client:
        for script in (READ, COMMIT, BEAT):
            client.script_load(script.text)
    yield url
    server.shutdown()
    server.server_close()


OpenStore = Callable[..., RedisStore]

START_US = 1_700_000_400 * S


class Clock:
    """The time that a store goes by: it stands still until the test moves it."""

    def __init__(self, server: RedisServer | None = None) -> None:
        self._server = server
        self.now_us = 0
        self.go(START_US)

    def go(self, now_us: int) -> None:
        """Move to this instant of Unix time, forwards or backwards."""
        self.now_us = now_us
        if self._server is not None:
            self._server.set_time(now_us / S)

    def advance(self, seconds: float) -> None:
        """Move by a step."""
        self.go(self.now_us + round(seconds * S))


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    """Opens stores at a URL and closes them."""
    stores: list[RedisStore] = []

    def open_(url: str, **changes: Any) -> RedisStore:
        stores.append(redis_store(url, **changes))
        return stores[-1]

    yield open_
    for store in stores:
        await store.aclose()


@pytest.fixture(params=["alone", "memory", "fakeredis", pytest.param("redis", marks=pytest.mark.redis)])
def clocked(
    request: pytest.FixtureRequest, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Clock, Store]]:
    """A store of each kind, and its clock. fakeredis has none of its own: it asks this process for the time."""
    if request.param == "redis":
        server = request.getfixturevalue("faketime_redis")
        yield Clock(server), open_store(server.url)
        return
    clock = Clock()
    if request.param == "memory":
        yield clock, MemoryStore(lambda: clock.now_us)
        return
    if request.param == "alone":
        yield clock, AloneStore(lambda: clock.now_us)
        return
    with fake_redis() as url:
        monkeypatch.setattr(time, "time", lambda: clock.now_us / S)
        yield clock, open_store(url)


@pytest.fixture
def clock(clocked: tuple[Clock, Store]) -> Clock:
    return clocked[0]


@pytest.fixture
def store(clocked: tuple[Clock, Store]) -> Store:
    return clocked[1]


def assert_stores_agree(
    answers: Callable[[Store, Any, Clock], Awaitable[object]], steps: object, server: RedisServer
) -> None:
    """The store in memory and the one on Redis give the same answers to these steps."""

    run_id = str(server.cli("INFO", "server")["run_id"])

    async def in_memory() -> object:
        clock = Clock()
        return await answers(MemoryStore(lambda: clock.now_us, run_id=run_id), steps, clock)

    async def on_redis() -> object:
        server.cli("FLUSHALL")
        async with aclosing(redis_store(server.url)) as store:
            return await answers(store, steps, Clock(server))

    assert asyncio.run(in_memory()) == asyncio.run(on_redis())


class Actor:
    """A server that reads something, says its one line whatever was asked, and then hangs up or waits.

    ``lines``: what it says instead when it reads this word.
    """

    def __init__(self) -> None:
        self.line = b""
        self.lines: dict[bytes, bytes] = {}
        self.hangs_up = False
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._ended = asyncio.Event()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._play, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._ended.set()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):
            while not self._ended.is_set() and (read := await reader.read(65536)):
                writer.write(next((line for word, line in self.lines.items() if word in read), self.line))
                if self.hangs_up:
                    break
        writer.close()


@pytest.fixture
async def actor() -> AsyncIterator[Actor]:
    actor = Actor()
    yield actor
    await actor.close()
