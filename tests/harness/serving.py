"""The daemon in the loop of a test: all of it but the process."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from harness.composition import on_any_port
from harness.raw_http import Answer, RawConnection
from harness.waiting import eventually
from sidecar.app import build as build_module
from sidecar.app import daemon
from sidecar.app.build import Sidecar, metrics_of
from sidecar.app.run_lock import RunLock
from sidecar.core.types import State

FAST: Final = {"alone": "true", "service": "shop", "instance": "a", "settle": "0s", "drain": "0s", "stop_drain": "0s"}
POLLS: Final = ("/health", "/health/haproxy", "/health/nomad")


class Serving:
    """A daemon that serves in this loop. ``ended`` has its exit code."""

    def __init__(
        self, sidecar: Sidecar, ended: asyncio.Task[int], stop: asyncio.Event, addresses: Mapping[str, str]
    ) -> None:
        self.sidecar = sidecar
        self.ended = ended
        self.stop = stop
        self.addresses = addresses

    @property
    def state(self) -> State:
        return self.sidecar.snapshot().container.state

    async def ask(self, listener: str, line: str, body: str = "") -> Answer:
        """Ask the listener whose address the log calls ``listener``."""
        host, _, port = self.addresses[listener].rpartition(":")
        head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        async with RawConnection(*await asyncio.open_connection(host, int(port))) as connection:
            return await connection.ask((head + body).encode())

    async def report(self, **fields: object) -> Answer:
        """Report errors, by default five: as many as make an app unhealthy."""
        return await self.ask("errors_to", "POST /errors", json.dumps({"count": 5, "kind": "redis"} | fields))

    async def polls(self) -> list[int]:
        """The status of each health answer."""
        return [(await self.ask("health_at", f"GET {path}")).status for path in POLLS]

    async def becomes(self, state: State) -> None:
        """Wait until the container is in this state."""
        await eventually(lambda: self.state is state, timeout_s=60, what=f"the container is {state}")

    async def cull(self) -> None:
        """Report errors until the container is down."""
        assert (await self.report()).status == 202
        await self.becomes(State.DOWN)

    def metrics(self) -> str:
        """The metrics page."""
        return self.sidecar.metrics.page()[0].decode()


@asynccontextmanager
async def serving(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    lock: RunLock | None = None,
    **flags: str,
) -> AsyncIterator[Serving]:
    """Serve with these settings until the end of the context, or until the test sets ``stop``."""
    built: list[Sidecar] = []
    thresholds = gc.get_threshold()

    async def build(*args: Any, **options: Any) -> Sidecar:
        built.append(await build_module.build(*args, **options))
        return built[-1]

    def lines() -> list[Any]:
        return [record for record in caplog.records if record.message == "listening"]

    monkeypatch.setattr(daemon, "build", build)
    caplog.set_level(logging.INFO)
    caplog.clear()
    config = on_any_port({**FAST, **flags})
    stop = asyncio.Event()
    ended = asyncio.create_task(daemon.serve(config, metrics_of(config), stop, lock))
    try:
        await eventually(lambda: lines() or ended.done(), timeout_s=60, what="it listens")
        if not lines():
            await ended
        yield Serving(built[0], ended, stop, lines()[0].__dict__["fields"])
    finally:
        ended.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await ended
        gc.unfreeze()
        gc.set_threshold(*thresholds)
