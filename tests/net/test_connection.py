"""What one connection may request, and that little of what it sends ahead is buffered."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.raw_http import Observed, RawConnection, chunked, get, listening, pass_idle, post
from harness.waiting import eventually
from sidecar.net.bounded_server import UNREAD_S
from sidecar.net.chunked_body import CHUNKS_LIMIT
from sidecar.net.connection import READ_BYTES
from sidecar.net.fast_path import FIRST_BYTES
from sidecar.net.listener import Listener
from sidecar.net.request_head import HEAD_LIMIT, RequestHead
from sidecar.net.web import read_body

if TYPE_CHECKING:
    from sidecar.net.web import Routes

UPGRADE = get("/slow", "Connection: Upgrade", "Upgrade: websocket")
READY = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n"


class Slow:
    """A route that answers when the test allows it."""

    def __init__(self) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()

    async def get(self, _request: web.BaseRequest) -> web.Response:
        self.asked += 1
        await self.goes_on.wait()
        return web.Response(text="slow\n")

    async def echo(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=await read_body(request))

    async def ready(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(text="ready\n")

    async def big(self, _request: web.BaseRequest) -> web.Response:
        self.asked += 1
        return web.Response(body=b"x" * 2_000_000)

    @property
    def routes(self) -> Routes:
        return {
            "/slow": {"GET": self.get, "POST": self.echo},
            "/big": {"GET": self.big},
            "/ready": {"GET": self.ready},
        }


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def slow() -> Slow:
    return Slow()


def _ready(head: RequestHead) -> bytes | None:
    return READY if head.target == "/ready" else None


def _held_bytes(listener: Listener) -> int:
    return sum(len(connection._rest) for connection in listener._server._last_request)


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "request_"),
    [
        pytest.param("upgrade", UPGRADE, id="upgrade"),
        pytest.param("upgrade", UPGRADE + b"x" * 100_000, id="upgrade and what follows"),
        pytest.param("upgrade", b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", id="CONNECT"),
        pytest.param("body", get("/slow", "Content-Length: 5") + b"hello", id="body of a GET"),
        pytest.param("body", get("/slow", "Transfer-Encoding: chunked") + b"0\r\n\r\n", id="chunks of a GET"),
        pytest.param("chunks", chunked("/slow", *[b"x"] * CHUNKS_LIMIT), id="tiny chunks"),
        pytest.param("not_http", get("/slow", *["A: " + "x" * 4_000] * 5), id="head too large"),
        pytest.param(
            "not_http", (get("/slow")[:-2] + b"A: b\r\n" * 10_000)[: HEAD_LIMIT + 1], id="head without an end"
        ),
    ],
)
async def test_request_is_refused_with_a_sentence_and_its_connection_ended(
    observed: Observed, slow: Slow, word: str, request_: bytes
) -> None:
    async with listening(slow.routes, observed) as listener:
        for kept in (False, True):
            async with await RawConnection.to(listener) as wire:
                if kept:
                    assert (await wire.ask(post("/slow", b"first"))).body == b"first"
                answer = await wire.ask(request_)
                assert (answer.status, answer.headers["connection"]) == (400, "close")
                assert answer.error
                assert await wire.rest() == b""
    assert observed.refusals == [("listener", word)] * 2
    assert (slow.asked, observed.failures) == (0, [])


async def test_chunks_that_come_in_time_are_cut_when_they_are_too_many(observed: Observed, slow: Slow) -> None:
    async with listening(slow.routes, observed) as listener, await RawConnection.to(listener) as wire:
        request = chunked("/slow", *[b"x"] * CHUNKS_LIMIT)
        await wire.send(request[:200])
        await eventually(lambda: listener._server.requests_count, timeout_s=60, what="the head is read")
        await wire.send(request[200:])
        assert await wire.rest() == b""
    assert observed.words[0] == "chunks"
    assert observed.failures == []


async def test_listener_without_bodies_refuses_them_all(observed: Observed, slow: Slow) -> None:
    async with (
        listening(slow.routes, observed, takes_bodies=False) as listener,
        await RawConnection.to(listener) as wire,
    ):
        assert (await wire.ask(post("/slow", b"hello"))).status == 400
    assert observed.words == ["body"]


async def test_upgrade_that_a_server_may_ignore_is_ignored(observed: Observed, slow: Slow) -> None:
    asks = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    async with listening(slow.routes, observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(post("/slow", b"first", *asks) + post("/slow", b"next"))
        assert [(await wire.answer()).body for _ in range(2)] == [b"first", b"next"]
    assert observed == Observed()


# -- what is sent ahead -------------------------------------------------------------------------------------


async def test_responses_of_cache_and_aiohttp_come_in_the_order_of_the_requests(observed: Observed, slow: Slow) -> None:
    async with (
        listening(slow.routes, observed, response_cache=_ready) as listener,
        await RawConnection.to(listener) as wire,
    ):
        await wire.send(get("/ready") + get("/slow") + get("/ready") * 3 + post("/slow", b"echo") + get("/ready"))
        assert (await wire.answer()).body == b"ready\n"
        await eventually(lambda: slow.asked, timeout_s=60, what="it is asked")
        slow.goes_on.set()
        rest = [(await wire.answer()).body for _ in range(6)]
        assert rest == [b"slow\n", b"ready\n", b"ready\n", b"ready\n", b"echo", b"ready\n"]


async def test_little_is_read_while_a_response_is_awaited(observed: Observed, slow: Slow) -> None:
    async with listening(slow.routes, observed) as listener, await RawConnection.to(listener) as wire:
        sending = asyncio.create_task(wire.send(get("/slow") * 100_000))
        await eventually(lambda: slow.asked, timeout_s=60, what="it is asked")
        for _ in range(50):
            await asyncio.sleep(0.001)
            assert _held_bytes(listener) <= 2 * READ_BYTES
        assert slow.asked == 1
        wire.reset()
        sending.cancel()


async def test_client_that_does_not_read_gets_no_further_responses_and_is_cut_in_time(
    observed: Observed, slow: Slow
) -> None:
    async with listening(slow.routes, observed, response_cache=_ready) as listener:
        for request in (get("/ready"), get("/big")):
            async with await RawConnection.to(listener) as wire:
                wire._reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that does not read
                sending = asyncio.create_task(wire.send(request * 400_000))
                await eventually(lambda: listener._server._unread, timeout_s=60, what="it does not read")
                assert _held_bytes(listener) <= 2 * READ_BYTES
                pass_idle(listener, UNREAD_S + 1)
                await eventually(lambda: not listener._server._last_request, timeout_s=60, what="it is cut")
                sending.cancel()
    assert observed.words == ["unread"] * 2
    assert slow.asked <= 2


@pytest.mark.parametrize("size", [FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1])
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_poll_with_a_head_as_long_as_the_first_read_is_answered(
    observed: Observed, slow: Slow, size: int, connection: str
) -> None:
    headers = [f"Connection: {connection}", "A: a", "B: b"]
    missing = size - len(get("/ready", *headers))
    headers[1:] = ["A: a" + "x" * (missing // 2), "B: b" + "x" * (missing - missing // 2)]
    request = get("/ready", *headers)
    assert len(request) == size
    async with (
        listening(slow.routes, observed, response_cache=_ready) as listener,
        await RawConnection.to(listener) as wire,
    ):
        assert (await wire.ask(request)).body == b"ready\n"


async def test_pipelined_polls_are_all_answered_and_leave_others_their_turn(observed: Observed, slow: Slow) -> None:
    async with (
        listening(slow.routes, observed, response_cache=_ready) as listener,
        await RawConnection.to(listener) as wire,
    ):
        sending = asyncio.create_task(wire.send(get("/ready") * 2_000))
        for n in range(2_000):
            assert (await wire.answer()).body == b"ready\n"
            if n == 100:
                async with await RawConnection.to(listener) as other:
                    assert (await other.ask(get("/ready"))).body == b"ready\n"
        await sending
    assert observed == Observed()


async def test_memory_of_closed_connections_is_freed(observed: Observed, slow: Slow) -> None:
    """And not at the next collection: attackers are quicker than that comes."""

    async def come_and_go(count: int) -> int:
        for _ in range(count):
            async with await RawConnection.to(listener) as wire:
                before = listener._server.requests_count
                await wire.send(post("/slow", b"x" * 60_000)[:-1])
                await eventually(lambda: listener._server.requests_count > before, timeout_s=60, what="it is asked")  # noqa: B023
        await eventually(lambda: not listener._server.connections, timeout_s=60, what="all have gone")
        return tracemalloc.get_traced_memory()[0]

    async with listening(slow.routes, observed) as listener:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            first = await come_and_go(5)
            assert await come_and_go(50) - first < 10 * 60_000
        finally:
            tracemalloc.stop()
            gc.enable()
