"""A scraper beside small servers of our own: what a page becomes, one word for each failure, and how long it takes."""

from __future__ import annotations

import asyncio
import gzip
import random
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.certificates import Authority
from harness.ports import free_port
from harness.scraping import (
    STARTED,
    TEXT,
    Handler,
    Observed,
    Page,
    answering,
    scraped,
    scraper_of,
    serving,
    turns_of_the_loop,
)
from harness.virtual_time import START_S, in_virtual_time
from harness.waiting import eventually
from sidecar.core.app_reports import Missed, Sample
from sidecar.inputs.scrape import SLICE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NOTHING_NEW = Sample({}, 0, 3.0, repr(STARTED))
LONG = b'other_bucket{le="0.5",path="/x"} 17\n' * 5000 + Page(3, 10).text().encode()

# -- pages --------------------------------------------------------------------------------------------------


async def test_second_page_becomes_a_sample() -> None:
    page = Page(7, 100)
    async with serving(page) as url:
        scraper = scraper_of(url)
        assert await scraper.scrape() == NOTHING_NEW
        page.errors, page.requests = 9, 130
        assert await scraper.scrape() == Sample({"unknown": 2}, 30, 3.0, repr(STARTED))
        await scraper.close()


async def test_page_on_a_unix_socket(run_dir: Path) -> None:
    page = Page()
    async with serving(page, path=str(run_dir / "app.sock")) as url:
        assert await scraped(url) == [NOTHING_NEW]
    assert page.asked[0].path == "/metrics"


async def test_text_is_asked_for_before_openmetrics_and_uncompressed() -> None:
    page = Page()
    async with serving(page) as url:
        await scraped(url)
    headers = page.asked[0].headers
    first = "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;version=1.0.0;q=0.6"
    assert headers["Accept"].startswith(first)
    assert headers["Accept-Encoding"] == "identity"


async def test_app_that_has_openmetrics_alone_is_scraped() -> None:
    rising = iter((5, 8))

    async def answer(_request: web.Request) -> web.Response:
        text = f'# TYPE http_requests counter\nhttp_requests_total{{code="500"}} {next(rising)} # {{id="7"}} 1\n# EOF\n'
        return web.Response(body=text.encode(), headers={"Content-Type": OPENMETRICS})

    async with serving(answer) as url:
        assert await scraped(url, 2) == [Sample({}), Sample({"unknown": 3}, 3)]


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(answering(LONG, **TEXT), id="plain"),
        pytest.param(answering(LONG[:50], LONG[50:], **TEXT), id="chunked"),
        pytest.param(answering(LONG.rstrip(), Content_Type="text/plain; version=0.0.4"), id="no line's end at the end"),
    ],
)
async def test_page_is_read_however_it_is_sent(handler: Handler) -> None:
    async with serving(handler) as url:
        assert await scraped(url) == [NOTHING_NEW]


# -- when it is asked for -----------------------------------------------------------------------------------


async def test_run_scrapes_on_one_connection_until_cancelled() -> None:
    page, observed = Page(), Observed()
    async with serving(page) as url:
        running = asyncio.create_task(scraper_of(url, observed).run())
        await eventually(lambda: len(observed.scraped) >= 5, timeout_s=60, what="five scrapes")
        peers = {request.transport.get_extra_info("peername") for request in page.asked if request.transport}
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(peers) == 1
    assert all(isinstance(report, Sample) for report in observed.scraped)


@in_virtual_time
async def test_first_scrape_is_at_once_and_intervals_are_jittered() -> None:
    loop, times = asyncio.get_running_loop(), list[float]()

    def take(_scraped: Sample | Missed) -> None:
        times.append(loop.time() - START_S)

    rng, same = random.Random(7), random.Random(7)
    running = asyncio.create_task(scraper_of("unix:///not/there.sock", take=take, interval_s=10.0, rng=rng).run())
    await asyncio.sleep(100)
    running.cancel()
    await asyncio.wait([running])
    steps = [later - sooner for sooner, later in pairwise(times)]
    assert (times[0], len(steps) >= 8) == (0, True)
    assert steps == pytest.approx([10 * (1 + 0.1 * same.uniform(-1, 1)) for _ in steps])


