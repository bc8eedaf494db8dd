"""Budgets on a real Redis, and a door in front of it that can keep replies back."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sidecar.budget.redis import RedisBudget
from sidecar.core.grants import Quota

OpenBudget = Callable[..., RedisBudget]

TEN_PER_TEN_MINUTES = Quota(10, 600_000_000)


@pytest.fixture
async def open_budget() -> AsyncIterator[OpenBudget]:
    """Opens budgets at a URL, with the article's numbers unless told otherwise, and closes them."""
    budgets: list[RedisBudget] = []

    def open_(url: str, **changes: Any) -> RedisBudget:
        options: dict[str, Any] = {
            "strategy": "log",
            "quota": TEN_PER_TEN_MINUTES,
            "prefix": "{ha:default/app}",
            "fixed_key": "errorWatcher",
            "timeout_s": 5.0,
        }
        budgets.append(RedisBudget(url, **options | changes))
        return budgets[-1]

    yield open_
    for budget in budgets:
        await budget.aclose()


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
    """A server that reads something, says its one line whatever was asked, and then hangs up or waits."""

    def __init__(self) -> None:
        self.line = b""
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
            while not self._ended.is_set() and await reader.read(65536):
                writer.write(self.line)
                if self.hangs_up:
                    break
        writer.close()


@pytest.fixture
async def actor() -> AsyncIterator[Actor]:
    actor = Actor()
    yield actor
    await actor.close()
