"""Connections passed on to another listener: their clients notice nothing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.raw_http import Observed, RawConnection, get, listening, post
from harness.waiting import eventually
from sidecar.net.listener import Listener
from sidecar.net.web import LongResponse, read_body

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from sidecar.net.web import Routes


class Pair:
    """A listener that passes its connections on to another; each answers with its name."""

    def __init__(self, first: Listener, second: Listener, released: asyncio.Event) -> None:
        self.first = first
        self.second = second
        self.released = released

    @property
    def has_begun(self) -> bool:
        """Whether something came on the only connection of the first, and was read."""
        return any(connection.has_begun or connection.is_asked for connection in self.first._server._last_request)

    @property
    def is_asked(self) -> bool:
        """Whether the first has a request."""
        return self.first._server.requests_count > 0

    async def give(self) -> int:
        """Give what can be given, as often as it takes a moment; how many were."""
        given: list[socket.socket] = []
        for _ in range(20):
            given += self.first.let_go()
            await asyncio.sleep(0.001)
        for connection in given:
            await self.second.adopt_connection(connection)
        return len(given)


def _routes(name: str, released: asyncio.Event) -> Routes:
    async def who(_request: web.BaseRequest) -> web.Response:
        return web.Response(text=name)

    async def echo(request: web.BaseRequest) -> web.Response:
        return web.Response(body=await read_body(request))

    async def slow(_request: web.BaseRequest) -> web.Response:
        await released.wait()
        return web.Response(text=name)

    async def life(_request: web.BaseRequest) -> web.StreamResponse:
        return LongResponse(lambda: None)

    return {"/name": {"GET": who}, "/echo": {"POST": echo}, "/slow": {"GET": slow}, "/life": {"POST": life}}


@asynccontextmanager
async def _pair(observed: Observed) -> AsyncIterator[Pair]:
    released = asyncio.Event()
    first, second = (_routes(name, released) for name in ("first", "second"))
    async with listening(first, observed) as one, listening(second, observed) as other:
        yield Pair(one, other, released)


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.mark.parametrize("before", [0, 1, 3], ids="after {} requests".format)
async def test_connection_between_two_requests_goes_on_at_the_second_listener(observed: Observed, before: int) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        for _ in range(before):
            assert (await wire.ask(get("/name"))).body == b"first"
        await eventually(lambda: pair.first.is_busy, timeout_s=60, what="the connection is there")
        assert await pair.give() == 1
        assert not pair.first.is_busy
        assert (await wire.ask(get("/name"))).body == b"second"
        assert (await wire.ask(post("/echo", b"after"))).body == b"after"


async def test_request_that_comes_meanwhile_is_answered_by_the_second_listener(observed: Observed) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        await wire.ask(get("/name"))
        (given,) = pair.first.let_go()
        await wire.send(get("/name"))
        await asyncio.sleep(0.01)
        await pair.second.adopt_connection(given)
        assert (await wire.answer()).body == b"second"


async def test_request_under_way_is_answered_first(observed: Observed) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        await wire.send(get("/slow"))
        await eventually(lambda: pair.is_asked, timeout_s=60, what="it is under way")
        assert await pair.give() == 0
        pair.released.set()
        assert (await wire.answer()).body == b"first"
        assert await pair.give() == 1
        assert (await wire.ask(get("/name"))).body == b"second"


@pytest.mark.parametrize(
    "piece", [b"GET /name HT", post("/echo", b"0123456789")[:-5]], ids=["half a head", "half a body"]
)
async def test_connection_with_a_partly_read_request_stays(observed: Observed, piece: bytes) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        await wire.send(piece)
        await eventually(lambda: pair.has_begun, timeout_s=60, what="the piece was read")
        assert await pair.give() == 0
        assert pair.first.is_busy


async def test_connection_whose_last_request_had_a_body_is_passed_on_too(observed: Observed) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        request = post("/echo", b"0123456789")
        await wire.send(request[:-5])
        await eventually(lambda: pair.has_begun, timeout_s=60, what="the piece was read")
        assert (await wire.ask(request[-5:])).body == b"0123456789"
        assert await pair.give() == 1
        assert (await wire.ask(get("/name"))).body == b"second"


async def test_connection_with_a_long_response_is_neither_passed_on_nor_waited_for(observed: Observed) -> None:
    async with _pair(observed) as pair, await RawConnection.to(pair.first) as wire:
        assert (await wire.ask(post("/life"))).status == 200
        assert await pair.give() == 0
        assert not pair.first.is_busy
