"""The connection that the app holds open as long as it lives: what closing it tells, and what it does not."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.listening import Told, Wire, chunked, get, listening, pass_idle, post
from harness.virtual_time import settle
from harness.waiting import eventually
from sidecar.core.life import transitions
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Policy, State
from sidecar.inputs import report_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.net.listener import Listener

LIFE = post("/life")
IDLE_S = 60.0
PLACES = 4
SNAPSHOT = Snapshot(1.0, transitions.start("app/a", 0.0, Policy()), Evidence(60), None)


class Door:
    """The local door on a unix socket, and how often it said that the app has gone."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.gone = 0
        self.listener: Listener

    def routes(self) -> Any:
        return report_api.routes(
            lambda _reports: True, gone=self.go, state=lambda: State.UP, snapshot=lambda: SNAPSHOT, mode="enforce"
        )

    def go(self) -> None:
        self.gone += 1

    @property
    def held(self) -> int:
        return len(self.listener._server._held)

    async def ends(self, lives: int) -> None:
        """Wait until only so many are held."""
        await eventually(lambda: self.held == lives, timeout_s=5, what=f"{lives} are held")

    async def is_up(self) -> bool:
        async with await Wire.to(self.listener) as wire:
            return (await wire.ask(get("/verdict"))).status == 200


@asynccontextmanager
async def _door(run_dir: Path) -> AsyncIterator[Door]:
    door = Door(Told())
    options: dict[str, Any] = {"idle_s": IDLE_S, "max_connections": PLACES, "guard": report_api.refuse_browsers}
    async with listening(door.routes(), door.told, str(run_dir / "app.sock"), **options) as door.listener:
        yield door
    assert door.told.failures == []


@pytest.fixture
async def door(run_dir: Path) -> AsyncIterator[Door]:
    async with _door(run_dir) as door:
        yield door


async def _hold(door: Door, request: bytes = LIFE) -> Wire:
    wire = await Wire.to(door.listener)
    assert (await wire.ask(request)).status == 200
    return wire


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(LIFE, id="empty"),
        pytest.param(get("/life", method="POST"), id="no length"),
        pytest.param(b"POST /life HTTP/1.0\r\n\r\n", id="HTTP/1.0"),
        pytest.param(post("/life", b"x" * 9_999), id="a body that nobody wants"),
        pytest.param(chunked("/life", b"x" * 9_999), id="in chunks"),
    ],
)
async def test_head_comes_at_once_and_the_end_only_with_the_app(door: Door, request_: bytes) -> None:
    wire = await _hold(door, request_)
    assert (door.held, door.gone) == (1, 0)
    assert not wire.ended
    wire.close()
    await door.ends(0)
    assert (door.gone, door.told.refusals) == (1, [])


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_each_end_is_told_exactly_once_and_at_once(door: Door, how: str) -> None:
    for life in range(1, 6):
        getattr(await _hold(door), how)()
        await settle()  # and no time: a successor may name itself soon, and its name must not come before the end
        assert (door.held, door.gone) == (0, life)


async def test_of_several_connections_only_the_last_one_tells_the_end(door: Door) -> None:
    first, second, third = [await _hold(door) for _ in range(3)]
    second.close()
    await door.ends(2)
    first.reset()
    await door.ends(1)
    fourth = await _hold(door)
    third.close()
    await door.ends(1)
    assert door.gone == 0
    fourth.close()
    await door.ends(0)
    assert door.gone == 1


async def test_client_that_goes_before_its_head_has_come_has_gone(door: Door) -> None:
    for _ in range(20):
        wire = await Wire.to(door.listener)
        await wire.send(LIFE)
        wire.reset()
    async with await Wire.to(door.listener) as wire:
        assert (await wire.ask(get("/verdict"))).status == 200
    await eventually(lambda: not door.listener._server.connections, timeout_s=5, what="all have gone")
    assert door.held == 0
    before = door.gone  # a reset may overtake the request: then nobody lived
    (await _hold(door)).close()
    await door.ends(0)
    assert door.gone == before + 1


async def test_held_connection_is_not_cut_as_idle(door: Door) -> None:
    held = await _hold(door)
    async with await Wire.to(door.listener) as silent:
        await eventually(lambda: door.listener._server.is_busy, timeout_s=5, what="the silent one is there")
        pass_idle(door.listener, IDLE_S + 1)
        assert await silent.rest() == b""
    assert (held.ended, door.gone, door.told.words) == (False, 0, ["idle"])
    held.close()


async def test_held_connections_neither_take_places_nor_lose_them(door: Door) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await _hold(door)) for _ in range(2 * PLACES)]
        for _ in range(3 * PLACES):
            stack.push_async_exit(await Wire.to(door.listener))
        assert await door.is_up()
        assert not any(wire.ended for wire in held)
        assert (door.held, door.gone) == (2 * PLACES, 0)


async def test_too_many_held_connections_are_refused(door: Door) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(report_api.LIVES):
            last = await stack.enter_async_context(await _hold(door))
        async with await Wire.to(door.listener) as wire:
            answer = await wire.ask(LIFE)
        assert (answer.status, answer.error) == (503, "/life: 128 connections are held already")
        last.close()
        await door.ends(report_api.LIVES - 1)
        await stack.enter_async_context(await _hold(door))
        assert await door.is_up()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/life"), 405),
        (post("/life", b"", "Origin: http://evil.example"), 403),
        (post("/life", b"", "Content-Encoding: gzip", "Content-Length: 2"), 400),
        (get("/life", "Content-Length: 999999", method="POST"), 413),
    ],
    ids=["GET", "web page", "two lengths", "large body"],
)
async def test_refused_life_tells_no_end(door: Door, request_: bytes, status: int) -> None:
    async with await Wire.to(door.listener) as wire:
        assert (await wire.ask(request_)).status == status
    assert await door.is_up()
    assert (door.held, door.gone) == (0, 0)


async def test_body_that_breaks_off_begins_no_life(door: Door) -> None:
    async with await Wire.to(door.listener) as wire:
        await wire.send(post("/life", b"four")[:-2])
    await eventually(lambda: door.told.words, timeout_s=5, what="it is refused")
    assert (door.told.words, door.gone) == (["broken"], 0)


async def test_over_tcp_it_is_refused(door: Door) -> None:
    async with listening(door.routes(), door.told) as over_tcp, await Wire.to(over_tcp) as wire:
        answer = await wire.ask(LIFE)
        assert (answer.status, answer.error) == (403, "/life: only over the unix socket")
        assert (await wire.ask(post("/heartbeat"))).status == 202
    assert (door.told.words, door.gone) == (["socket_only"], 0)


async def test_our_own_end_ends_it_promptly_and_is_no_end_of_the_app(door: Door) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await _hold(door)) for _ in range(3)]
        closing = asyncio.create_task(door.listener.close())
        await settle()
        assert closing.done()
        for wire in held:
            assert await wire.rest() == b"0\r\n\r\n"  # in order: the answer is at its end
    assert (door.held, door.gone) == (0, 0)


async def test_app_that_goes_while_we_close_tells_nobody(door: Door) -> None:
    held = await _hold(door)
    closing = asyncio.create_task(door.listener.close())
    held.reset()
    await closing
    assert (door.held, door.gone) == (0, 0)
