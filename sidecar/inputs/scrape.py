"""Scrapes the app's metrics page and reports the increments since the last scrape.

A page is streamed: scanned and dropped in slices, with turns of the loop between them. A failed scrape is a
``Missed`` with the word for its cause, never an error of the app.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from aiohttp import (
    AddrInfoType,
    BaseConnector,
    ClientConnectionError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    UnixConnector,
)

from sidecar.config.addresses import Target
from sidecar.core.app_reports import Missed, Sample
from sidecar.inputs.counter_increments import Counters, SeriesUse
from sidecar.inputs.exposition import BadPageError, Page, Scanner
from sidecar.inputs.series_selection import SeriesSelection

ADVICE_AFTER: Final = 3
"""Good pages after which the selectors that have matched nothing are named, once."""

BEGINNING_BYTES: Final = 1 << 20
"""Bytes of a page of which its names are read: parsing them takes up to 100 ms."""

MAX_BYTES: Final = 64 << 20
SLICE_BYTES: Final = 16_384
READ_BYTES: Final = 8_192
"""asyncio reads 256 KiB at once. Tiny chunks, or heads without a page, would fill 30 ms of one turn of the loop."""

TURN_S: Final = 0.0005
"""Time that the scraper may work before the loop has its turn."""

JITTER: Final = 0.1

OPENMETRICS: Final = "application/openmetrics-text"
TEXT: Final = "text/plain"
_HEADERS: Final = {
    # Text first: there a counter has the name that a browser shows. OpenMetrics adds ``_total``.
    "Accept": f"{TEXT};version=0.0.4;q=0.8,{OPENMETRICS};version=1.0.0;q=0.6,{TEXT};q=0.2,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "health-arbiter",
}
_OK: Final = 200


class MissError(Exception):
    """The response is no page, because of its status, redirect, content_type, encoding, or as too_large or cut_off."""


_CAUSES: Final = (
    (TimeoutError, "timeout"),
    (BadPageError, "format"),
    (ClientPayloadError, "cut_off"),
    ((ClientSSLError, ssl.SSLError), "tls"),
    ((ClientConnectionError, OSError), "connection"),
    ((ClientError, UnicodeError), "protocol"),  # the second: a host or password that HTTP cannot have
)
"""The first that fits an exception; ``MissError`` has other words."""


class Scraper:
    """Fetches one page again and again on one connection.

    ``timeout_s`` is for a whole scrape; ``max_bytes`` for a whole page. ``take`` gets each Sample and each Missed,
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
        take: Callable[[Sample | Missed], None],
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
        self._take = take
        self._on_failure = on_failure
        self._rng = rng
        self._max_bytes = max_bytes
        self._on_advice = on_advice
        self._wall = wall
        self._tls = tls
        self._session: ClientSession | None = None
        self._rested_at = time.perf_counter()

    async def run(self) -> None:
        """Scrape at once and then once an interval, with jitter, until cancelled."""
        loop = asyncio.get_running_loop()
        good = 0
        try:
            while True:
                due = loop.time() + self._interval_s * (1 + JITTER * self._rng.uniform(-1, 1))
                scraped = await self.scrape()
                self._take(scraped)
                good += isinstance(scraped, Sample)
                if good == ADVICE_AFTER and isinstance(scraped, Sample):
                    self._advise()
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            await self.close()

    async def scrape(self) -> Sample | Missed:
        """Fetch one page. A failure is a word only: the text of an exception may contain the URL."""
        at = self._wall()
        try:
            async with asyncio.timeout(self._timeout_s):
                page = await self._fetch()
            return await self._counted(page, at)
        except MissError as miss:
            return Missed(str(miss))
        except Exception as error:  # noqa: BLE001 - unforeseen failures must not end the scrapes
            cause = next((cause for kinds, cause in _CAUSES if isinstance(error, kinds)), "internal")
            if cause == "internal":
                self._on_failure(error)
            return Missed(cause)

    async def beginning(self) -> bytes:
        """Fetch the beginning of the page, as it is. Raises as the client does, and MissError."""
        content = bytearray()
        async with (
            asyncio.timeout(self._timeout_s),
            await self._get() as response,
        ):
            _is_openmetrics(response)
            async for piece in _slices(response, self._max_bytes):
                content += piece
                if len(content) >= BEGINNING_BYTES:
                    break
        return bytes(content)

    async def close(self) -> None:
        """Close the connection; the next scrape opens a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _advise(self) -> None:
        for setting, selector in self._selection.unmatched:
            self._on_advice(
                f"ARBITER_{setting.upper()}: no series on the page fits {selector.name} yet; "
                "health-arbiter doctor shows whether its name and labels are there, and which come closest"
            )

    async def _fetch(self) -> Page[SeriesUse]:
        async with await self._get() as response:
            openmetrics = _is_openmetrics(response)
            self._selection.begin()
            scanner = Scanner(self._selection.names, self._selection.use, openmetrics=openmetrics)
            async for piece in _slices(response, self._max_bytes):
                scanner.feed(piece)
                await self._rest()
            # HTTP itself shows that a page with a length is cut off; any other ends with the connection.
            page = scanner.finish(whole=not {"Content-Length", "Transfer-Encoding"}.isdisjoint(response.headers))
        if openmetrics and page.cut_off:
            raise MissError("cut_off")
        return page

    async def _counted(self, page: Page[SeriesUse], at: float) -> Sample:
        # Outside the timeout: it would lose the rest of a page that is half taken.
        complete = not (page.cut_off or self._selection.overflow)
        taking = self._counters.take(page.uses, page.values, at, complete=complete)
        while True:
            try:
                next(taking)
            except StopIteration as end:
                sample: Sample = end.value
                return sample
            await self._rest()

    async def _rest(self) -> None:
        """Give the loop its turn after work of ``TURN_S``."""
        if time.perf_counter() - self._rested_at > TURN_S:
            await asyncio.sleep(0)
            self._rested_at = time.perf_counter()

    async def _get(self) -> AbstractAsyncContextManager[ClientResponse]:
        """Ask for the page on the one connection, which is kept until the scrape after the next."""
        if self._session is None:
            self._session = ClientSession(
                connector=await self._connector(keepalive_timeout=2 * self._interval_s + 10),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None),
                auto_decompress=False,
                headers=_HEADERS,
            )
        return self._session.get(self._target.url, allow_redirects=False)

    async def _connector(self, keepalive_timeout: float) -> BaseConnector:
        if self._target.socket:
            return _UnixReads(self._target.socket, limit=1, keepalive_timeout=keepalive_timeout)
        if not self._target.url.lower().startswith("https:"):
            return _TcpReads(limit=1, keepalive_timeout=keepalive_timeout)
        context = await asyncio.to_thread(self._tls)  # it loads the system's certificates, which takes long
        return TCPConnector(limit=1, keepalive_timeout=keepalive_timeout, ssl=context, socket_factory=_tls_socket)


class _SmallReads(BaseConnector):
    """Bounds what one read of a connection takes, before the first byte is read."""

    async def connect(self, *request: Any, **options: Any) -> Any:
        connection = await super().connect(*request, **options)
        connection.transport.max_size = READ_BYTES  # type: ignore[union-attr]  # the name in all transports of asyncio
        return connection


class _TcpReads(_SmallReads, TCPConnector):
    """Over TCP."""


class _UnixReads(_SmallReads, UnixConnector):
    """Over a unix socket."""


def _tls_socket(address: AddrInfoType) -> socket.socket:
    """Make a socket with a small buffer: TLS decrypts all that the kernel holds, up to 256 KiB, in one turn."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
    return made


def _is_openmetrics(response: ClientResponse) -> bool:
    """Whether the page is OpenMetrics; without a type it is text, as for old Prometheus."""
    if response.status != _OK:
        raise MissError("redirect" if response.status // 100 == 3 else "status")  # noqa: PLR2004 - 3xx
    content_type = response.content_type if "Content-Type" in response.headers else TEXT
    if content_type not in {OPENMETRICS, TEXT}:
        raise MissError("content_type")
    return content_type == OPENMETRICS


async def _slices(response: ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """The page's text, in slices; ``MissError`` beyond ``max_bytes``, and for text that is compressed all the same."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise MissError("encoding")
    size = 0
    async for received in response.content.iter_any():
        for begin in range(0, len(received), SLICE_BYTES):
            yield received[begin : begin + SLICE_BYTES]
        size += len(received)
        if size > max_bytes:
            raise MissError("too_large")
