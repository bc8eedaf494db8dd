"""A scraper beside small servers of our own: what a page becomes, and the one word for each way to have none."""

from __future__ import annotations

import asyncio
import gzip
import random
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from harness.binaries import require
from harness.ports import free_port
from harness.virtual_time import START_S, in_virtual_time
from harness.waiting import eventually
from sidecar.config.selectors import parse_selectors
from sidecar.config.urls import parse_target
from sidecar.core.types import Missed, Report, Sample
from sidecar.inputs.page_download import SLICE_BYTES
from sidecar.inputs.scrape import CAUSES, Scraper
from sidecar.inputs.series_selection import SeriesSelection

T0 = 1_700_000_000.0
START = T0 - 100
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ERRORS = 'http_requests_total{code=~"5.."}'


@dataclass
class Page:
    """A page that counts on, and what was asked of it."""

    errors: int = 0
    requests: int = 0
    asked: list[web.Request] = field(default_factory=list)

    def text(self) -> str:
        return (
            "# TYPE http_requests_total counter\n"
            f'http_requests_total{{code="200"}} {self.requests - self.errors}\n'
            f'http_requests_total{{code="503"}} {self.errors}\n'
            "# TYPE busy gauge\nbusy 3\n"
            f"process_start_time_seconds {START}\n"
        )

    def rise(self, errors: int, requests: int) -> None:
        self.errors += errors
        self.requests += requests

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return web.Response(text=self.text())


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _serving(
    handler: Handler, *, path: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The URL at which the handler answers."""
    runner = web.ServerRunner(web.Server(cast("Any", handler)), shutdown_timeout=1)
    await runner.setup()
    port = free_port()
    site = web.UnixSite(runner, path) if path else web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    try:
        yield f"unix://{path}" if path else f"http{'s' if tls else ''}://localhost:{port}/metrics"
    finally:
        await runner.cleanup()


@dataclass
class Observed:
    """The reports and the exceptions of a scraper."""

    reports: list[Report] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def offer(self, reports: Sequence[Report]) -> bool:
        self.reports += reports
        return True


def _scraper(url: str, observed: Observed, errors: str = ERRORS, **how: Any) -> Scraper:
    wanted = SeriesSelection(parse_selectors(errors), parse_selectors("http_requests_total"), parse_selectors("busy"))
    options: dict[str, Any] = {"interval_s": 0.02, "timeout_s": 5.0, "rng": random.Random(1)} | how
    return Scraper(parse_target(url), wanted, offer=observed.offer, on_failure=observed.failures.append, **options)


@pytest.mark.parametrize(
    ("page", "advice"),
    [
        (
            b'http_requests_total{status="200"} 1\nbusy 1\n',
            [
                "ARBITER_SCRAPE_ERRORS: http_requests_total has no label code on the page; its labels are status",
                "ARBITER_SCRAPE_ERRORS: nothing on the page is called db_errors_total",
            ],
        ),
        (b'http_requests_total{code="500"} 1\n# TYPE db_errors_total counter\nbusy 1\n', []),
    ],
    ids=["nothing matches", "everything is there or declared"],
)
async def test_selectors_that_match_nothing_are_named_once_after_three_pages(page: bytes, advice: list[str]) -> None:
    observed, sentences, served = Observed(), list[str](), 0

    async def serve(_request: web.Request) -> web.Response:
        nonlocal served
        served += 1
        return web.Response(body=page, content_type="text/plain")

    async with _serving(serve) as url:
        errors = 'http_requests_total{code=~"5.."}; db_errors_total'
        scraper = _scraper(url, observed, errors, interval_s=0.001, on_advice=sentences.append)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(scraper.run())
            await eventually(lambda: served >= 6, timeout_s=60, what="six pages are read")
            running.cancel()
    assert sentences == advice


async def _scrape(handler: Handler, **how: Any) -> Sample | Missed:
    """The second of two scrapes."""
    observed = Observed()
    async with _serving(handler) as url:
        scraper = _scraper(url, observed, **how)
        try:
            await scraper.scrape()
            return await scraper.scrape()
        finally:
            await scraper.close()
            assert not observed.failures


def _answering(body: bytes, **headers: str) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


# -- good pages ---------------------------------------------------------------------------------------------


async def test_second_page_becomes_a_sample() -> None:
    page, observed = Page(7, 100), Observed()
    async with _serving(page) as url:
        scraper = _scraper(url, observed)
        first = await scraper.scrape()
        page.rise(errors=2, requests=30)
        second = await scraper.scrape()
        await scraper.close()
    assert first == Sample({}, 0, 3.0, repr(START))
    assert second == Sample({"unknown": 2}, 30, 3.0, repr(START))


async def test_page_on_a_unix_socket(run_dir: Path) -> None:
    page = Page()
    async with _serving(page, path=str(run_dir / "app.sock")) as url:
        scraper = _scraper(url, Observed())
        assert isinstance(await scraper.scrape(), Sample)
        await scraper.close()
    assert page.asked[0].path == "/metrics"


async def test_run_scrapes_on_one_connection_until_cancelled() -> None:
    page, observed = Page(), Observed()
    async with _serving(page) as url:
        running = asyncio.create_task(_scraper(url, observed).run())
        await eventually(lambda: len(observed.reports) >= 5, timeout_s=60, what="five scrapes")
        peers = {request.transport.get_extra_info("peername") for request in page.asked if request.transport}
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(peers) == 1
    assert all(isinstance(report, Sample) for report in observed.reports)


@in_virtual_time
async def test_first_scrape_is_at_once_and_intervals_are_jittered() -> None:
    loop, times = asyncio.get_running_loop(), []

    def offer(_reports: Sequence[Report]) -> bool:
        times.append(loop.time() - START_S)
        return True

    rng, same = random.Random(7), random.Random(7)
    scraper = _scraper("unix:///not/there.sock", Observed(), interval_s=10.0, rng=rng)
    scraper._offer = offer
    running = asyncio.create_task(scraper.run())
    await asyncio.sleep(100)
    running.cancel()
    await asyncio.wait([running])
    steps = [later - sooner for sooner, later in pairwise(times)]
    assert times[0] == 0
    assert len(steps) >= 8
    assert steps == pytest.approx([10 * (1 + 0.1 * same.uniform(-1, 1)) for _ in steps])


async def test_text_is_asked_for_before_openmetrics_and_uncompressed() -> None:
    page = Page()
    async with _serving(page) as url:
        scraper = _scraper(url, Observed())
        await scraper.scrape()
        await scraper.close()
    headers = page.asked[0].headers
    assert headers["Accept"].startswith(
        "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;version=1.0.0;q=0.6"
    )
    assert headers["Accept-Encoding"] == "identity"


async def test_app_that_has_openmetrics_alone_is_scraped() -> None:
    rising = iter((5, 8))

    async def answer(_request: web.Request) -> web.Response:
        text = f'# TYPE http_requests counter\nhttp_requests_total{{code="500"}} {next(rising)} # {{id="7"}} 1\n# EOF\n'
        return web.Response(body=text.encode(), headers={"Content-Type": OPENMETRICS})

    assert await _scrape(answer) == Sample({"unknown": 3}, 3)


def _streaming(pieces: Sequence[bytes], **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={name.replace("_", "-"): value for name, value in headers.items()})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return answer


LONG = b'other_bucket{le="0.5",path="/x"} 17\n' * 5000 + Page(3, 10).text().encode()


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(_answering(LONG, Content_Type="text/plain"), id="plain"),
        pytest.param(_streaming([LONG[:50], LONG[50:]], Content_Type="text/plain"), id="chunked"),
        pytest.param(
            _answering(LONG.rstrip(), Content_Type="text/plain; version=0.0.4"), id="no line's end at the end"
        ),
    ],
)
async def test_page_is_read_however_it_is_sent(handler: Handler) -> None:
    assert await _scrape(handler) == Sample({}, 0, 3.0, repr(START))


async def test_loop_has_turns_while_a_large_page_is_read() -> None:
    lines = (f'http_requests_total{{code="{code}",path="/{n}"}} 1' for n in range(4000) for code in (200, 500))
    body, stalls = "\n".join(lines).encode() + b"\n", []

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            stalls.append(time.thread_time() - before)

    observed = Observed()
    async with _serving(_answering(body, Content_Type="text/plain")) as url:
        scraper = _scraper(url, observed)
        await scraper.scrape()
        watching = asyncio.create_task(watch())
        sample = await scraper.scrape()
        watching.cancel()
        await scraper.close()
    assert sample == Sample({}, 0)
    assert len(stalls) > len(body) / SLICE_BYTES / 10


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
    turns_s: list[float] = []

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            turns_s.append(time.thread_time() - before)

    async with _flooding(str(run_dir / "app.sock") if is_unix else "", head, again) as url:
        scraper = _scraper(url, Observed(), timeout_s=0.5)
        await scraper.scrape()  # what is done once
        watching = asyncio.create_task(watch())
        assert await scraper.scrape() == Missed("timeout")
        watching.cancel()
        await scraper.close()
    assert max(turns_s) < 0.02, "seconds of the processor"


# -- no page ------------------------------------------------------------------------------------------------


async def _reset(request: web.Request) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()


async def _never(request: web.Request) -> web.StreamResponse:
    response = await _streaming([b"up 1\n"], Content_Type="text/plain")(request)
    transport = request.transport
    assert transport
    await eventually(transport.is_closing, timeout_s=60, what="the client gives up")
    return response


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


TEXT = {"Content_Type": "text/plain"}
MISSES = [
    pytest.param(_status(503), "status", id="503"),
    pytest.param(_status(204), "status", id="204"),
    pytest.param(_redirect, "redirect", id="redirect"),
    pytest.param(_reset, "connection", id="reset"),
    pytest.param(_half, "cut_off", id="shorter than its length"),
    pytest.param(_answering(b"<html>", Content_Type="text/html"), "content_type", id="HTML"),
    pytest.param(_answering(b"{}", Content_Type="application/json"), "content_type", id="JSON"),
    pytest.param(_answering(b"http_requests_total x\n", **TEXT), "format", id="no number"),
    pytest.param(_answering(b"x" * 100_000, **TEXT), "format", id="a line without end"),
    pytest.param(_answering(b"up 1\n", Content_Type=OPENMETRICS), "cut_off", id="OpenMetrics without EOF"),
    pytest.param(_answering(b"up 1\n" * 300_000, **TEXT), "too_large", id="too large"),
    pytest.param(_answering(gzip.compress(LONG), **TEXT, Content_Encoding="gzip"), "encoding", id="compressed"),
]


@pytest.mark.parametrize(("handler", "cause"), MISSES)
async def test_failed_scrape_is_one_word(handler: Handler, cause: str) -> None:
    assert await _scrape(handler, max_bytes=1_000_000) == Missed(cause)
    assert cause in CAUSES


async def test_page_that_takes_too_long_is_a_timeout() -> None:
    assert await _scrape(_never, timeout_s=0.05) == Missed("timeout")


async def test_refused_connection_is_a_missed_scrape(run_dir: Path) -> None:
    for url in (f"http://127.0.0.1:{free_port()}/metrics", f"unix://{run_dir}/none.sock", "http://127.0.0.1:1/"):
        scraper = _scraper(url, Observed())
        assert await scraper.scrape() == Missed("connection")
        await scraper.close()


async def _scraped_raw(*answers: bytes) -> list[Sample | Missed]:
    """The results of scrapes of a server that sends these bytes, each on a connection that it then closes."""
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(left))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        scraper = _scraper(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", Observed())
        results = [await scraper.scrape() for _ in answers]
        await scraper.close()
    return results


async def test_answer_that_is_not_http_is_a_protocol_error() -> None:
    answers = (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")
    assert await _scraped_raw(*answers) == [Missed("protocol")] * 2


@pytest.mark.parametrize("url", ["http://a..b/", "http://user:p\u0107@127.0.0.1:1/", "http://user:%C4%87@127.0.0.1:1/"])
async def test_host_or_password_that_http_cannot_have_is_quoted_nowhere(url: str) -> None:
    scraper = _scraper(url, observed := Observed())
    assert await scraper.scrape() == Missed("protocol")
    assert observed.failures == []
    await scraper.close()


async def test_text_that_ends_with_its_connection_is_used_up_to_its_last_whole_line() -> None:
    head = b'HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhttp_requests_total{code="500"} '
    pages = (b"10\nhttp_requests_total 55", b"12\nhttp_requests_total 5", b"13\n")
    samples = [Sample({}), Sample({"unknown": 2}, 2), Sample({"unknown": 1}, 1)]
    assert await _scraped_raw(*(head + page for page in pages)) == samples


async def test_unforeseen_failure_is_reported_and_a_missed_scrape() -> None:
    def broken() -> float:
        raise RuntimeError("no clock")

    observed = Observed()
    scraper = _scraper("https://localhost:1/", observed, tls=broken)
    assert await scraper.scrape() == Missed("internal")
    assert [str(error) for error in observed.failures] == ["no clock"]


# -- https and credentials ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its own certificate for localhost, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = [require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True, timeout=90)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


async def test_https_is_scraped_only_with_a_trusted_certificate(certificate: Path) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    observed = Observed()
    async with _serving(Page(), tls=served) as url:
        trusting = _scraper(url, observed, tls=lambda: ssl.create_default_context(cafile=str(certificate)))
        strict = _scraper(url, observed)
        answers = [await trusting.scrape(), await strict.scrape()]
        await trusting.close()
        await strict.close()
    assert answers == [Sample({}, 0, 3.0, repr(START)), Missed("tls")]
    assert not observed.failures


async def test_credentials_are_sent_and_appear_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    page, observed = Page(), Observed()
    async with _serving(page) as url:
        scraper = _scraper(url.replace("://", "://me:hush@"), observed)
        await scraper.scrape()
        await scraper.close()
    gone = _scraper(f"http://me:hush@127.0.0.1:{free_port()}/", observed)
    missed = await gone.scrape()
    await gone.close()
    assert page.asked[0].headers["Authorization"].startswith("Basic ")
    assert "hush" not in caplog.text + repr(missed) + repr(observed)
