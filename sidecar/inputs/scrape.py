"""Scrapes the app's metrics page and reports the increments since the last scrape.

A page is streamed: inflated, scanned and dropped in slices, with turns of the loop between them. A failed scrape is a
``Missed`` with one word of ``CAUSES``, never an error of the app. The first page imports aiohttp's client, and only
https loads the system's certificates.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sidecar.config.scrape_url import Target
from sidecar.core.types import Missed, Report, Sample
from sidecar.inputs.counter_increments import Counters, SeriesUse
from sidecar.inputs.exposition import Page, Scanner
from sidecar.inputs.page_download import OPENMETRICS, TEXT, MissError, has_length, is_openmetrics, slices
from sidecar.inputs.series import BadPageError
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from aiohttp import BaseConnector, ClientSession

Offer = Callable[[Sequence[Report]], bool]

ADVICE_AFTER: Final = 3
"""Good pages after which a selector that has matched nothing is looked into, once."""

ADVICE_BYTES: Final = 1 << 20
"""Bytes of a page that are read for that: parsing them takes up to 100 ms, in a thread."""

MAX_BYTES: Final = 64 << 20
TURN_S: Final = 0.0005
"""Time that the scraper may work before the loop has its turn."""

JITTER: Final = 0.1
CAUSES: Final = (
    "connection",
    "content_type",
    "cut_off",
    "encoding",
    "format",
    "internal",
    "protocol",
    "redirect",
    "status",
    "timeout",
    "tls",
    "too_large",
)
"""The causes of ``Missed``. ``cut_off``: the end of the page is missing; ``encoding``: neither plain nor valid gzip."""

_ACCEPT: Final = f"{OPENMETRICS};version=1.0.0;q=0.6,{TEXT};version=0.0.4;q=0.4,{TEXT};q=0.2,*/*;q=0.1"
_ACCEPT_UTF8: Final = (
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.8,{TEXT};version=1.0.0;escaping=allow-utf-8;q=0.7,{_ACCEPT}"
)
"""For selectors with quoted names only: otherwise the app sends the names that a browser shows."""


class Scraper:
    """Fetches one page again and again on one connection.

    ``timeout_s`` is for a whole scrape; ``max_bytes`` for a whole page, both inflated and as sent. ``offer`` takes each
    Sample and each Missed, ``on_failure`` unforeseen exceptions, ``on_advice`` a sentence for a selector that matches
    nothing. ``wall`` is Unix time; ``tls`` makes the context for https, in a thread, when it is first needed.
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
        self._target = target
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
        self._tls = tls
        self._accept = _ACCEPT_UTF8 if selection.has_quoted_names else _ACCEPT
        self._session: ClientSession | None = None
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
        except TimeoutError:
            return Missed("timeout")
        except MissError as miss:
            return Missed(str(miss))
        except BadPageError:
            return Missed("format")
        except Exception as error:  # noqa: BLE001 - unforeseen failures must not end the scrapes
            return Missed(self._cause(error))

    async def page(self) -> bytes:
        """Fetch the beginning of the page, as it is. Raises as the client does, and MissError."""
        if self._session is None:
            self._session = await self._open()
        content = bytearray()
        async with (
            asyncio.timeout(self._timeout_s),
            self._session.get(self._target.url, allow_redirects=False) as response,
        ):
            is_openmetrics(response)
            async for piece in slices(response, self._max_bytes):
                content += piece
                if len(content) >= ADVICE_BYTES:
                    break
        return bytes(content)

    async def _advise(self) -> None:
        from sidecar.inputs import page_names  # noqa: PLC0415 - most selectors match something

        try:
            page, unmatched = await self.page(), self._selection.unmatched
            sentences = await in_thread(lambda: [*page_names.advice(unmatched, page_names.read_names(page))])
        except Exception:  # noqa: BLE001 - the next scrape tells what is wrong with the page
            return
        for sentence in sentences:
            self._on_advice(sentence)

    async def close(self) -> None:
        """Close the connection; the next scrape opens a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

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
        if self._session is None:
            self._session = await self._open()
        async with self._session.get(self._target.url, allow_redirects=False) as response:
            openmetrics = is_openmetrics(response)
            self._selection.begin(openmetrics=openmetrics)
            scanner = Scanner(self._selection.families, self._selection.use, openmetrics=openmetrics)
            async for piece in slices(response, self._max_bytes):
                scanner.feed(piece)
                await self._turns.rest()
            page = scanner.finish(whole=has_length(response))
        if openmetrics and page.cut_off:
            raise MissError("cut_off")
        return page

    async def _open(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar  # noqa: PLC0415 - most sidecars do not scrape

        return ClientSession(
            connector=await self._connector(),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
            headers={"Accept": self._accept, "Accept-Encoding": "gzip", "User-Agent": "health-arbiter"},
        )

    async def _connector(self) -> BaseConnector:
        from aiohttp import TCPConnector, UnixConnector  # noqa: PLC0415 - as above

        keep_s = 2 * self._interval_s + 10
        if self._target.socket:
            return UnixConnector(self._target.socket, limit=1, keepalive_timeout=keep_s)
        if not self._target.url.lower().startswith("https:"):
            return TCPConnector(limit=1, keepalive_timeout=keep_s)
        return TCPConnector(limit=1, keepalive_timeout=keep_s, ssl=await asyncio.to_thread(self._tls))

    def _cause(self, error: Exception) -> str:
        from aiohttp import ClientConnectionError, ClientError, ClientPayloadError, ClientSSLError  # noqa: PLC0415

        if isinstance(error, ClientPayloadError):
            return "cut_off"
        if isinstance(error, (ClientSSLError, ssl.SSLError)):
            return "tls"
        if isinstance(error, (ClientConnectionError, OSError)):
            return "connection"
        if isinstance(error, (ClientError, UnicodeError)):  # the second: a host or password that HTTP cannot have
            return "protocol"
        self._on_failure(error)
        return "internal"


class _Turns:
    """Gives the loop its turn after work of ``TURN_S``."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        if time.perf_counter() - self._since > TURN_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
