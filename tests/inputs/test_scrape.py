"""A scraper beside small servers of our own: what a page becomes, when it is asked for, and how long that takes."""

from __future__ import annotations

import asyncio
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
