"""Scrapes the app's metrics page and hands in what has been counted since the last time.

A page is streamed: inflated, scanned and forgotten in slices, and the loop gets its turn between them. Whatever goes
wrong is a ``Missed`` with one word of ``CAUSES``; it is never an error of the app. aiohttp's client is loaded when the
first page is fetched, and certificates only for https: most sidecars need neither.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sidecar.core.types import Missed, Report, Sample
from sidecar.inputs.exposition import Page, Scanner
from sidecar.inputs.increments import Counters, Use
from sidecar.inputs.page_body import OPENMETRICS, TEXT, MissError, has_length, is_openmetrics, slices
from sidecar.inputs.series import BadPageError
from sidecar.inputs.wanted_series import Wanted

if TYPE_CHECKING:
    from aiohttp import BaseConnector, ClientSession

Offer = Callable[[Sequence[Report]], bool]

MAX_BYTES: Final = 64 << 20
TURN_S: Final = 0.0005
"""How long we may work before the loop gets its turn."""

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
"""The words of ``Missed``. ``cut_off``: the page has no end; ``encoding``: it is neither plain nor good gzip."""

_URL_HINT: Final = "takes http://, https:// or unix:///path/of.sock:/metrics"
_ACCEPT: Final = f"{OPENMETRICS};version=1.0.0;q=0.6,{TEXT};version=0.0.4;q=0.4,{TEXT};q=0.2,*/*;q=0.1"
_ACCEPT_UTF8: Final = (
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.8,{TEXT};version=1.0.0;escaping=allow-utf-8;q=0.7,{_ACCEPT}"
)
"""Only who looks for a quoted name asks for such names: others find the plain ones that they see in a browser."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the page is: an HTTP URL, and the path of a unix socket when it is asked for there."""

    url: str
    socket: str | None = None


def parse_target(url: str) -> Target:
    """Read ``http[s]://host[:port]/path`` or ``unix:///path/of.sock[:/path]``; ValueError names no part of it."""
    scheme, _, rest = url.strip().partition("://")
    if scheme.lower() == "unix":
        socket, colon, path = rest.partition(":/")
        if not socket.startswith("/"):
            raise ValueError(_URL_HINT)
        return Target(f"http://localhost/{path}" if colon else "http://localhost/metrics", socket)
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(_URL_HINT)
    return Target(url.strip())


class Scraper:
    """Fetches one page over and over, on one connection that is kept.

    ``timeout_s`` is for a whole scrape; ``max_bytes`` for a whole page, as it is and as it was sent. ``offer`` takes
    each Sample and each Missed; ``on_failure`` is told of exceptions that nobody has foreseen. ``wall`` is Unix time;
    ``tls`` makes the context for https, in a thread, when it is first needed.
    """

    def __init__(
        self,
        target: Target,
        wanted: Wanted,
        *,
        interval_s: float,
        timeout_s: float,
        offer: Offer,
        on_failure: Callable[[Exception], None],
        rng: random.Random,
        max_bytes: int = MAX_BYTES,
        wall: Callable[[], float] = time.time,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._target = target
        self._wanted = wanted
        self._counters = Counters()
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._offer = offer
        self._on_failure = on_failure
        self._rng = rng
        self._max_bytes = max_bytes
        self._wall = wall
        self._tls = tls
        self._accept = _ACCEPT_UTF8 if wanted.utf8 else _ACCEPT
        self._session: ClientSession | None = None
        self._turns = _Turns()

    @property
    def overflow(self) -> int:
        """Wanted series of the last page for which there was no room: they count nothing."""
        return self._wanted.overflow

    async def run(self) -> None:
        """Scrape now and then once an interval, with jitter, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + self._interval_s * (1 + JITTER * self._rng.uniform(-1, 1))
                self._offer((await self.scrape(),))
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            await self.close()

    async def scrape(self) -> Sample | Missed:
        """Fetch one page. Of what fails it says the word only: an exception's text may hold the URL."""
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
        except Exception as error:  # noqa: BLE001 - a page may fail in ways that nobody has foreseen
            return Missed(self._cause(error))

    async def close(self) -> None:
        """Let the connection go; the next scrape makes a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _take(self, page: Page[Use], at: float) -> Sample:
        # Not under the timeout: half of a page that is taken would be lost.
        complete = not (page.cut_off or self._wanted.overflow)
        taking = self._counters.taking(page.found, page.values, at, complete=complete)
        while True:
            try:
                next(taking)
            except StopIteration as end:
                sample: Sample = end.value
                return sample
            await self._turns.rest()

    async def _fetch(self) -> Page[Use]:
        if self._session is None:
            self._session = await self._open()
        async with self._session.get(self._target.url, allow_redirects=False) as response:
            openmetrics = is_openmetrics(response)
            self._wanted.begin(openmetrics=openmetrics)
            scanner = Scanner(self._wanted.families, self._wanted.use, openmetrics=openmetrics)
            async for piece in slices(response, self._max_bytes):
                scanner.feed(piece)
                await self._turns.rest()
            page = scanner.finish(whole=has_length(response))
        if openmetrics and page.cut_off:
            raise MissError("cut_off")
        return page

    async def _open(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar  # noqa: PLC0415 - only who scrapes pays

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
        if isinstance(error, ClientError):
            return "protocol"
        self._on_failure(error)
        return "internal"


class _Turns:
    """Gives the loop its turn once we have worked for ``TURN_S``."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        if time.perf_counter() - self._since > TURN_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
