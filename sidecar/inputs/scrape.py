"""Scrapes the app's metrics page and reports the increments since the last scrape.

A page is streamed: scanned and dropped in slices, with turns of the loop between them. A failed scrape is a
``Missed`` with the word for its cause, never an error of the app.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import ClientConnectionError, ClientError, ClientPayloadError, ClientSSLError

from sidecar.config.addresses import Target
from sidecar.core.app_reports import Missed, Report, Sample
from sidecar.inputs import page_names
from sidecar.inputs.counter_increments import Counters, SeriesUse
from sidecar.inputs.exposition import Page, Scanner
from sidecar.inputs.page_download import (
    OPENMETRICS,
    TEXT,
    MissError,
    PageClient,
    has_length,
    is_openmetrics,
    slices,
)
from sidecar.inputs.series import BadPageError
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.net.threads import in_thread

Offer = Callable[[Sequence[Report]], bool]

ADVICE_AFTER: Final = 3
"""Good pages after which a selector that has matched nothing is looked into, once."""

ADVICE_BYTES: Final = 1 << 20
"""Bytes of a page that are read for that: parsing them takes up to 100 ms, in a thread."""

MAX_BYTES: Final = 64 << 20
TURN_S: Final = 0.0005
"""Time that the scraper may work before the loop has its turn."""

JITTER: Final = 0.1
_CAUSES: Final = (
    (TimeoutError, "timeout"),
    (BadPageError, "format"),
    (ClientPayloadError, "cut_off"),
    ((ClientSSLError, ssl.SSLError), "tls"),
    ((ClientConnectionError, OSError), "connection"),
    ((ClientError, UnicodeError), "protocol"),  # the second: a host or password that HTTP cannot have
)
"""The first that fits an exception; ``MissError`` has other words."""

_ACCEPT: Final = f"{TEXT};version=0.0.4;q=0.8,{OPENMETRICS};version=1.0.0;q=0.6,{TEXT};q=0.2,*/*;q=0.1"
"""Text first: there a counter has the name that a browser shows. OpenMetrics adds ``_total``."""


class Scraper:
    """Fetches one page again and again on one connection.

    ``timeout_s`` is for a whole scrape; ``max_bytes`` for a whole page. ``offer`` takes each Sample and each Missed,
    ``on_failure`` unforeseen exceptions, ``on_advice`` a sentence for a selector that matches nothing. ``wall`` is Unix
    time; ``tls`` makes the context for https, in a thread, when it is first needed.
    """

    def __init__(
        self,
        target: Target,
        selection: SeriesSelection,
        *,
        interval_s: float,
        timeout_s: float,
        offer: Offer,
        on_failure: Callable[[Exception], None],
        rng: random.Random,
        max_bytes: int = MAX_BYTES,
        on_advice: Callable[[str], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._client = PageClient(target, accept=_ACCEPT, keep_s=2 * interval_s + 10, tls=tls)
        self._selection = selection
        self._counters = Counters()
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._offer = offer
        self._on_failure = on_failure
        self._rng = rng
        self._max_bytes = max_bytes
        self._on_advice = on_advice
        self._wall = wall
        self._turns = _Turns()

    async def run(self) -> None:
        """Scrape at once and then once an interval, with jitter, until cancelled."""
        loop = asyncio.get_running_loop()
        good = 0
        try:
            while True:
                due = loop.time() + self._interval_s * (1 + JITTER * self._rng.uniform(-1, 1))
                scraped = await self.scrape()
                self._offer((scraped,))
                good += isinstance(scraped, Sample)
                if good == ADVICE_AFTER and isinstance(scraped, Sample) and self._selection.unmatched:
                    await self._advise()
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            await self.close()

    async def scrape(self) -> Sample | Missed:
        """Fetch one page. A failure is a word only: the text of an exception may contain the URL."""
        at = self._wall()
        try:
            async with asyncio.timeout(self._timeout_s):
                page = await self._fetch()
            return await self._take(page, at)
        except MissError as miss:
            return Missed(str(miss))
        except Exception as error:  # noqa: BLE001 - unforeseen failures must not end the scrapes
            cause = next((cause for kinds, cause in _CAUSES if isinstance(error, kinds)), "internal")
            if cause == "internal":
                self._on_failure(error)
            return Missed(cause)

    async def page(self) -> bytes:
        """Fetch the beginning of the page, as it is. Raises as the client does, and MissError."""
        content = bytearray()
        async with asyncio.timeout(self._timeout_s), await self._client.get() as response:
            is_openmetrics(response)
            async for piece in slices(response, self._max_bytes):
                content += piece
                if len(content) >= ADVICE_BYTES:
                    break
        return bytes(content)

    async def close(self) -> None:
        """Close the connection; the next scrape opens a new one."""
        await self._client.close()

    async def _advise(self) -> None:
        try:
            page, unmatched = await self.page(), self._selection.unmatched
            sentences = await in_thread(lambda: [*page_names.advice(unmatched, page_names.read_names(page))])
        except Exception:  # noqa: BLE001 - the next scrape tells what is wrong with the page
            return
        for sentence in sentences:
            self._on_advice(sentence)

    async def _take(self, page: Page[SeriesUse], at: float) -> Sample:
        # Outside the timeout: it would lose the rest of a page that is half taken.
        complete = not (page.cut_off or self._selection.overflow)
        taking = self._counters.take(page.found, page.values, at, complete=complete)
        while True:
            try:
                next(taking)
            except StopIteration as end:
                sample: Sample = end.value
                return sample
            await self._turns.rest()

    async def _fetch(self) -> Page[SeriesUse]:
        async with await self._client.get() as response:
            openmetrics = is_openmetrics(response)
            self._selection.begin()
            scanner = Scanner(self._selection.names, self._selection.use, openmetrics=openmetrics)
            async for piece in slices(response, self._max_bytes):
                scanner.feed(piece)
                await self._turns.rest()
            page = scanner.finish(whole=has_length(response))
        if openmetrics and page.cut_off:
            raise MissError("cut_off")
        return page


class _Turns:
    """Gives the loop its turn after work of ``TURN_S``."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        if time.perf_counter() - self._since > TURN_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
