"""Budgets on a real Redis, and a door in front of it that can keep replies back."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from harness.asking import Asking
from harness.claims import WINDOW_ONLY
from harness.twins import World, redis_budget
from sidecar.budget.access import Access
from sidecar.budget.link import Link
from sidecar.budget.redis import RedisBudget
from sidecar.core.terms import Terms

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

AskAt = Callable[..., Asking]
OpenBudget = Callable[..., RedisBudget]
OpenLink = Callable[..., Link]

_OF_TERMS = {field.name for field in dataclasses.fields(Terms)}


@pytest.fixture
async def open_budget() -> AsyncIterator[OpenBudget]:
    """Opens budgets at a URL and closes them; with the article's numbers and no gates of the fleet, unless told so."""
    budgets: list[RedisBudget] = []

    def open_(url: str, **changes: Any) -> RedisBudget:
        of_terms = {name: changes.pop(name) for name in _OF_TERMS & changes.keys()}
        budgets.append(redis_budget(url, dataclasses.replace(WINDOW_ONLY, **of_terms), **changes))
        return budgets[-1]

    yield open_
    for budget in budgets:
        await budget.aclose()


@pytest.fixture
def world(faketime_redis: RedisServer) -> World:
    """One time for the bucket in memory and the one in Redis."""
    return World(faketime_redis)


@pytest.fixture
async def open_link() -> AsyncIterator[OpenLink]:
    """Opens links and closes them."""
    links: list[Link] = []

    def open_(url: str, access: Access) -> Link:
        links.append(Link(url, 10.0, access))
        return links[-1]

    yield open_
    for link in links:
        await link.aclose()


@pytest.fixture
async def ask_at() -> AsyncIterator[AskAt]:
    """Opens links at a URL, and closes them."""
    async with AsyncExitStack() as stack:
        yield lambda url, timeout_s=5.0: stack.push_async_exit(Asking(url, timeout_s))


class Proxy:
    """Passes everything on between its own port and another, except replies while ``holding``."""

    def __init__(self) -> None:
        self.holding = False
        self.held = asyncio.Event()
        self.commands: list[str] = []
        self._kept: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._target = 0

    async def open(self, target_port: int) -> str:
        """Stand in front of the port; the URL of the door."""
        self._target = target_port
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def release(self) -> None:
        """Send on what was held, to whoever still listens, and hold no longer."""
        self.holding = False
        for writer, data in self._kept:
            writer.write(data)
        self._kept.clear()

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, inner_writer]
        self._pumps.add(asyncio.create_task(self._requests(reader, inner_writer)))
        self._pumps.add(asyncio.create_task(self._replies(inner_reader, writer)))

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.commands += re.findall(r"^\*\d+\r\n\$\d+\r\n([A-Z]+)\r\n", data.decode())
            writer.write(data)
        writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.holding:
                self._kept.append((writer, data))
                self.held.set()
            else:
                writer.write(data)
        writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    yield proxy
    await proxy.close()


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
