from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestClient, TestServer

from client.conftest import Totals, failed
from harness.waiting import eventually
from sidecar.client import arbiter_aiohttp_middleware

Client = TestClient[web.Request, web.Application]


class DriverError(Exception):
    pass


DriverError.__module__ = "redis.exceptions"


async def _answer(request: web.Request) -> web.StreamResponse:
    """What the path asks for."""
    match request.path:
        case "/bad":
            return web.Response(status=503)
        case "/raised":
            raise web.HTTPBadGateway
        case "/driver":
            raise web.HTTPServiceUnavailable from DriverError()
        case "/redirect":
            raise web.HTTPFound("/fine")
        case "/broken":
            raise DriverError
        case "/stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"a")
            raise KeyError("a")
    return web.Response(text="fine")


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    clients: list[Client] = []

    async def start(page: Callable[[web.Request], Awaitable[web.StreamResponse]] = _answer) -> Client:
        app = web.Application(middlewares=[arbiter_aiohttp_middleware])
        app.router.add_get("/{name}", page)
        client = TestClient(TestServer(app, handler_cancellation=True))
        await client.start_server()
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()


Serve = Callable[..., Awaitable[Client]]


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/fine", 200, {"ok": 1}),
        ("/no/where", 404, {"ok": 1}),
        ("/redirect", 302, {"ok": 1}),
        ("/bad", 503, failed("http_503")),
        ("/raised", 502, failed("HTTPBadGateway")),
        ("/driver", 503, failed("redis")),
        ("/broken", 500, failed("redis")),
    ],
)
async def test_status_and_exceptions_decide(
    path: str, status: int, expected: dict[str, int], serve: Serve, totals: Totals
) -> None:
    client = await serve()
    async with client.get(path, allow_redirects=False) as response:
        assert response.status == status
    await eventually(lambda: totals() == expected, timeout_s=60, what=f"{expected} is sent")


async def test_exception_after_the_answer_began_is_an_error(serve: Serve, totals: Totals) -> None:
    client = await serve()
    with pytest.raises((ClientPayloadError, ClientConnectionError)):
        await (await client.get("/stream")).read()
    expected = failed("KeyError")
    await eventually(lambda: totals() == expected, timeout_s=60, what="the error is sent")


async def test_client_that_leaves_is_no_error(serve: Serve, totals: Totals) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("nobody sets it")

    client = await serve(slow)
    getting = asyncio.ensure_future(client.get("/slow"))
    await began.wait()
    getting.cancel()
    await asyncio.wait_for(ended.wait(), 60)
    assert totals() == {}


async def test_client_that_leaves_within_a_stream_is_no_error(serve: Serve, totals: Totals) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await left.wait()
        try:
            while True:
                await response.write(b"x" * 65_536)
        finally:
            ended.set()

    client = await serve(stream)
    async with ClientSession(timeout=ClientTimeout(60)) as session:
        response = await session.get(client.make_url("/endless"))
        response.close()
    left.set()
    await asyncio.wait_for(ended.wait(), 60)
    assert "failed" not in totals()
    assert not any(line.startswith("errors") for line in totals())
