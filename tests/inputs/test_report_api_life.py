"""The connection that the app holds open as long as it lives: what closing it tells, and what it does not."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_http import serving
from harness.raw_http import Observed, RawConnection, chunked, get, post
from harness.virtual_time import settle
from harness.waiting import eventually
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Policy, State
from sidecar.inputs import report_api
from sidecar.inputs.report_tap import ReportTap
from sidecar.server import local_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.server.local_server import LocalServer

LIFE = post("/life")
SNAPSHOT = Snapshot(1.0, start("app/a", 0.0, Policy()), Evidence(60), None)


class LocalListener:
    """The local listener on a unix socket, and the number of exits that it reported."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.gone = 0
        self.closing = asyncio.Event()
        self.listener: LocalServer

    def routes(self) -> Any:
        return report_api.routes(
            lambda _reports: True,
            on_exit=self.go,
            state=lambda: State.UP,
            snapshot=lambda: SNAPSHOT,
            mode="enforce",
            tap=ReportTap(time.time),
            closing=self.closing,
        )

    def go(self) -> None:
        self.gone += 1

    @property
    def held(self) -> int:
        return len(self.listener._answering)

    async def ends(self, lives: int) -> None:
        """Wait until only so many are held."""
        await eventually(lambda: self.held == lives, timeout_s=60, what=f"{lives} are held")

    async def is_up(self) -> bool:
        async with await RawConnection.to(self.listener) as wire:
            return (await wire.ask(get("/verdict"))).status == 200


@asynccontextmanager
async def _local(run_dir: Path) -> AsyncIterator[LocalListener]:
    local = LocalListener(Observed())
    async with serving(
        local.routes(), local.observed, str(run_dir / "app.sock"), closing=local.closing
    ) as local.listener:
        yield local
    assert local.observed.failures == []


@pytest.fixture
async def local(run_dir: Path) -> AsyncIterator[LocalListener]:
    async with _local(run_dir) as local:
        yield local


async def _hold(local: LocalListener, request: bytes = LIFE) -> RawConnection:
    wire = await RawConnection.to(local.listener)
    assert (await wire.ask(request)).status == 200
    return wire


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(LIFE, id="empty"),
        pytest.param(get("/life", method="POST"), id="no length"),
        pytest.param(chunked("/life", b"x" * 9_999), id="in chunks"),
    ],
)
async def test_response_begins_at_once_and_ends_only_with_the_app(local: LocalListener, request_: bytes) -> None:
    wire = await _hold(local, request_)
    assert (local.held, local.gone) == (1, 0)
    assert not wire.ended
    wire.close()
    await local.ends(0)
    assert (local.gone, local.observed.refusals) == (1, [])


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_each_exit_is_reported_once_and_at_once(local: LocalListener, how: str) -> None:
    for life in range(1, 6):
        getattr(await _hold(local), how)()
        await settle()  # and no time: a successor may name itself soon, and its name must not come before the end
        assert (local.held, local.gone) == (0, life)


async def test_only_the_last_of_several_connections_reports_the_exit(local: LocalListener) -> None:
    first, second, third = [await _hold(local) for _ in range(3)]
    second.close()
    await local.ends(2)
    first.reset()
    await local.ends(1)
    fourth = await _hold(local)
    third.close()
    await local.ends(1)
    assert local.gone == 0
    fourth.close()
    await local.ends(0)
    assert local.gone == 1


async def test_life_connection_is_closed_neither_as_idle_nor_for_others(run_dir: Path) -> None:
    local = LocalListener(Observed())
    options: dict[str, Any] = {"idle_s": 0.05, "max_connections": 3}
    async with (
        serving(local.routes(), local.observed, str(run_dir / "app.sock"), **options) as local.listener,
        AsyncExitStack() as stack,
    ):
        held = [await stack.enter_async_context(await _hold(local)) for _ in range(2)]
        silent = await stack.enter_async_context(await RawConnection.to(local.listener))
        assert await silent.rest() == b"", "it was idle for long enough"
        for _ in range(5):
            stack.push_async_exit(await RawConnection.to(local.listener))
        assert await local.is_up()
        assert not any(wire.ended for wire in held)
        assert (local.held, local.gone) == (2, 0)


async def test_too_many_life_connections_are_refused(local: LocalListener) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(report_api.LIFE_CONNECTIONS):
            last = await stack.enter_async_context(await _hold(local))
        async with await RawConnection.to(local.listener) as wire:
            answer = await wire.ask(LIFE)
        assert (answer.status, answer.error) == (503, "/life: 128 connections are open already")
        last.close()
        await local.ends(report_api.LIFE_CONNECTIONS - 1)
        await stack.enter_async_context(await _hold(local))
        assert await local.is_up()


@pytest.mark.parametrize(
    ("request_", "status"),
    [(get("/life"), 405), (get("/life", "Content-Length: 999999", method="POST"), 413)],
    ids=["GET", "large body"],
)
async def test_refused_life_connection_reports_no_exit(local: LocalListener, request_: bytes, status: int) -> None:
    async with await RawConnection.to(local.listener) as wire:
        assert (await wire.ask(request_)).status == status
    assert await local.is_up()
    assert (local.held, local.gone) == (0, 0)


async def test_body_that_breaks_off_opens_no_life_connection(local: LocalListener) -> None:
    async with await RawConnection.to(local.listener) as wire:
        await wire.send(post("/life", b"four")[:-2])
        await eventually(lambda: local.held == 1, timeout_s=60, what="its body is awaited")
    await local.ends(0)
    assert local.gone == 0


async def test_life_connection_over_tcp_is_refused(local: LocalListener) -> None:
    async with serving(local.routes(), local.observed) as over_tcp, await RawConnection.to(over_tcp) as wire:
        answer = await wire.ask(LIFE)
        assert (answer.status, answer.error) == (403, "/life: only over the unix socket")
        assert (await wire.ask(post("/heartbeat"))).status == 202
    assert (local.observed.words, local.gone) == (["socket_only"], 0)


async def test_closing_the_listener_ends_it_promptly_and_is_no_exit_of_the_app(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "CLOSE_S", 3600.0)  # nothing waits for it
    async with _local(run_dir) as local, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await _hold(local)) for _ in range(3)]
        await local.listener.close()
        for wire in held:
            assert await wire.rest() == b"0\r\n\r\n"  # in order: the answer is at its end
    assert (local.held, local.gone) == (0, 0)
