"""Small servers of metrics pages in this process, and scrapers that ask them."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiohttp import web

from harness.ports import free_port
from sidecar.config.addresses import parse_target
from sidecar.config.selectors import parse_selectors
from sidecar.core.app_reports import Missed, Sample
from sidecar.inputs.scrape import Scraper
from sidecar.inputs.series_selection import SeriesSelection

STARTED: Final = 1_700_000_000.0
ERRORS: Final = 'http_requests_total{code=~"5.."}'
TEXT: Final = {"Content_Type": "text/plain"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Page:
    """A page that counts on, and what was asked of it."""

    errors: int = 0
    requests: int = 0
    asked: list[web.Request] = field(default_factory=list)

    def text(self) -> str:
        """What an app serves."""
        return (
            "# TYPE http_requests_total counter\n"
            f'http_requests_total{{code="200"}} {self.requests - self.errors}\n'
            f'http_requests_total{{code="503"}} {self.errors}\n'
            "# TYPE busy gauge\nbusy 3\n"
            f"process_start_time_seconds {STARTED}\n"
        )

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Serve it."""
        self.asked.append(request)
        return web.Response(text=self.text())


def answering(*pieces: bytes, **headers: str) -> Handler:
    """A handler that sends one body as it is, or several pieces in chunks."""

    async def answer(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if len(pieces) == 1:
            return web.Response(body=pieces[0], headers=named)
        response = web.StreamResponse(headers=named)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return answer


@asynccontextmanager
async def serving(
    handler: Handler, *, path: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The URL at which the handler answers: on loopback, or on the unix socket ``path``."""
    runner = web.ServerRunner(web.Server(cast("Any", handler)), shutdown_timeout=1)
    await runner.setup()
    port = free_port()
    site = web.UnixSite(runner, path) if path else web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    try:
        yield f"unix://{path}" if path else f"http{'s' if tls else ''}://127.0.0.1:{port}/metrics"
    finally:
        await runner.cleanup()


@dataclass
class Observed:
    """The results and the exceptions of a scraper."""

    scraped: list[Sample | Missed] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)


def scraper_of(url: str, observed: Observed | None = None, errors: str = ERRORS, **how: Any) -> Scraper:
    """A scraper of errors, requests and requests in flight."""
    observed = observed or Observed()
    wanted = SeriesSelection(parse_selectors(errors), parse_selectors("http_requests_total"), parse_selectors("busy"))
    options: dict[str, Any] = {
        "take": observed.scraped.append,
        "on_failure": observed.failures.append,
        "interval_s": 0.02,
        "timeout_s": 5.0,
        "rng": random.Random(1),
    }
    return Scraper(parse_target(url), wanted, **(options | how))


async def scraped(url: str, times: int = 1, observed: Observed | None = None, **how: Any) -> list[Sample | Missed]:
    """The results of some scrapes on one connection; no failure is unforeseen unless ``observed`` takes it."""
    callbacks = observed or Observed()
    scraper = scraper_of(url, callbacks, **how)
    results = [await scraper.scrape() for _ in range(times)]
    await scraper.close()
    assert observed or not callbacks.failures
    return results


@contextmanager
def turns_of_the_loop() -> Iterator[list[float]]:
    """The CPU seconds of each turn of the loop within."""
    turns_s: list[float] = []

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            turns_s.append(time.thread_time() - before)

    watching = asyncio.create_task(watch())
    try:
        yield turns_s
    finally:
        watching.cancel()
