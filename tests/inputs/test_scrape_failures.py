"""A scraper beside servers that have no page for it: one word for each cause, and nothing counted."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.ports import free_port
from harness.scraping import TEXT, Handler, Observed, Page, answering, scraped, scraper_of, serving
from harness.waiting import eventually
from sidecar.core.app_reports import Missed, Sample

if TYPE_CHECKING:
    from pathlib import Path


async def _reset(request: web.Request) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()


async def _half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"http_requests_total 5\n")
    assert request.transport
    request.transport.close()
    return response


async def _redirect(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


def _status(status: int) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=Page().text())

    return answer


OPENMETRICS = {"Content_Type": "application/openmetrics-text"}
MISSES = [
    pytest.param(_status(503), "status", id="503"),
    pytest.param(_status(204), "status", id="204"),
    pytest.param(_redirect, "redirect", id="redirect"),
    pytest.param(_reset, "connection", id="reset"),
    pytest.param(_half, "cut_off", id="shorter than its length"),
    pytest.param(answering(b"<html>", Content_Type="text/html"), "content_type", id="HTML"),
    pytest.param(answering(b"{}", Content_Type="application/json"), "content_type", id="JSON"),
    pytest.param(answering(b"http_requests_total x\n", **TEXT), "format", id="no number"),
    pytest.param(answering(b"x" * 100_000, **TEXT), "format", id="a line without end"),
    pytest.param(answering(b"up 1\n", **OPENMETRICS), "cut_off", id="OpenMetrics without EOF"),
    pytest.param(answering(b"up 1\n" * 300_000, **TEXT), "too_large", id="too large"),
    pytest.param(answering(gzip.compress(b"up 1\n"), **TEXT, Content_Encoding="gzip"), "encoding", id="compressed"),
]


@pytest.mark.parametrize(("handler", "cause"), MISSES)
async def test_failed_scrape_is_one_word(handler: Handler, cause: str) -> None:
    async with serving(handler) as url:
        assert await scraped(url, 2, max_bytes=1_000_000) == [Missed(cause)] * 2


async def test_page_that_takes_too_long_is_a_timeout() -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        response = await answering(b"up 1\n", b"up 2\n", **TEXT)(request)
        transport = request.transport
        assert transport
        await eventually(transport.is_closing, timeout_s=60, what="the client gives up")
        return response

    async with serving(never) as url:
        assert await scraped(url, timeout_s=0.05) == [Missed("timeout")]


async def test_refused_connection_is_a_missed_scrape(run_dir: Path) -> None:
    for url in (f"http://127.0.0.1:{free_port()}/metrics", f"unix://{run_dir}/none.sock"):
        assert await scraped(url) == [Missed("connection")]


async def _scraped_raw(*answers: bytes) -> list[Sample | Missed]:
    """The results of scrapes of a server that sends these bytes, each on a connection that it then closes."""
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(left))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        return await scraped(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", len(answers))


async def test_answer_that_is_not_http_is_a_protocol_error() -> None:
    answers = (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")
    assert await _scraped_raw(*answers) == [Missed("protocol")] * 2


async def test_text_that_ends_with_its_connection_is_used_up_to_its_last_whole_line() -> None:
    head = b'HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhttp_requests_total{code="500"} '
    pages = (b"10\nhttp_requests_total 55", b"12\nhttp_requests_total 5", b"13\n")
    samples = [Sample({}), Sample({"unknown": 2}, 2), Sample({"unknown": 1}, 1)]
    assert await _scraped_raw(*(head + page for page in pages)) == samples


@pytest.mark.parametrize("url", ["http://a..b/", "http://user:p\u0107@127.0.0.1:1/", "http://user:%C4%87@127.0.0.1:1/"])
async def test_host_or_password_that_http_cannot_have_is_quoted_nowhere(url: str) -> None:
    assert await scraped(url) == [Missed("protocol")]


async def test_unforeseen_failure_is_reported_and_a_missed_scrape() -> None:
    def broken() -> float:
        raise RuntimeError("no clock")

    observed = Observed()
    assert await scraper_of("https://localhost:1/", observed, tls=broken).scrape() == Missed("internal")
    assert [str(error) for error in observed.failures] == ["no clock"]