@pytest.mark.parametrize(
    ("page", "advice"),
    [
        (
            b'http_requests_total{status="200"} 1\nbusy 1\n',
            [
                "ARBITER_SCRAPE_ERRORS: no series on the page fits http_requests_total yet",
                "ARBITER_SCRAPE_ERRORS: no series on the page fits db_errors_total yet",
            ],
        ),
        (b'http_requests_total{code="500"} 1\ndb_errors_total 0\nbusy 1\n', []),
    ],
    ids=["nothing matches", "everything is there"],
)
async def test_selectors_that_match_nothing_are_named_once_after_three_pages(page: bytes, advice: list[str]) -> None:
    observed, sentences = Observed(), list[str]()
    async with serving(answering(page, **TEXT)) as url:
        errors = 'http_requests_total{code=~"5.."}; db_errors_total'
        scraper = scraper_of(url, observed, errors, interval_s=0.001, on_advice=sentences.append)
        running = asyncio.create_task(scraper.run())
        await eventually(lambda: len(observed.scraped) >= 6, timeout_s=60, what="six pages are read")
        running.cancel()
        await asyncio.wait([running])
    assert [sentence.partition(";")[0] for sentence in sentences] == advice


# -- turns of the loop --------------------------------------------------------------------------------------


async def test_loop_has_turns_while_a_large_page_is_read() -> None:
    lines = (f'http_requests_total{{code="{code}",path="/{n}"}} 1' for n in range(4000) for code in (200, 500))
    body = "\n".join(lines).encode() + b"\n"
    async with serving(answering(body, **TEXT)) as url:
        scraper = scraper_of(url)
        await scraper.scrape()
        with turns_of_the_loop() as turns_s:
            assert await scraper.scrape() == Sample({}, 0)
        await scraper.close()
    assert len(turns_s) > len(body) / SLICE_BYTES / 10


FLOODING = """
import socket, sys
path, head, again = sys.argv[1], *map(bytes.fromhex, sys.argv[2:])
listening = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
listening.bind(path or ("127.0.0.1", 0))
listening.listen()
print(path or listening.getsockname()[1], flush=True)
while True:
    accepted, _ = listening.accept()
    try:
        accepted.sendall(head)
        while True:
            accepted.sendall(again * 5000)
    except OSError:
        accepted.close()
"""
"""Answers without end: PATH HEAD AGAIN; without a path it listens on loopback."""

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "heads without a page": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunks of one byte": (CHUNKED, b"1\r\nx\r\n" * 9 + b"1\r\n\n\r\n"),
}


@asynccontextmanager
async def _flooding(path: str, head: bytes, again: bytes) -> AsyncIterator[str]:
    """The URL of a server in a process of its own."""
    arguments = ("-c", FLOODING, path, head.hex(), again.hex())
    server = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)
    try:
        assert server.stdout
        port = (await server.stdout.readline()).decode().strip()
        yield f"unix://{path}" if path else f"http://127.0.0.1:{port}/"
    finally:
        server.kill()
        await server.wait()


@pytest.mark.parametrize("is_unix", [False, True], ids=["TCP", "unix socket"])
@pytest.mark.parametrize(("head", "again"), FLOODS.values(), ids=FLOODS)
async def test_endless_answer_holds_no_turn_of_the_loop(
    head: bytes, again: bytes, run_dir: Path, *, is_unix: bool
) -> None:
    async with _flooding(str(run_dir / "app.sock") if is_unix else "", head, again) as url:
        scraper = scraper_of(url, timeout_s=0.5)
        await scraper.scrape()  # what is done once
        with turns_of_the_loop() as turns_s:
            assert await scraper.scrape() == Missed("timeout")
        await scraper.close()
    assert max(turns_s) < 0.02, "seconds of the processor"


# -- https and credentials ----------------------------------------------------------------------------------


async def test_https_is_scraped_only_with_a_trusted_certificate(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(*ours.sign("app"))
    async with serving(Page(), tls=served) as url:
        assert await scraped(url, tls=lambda: ssl.create_default_context(cafile=str(ours.ca))) == [NOTHING_NEW]
        assert await scraped(url) == [Missed("tls")]


async def test_credentials_are_sent_and_appear_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    page, observed = Page(), Observed()
    async with serving(page) as url:
        await scraped(url.replace("://", "://me:hush@"), observed=observed)
    missed = await scraped(f"http://me:hush@127.0.0.1:{free_port()}/", observed=observed)
    assert page.asked[0].headers["Authorization"].startswith("Basic ")
    assert "hush" not in caplog.text + repr(missed) + repr(observed)


# -- failures --------------------------------------------------------------------------------------------------------


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
    pytest.param(
        answering(b"up 1\n", Content_Type="application/openmetrics-text"), "cut_off", id="OpenMetrics without EOF"
    ),
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
