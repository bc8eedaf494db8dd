"""The middleware of aiohttp, called as aiohttp calls it, and under its server where a client leaves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from client.conftest import Totals, failed
from sidecar.client import arbiter_aiohttp_middleware
from sidecar.client.exchange import CURRENT

DriverError = type("DriverError", (Exception,), {"__module__": "redis.exceptions"})


def _from_driver() -> BaseException:
    error = web.HTTPServiceUnavailable()
    error.__cause__ = DriverError()
    return error


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (web.Response(), {"ok": 1}),
        (web.HTTPFound("/fine"), {"ok": 1}),
        (web.HTTPNotFound(), {"ok": 1}),
        (web.Response(status=503), failed("http_503")),
        (web.HTTPInternalServerError(), failed("HTTPInternalServerError")),
        (_from_driver(), failed("redis")),
        (DriverError(), failed("redis")),
        (ConnectionResetError("of a database"), failed("ConnectionResetError")),
        (asyncio.CancelledError(), {}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
async def test_status_and_exceptions_decide(
    end: web.Response | BaseException, expected: dict[str, int], totals: Totals
) -> None:
    async def handle(_request: web.Request) -> web.StreamResponse:
        if isinstance(end, BaseException):
            raise end
        return end

    request = make_mocked_request("GET", "/", transport=Mock(is_closing=lambda: False))
    passed: object = None
    try:
        passed = await arbiter_aiohttp_middleware(request, handle)
    except BaseException as error:  # noqa: BLE001 - it has to pass through unchanged
        passed = error
    assert passed is end
    assert totals() == expected
    assert CURRENT.get() is None


async def test_client_that_leaves_within_a_stream_is_no_error(totals: Totals) -> None:
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

    app = web.Application(middlewares=[arbiter_aiohttp_middleware])
    app.router.add_get("/", stream)
    async with TestClient(TestServer(app)) as client:
        response = await client.get("/")
        response.close()
        left.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 60)
    assert ended.is_set()
    assert totals() == {}
