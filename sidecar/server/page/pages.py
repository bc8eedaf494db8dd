"""The status page: three files, its state as JSON and as a stream of events, and the orders a person gives on it.

The files hold nothing of anybody. All else is for the page itself: no other web page may ask for it, and an order
needs besides the word that only who may read the state knows (OWASP, cross-site request forgery prevention).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs

from sidecar.net import web
from sidecar.net.connections import Handler, Held
from sidecar.net.listener import Refusal, Routes
from sidecar.server.page.change_stream import Feed

STREAMS: Final = 8
COMMENT_S: Final = 15.0
"""So often something is sent, lest anything on the way takes the stream for dead."""

SLOW_S: Final = 10.0
CSRF: Final = "X-Arbiter-CSRF"
FETCH_SITE: Final = "Sec-Fetch-Site"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES: Final = {
    "/page": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}

Admits = Callable[[str | None], Awaitable[bool]]
"""Whether an ``Authorization`` header, or that there is none, lets somebody in; ``Refusal`` if that cannot be told."""


class Pages:
    """The page over ``feed``. ``orders``: handlers of POST and DELETE; ``csrf``: the word in the state."""

    def __init__(self, feed: Feed, orders: Mapping[str, Handler], *, csrf: str) -> None:
        self._feed = feed
        self._orders = orders
        self._csrf = csrf
        self._streams = 0

    def routes(self, admits: Admits | None = None) -> Routes:
        """Routes of one door; with ``admits`` only the files are for everybody."""
        gate = _Gate(admits)

        async def get_state(request: web.BaseRequest) -> web.StreamResponse:
            await gate.check(request)
            return _response(await self._feed.whole(), "application/json")

        async def get_stream(request: web.BaseRequest) -> web.StreamResponse:
            await gate.check(request)
            if request.method == hdrs.METH_HEAD:
                return _response("", "text/event-stream")
            return self._stream(request, gate)

        def order(method: str) -> Handler:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                await gate.check(request)
                _check_order(request, self._csrf)
                answer = await self._orders[method](request)
                self._feed.hurry()
                return answer

            return handler

        return {
            "/": {"GET": get_root},
            **{path: {"GET": _file(*named)} for path, named in FILES.items()},
            "/page/state": {"GET": get_state},
            "/page/stream": {"GET": get_stream},
            "/page/hold": {method: order(method) for method in self._orders},
        }

    def _stream(self, request: web.BaseRequest, gate: _Gate) -> Stream:
        if self._streams >= STREAMS:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "full", f"stream: {STREAMS} look already", {"Retry-After": "10"}
            )
        self._streams += 1
        return Stream(self._feed, request, gate, self._has_left)

    def _has_left(self) -> None:
        self._streams -= 1


class Stream(Held):
    """Server-sent events (HTML, section 9.2): all of the state at once, then what changes, and now and then a comment.

    It ends when the client goes, does not read, or is no longer let in.
    """

    def __init__(self, feed: Feed, request: web.BaseRequest, gate: _Gate, on_closed: Callable[[], None]) -> None:
        super().__init__(on_closed)
        self.force_close()
        self.headers.update({**HEADERS, hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        self._feed = feed
        self._request = request
        self._gate = gate

    async def lasts(self, ended: asyncio.Future[None]) -> None:
        """Send until ``ended``."""
        version = 0
        with self._feed.watched():
            while await self._gate.still_admits(self._request) and not ended.done():
                sent, turned = (
                    self._feed.version,
                    self._feed.turned,
                )  # as the news are that are sent: it may take a while
                if not await self._send(version):
                    return
                version = sent
                await asyncio.wait((ended, turned), timeout=COMMENT_S, return_when=asyncio.FIRST_COMPLETED)

    async def _send(self, version: int) -> bool:
        """Send what is new since, or a comment; whether the client took it in time."""
        news = self._feed.since(version)
        try:
            async with asyncio.timeout(SLOW_S):
                await self.write(f"data: {news}\n\n".encode() if news else b": all is as it was\n\n")
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()  # a gentle close would wait for who does not read
            return False
        return True


class _Gate:
    """Who may see the state at one door."""

    def __init__(self, admits: Admits | None) -> None:
        self._admits = admits

    async def still_admits(self, request: web.BaseRequest) -> bool:
        """Whether who was let in may stay."""
        try:
            return await self._is_admitted(request)
        except Refusal:  # a stream has begun, and can only end
            return False

    async def check(self, request: web.BaseRequest) -> None:
        """Raise ``Refusal`` for another web page, and for who does not bring the token."""
        if request.headers.get(FETCH_SITE, "same-origin") not in ("same-origin", "none") or not _is_own(request):
            raise Refusal(HTTPStatus.FORBIDDEN, "cross_origin", "Origin: this is for the status page alone")
        if not await self._is_admitted(request):
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "token",
                "Authorization: takes Bearer and the token",
                {hdrs.WWW_AUTHENTICATE: "Bearer"},
            )

    async def _is_admitted(self, request: web.BaseRequest) -> bool:
        return self._admits is None or await self._admits(request.headers.get(hdrs.AUTHORIZATION))


def _is_own(request: web.BaseRequest) -> bool:
    """Whether no ``Origin`` is sent, or the page's own."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return True
    try:
        named = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(named) and named.lower() == request.headers.get(hdrs.HOST, "").lower()


def _check_order(request: web.BaseRequest, csrf: str) -> None:
    headers = request.headers
    if headers.get(FETCH_SITE) != "same-origin" and hdrs.ORIGIN not in headers:
        raise Refusal(HTTPStatus.FORBIDDEN, "cross_origin", "Origin: missing; /hold is for who is no browser")
    given = headers.get(CSRF, "")
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), csrf.encode()):
        raise Refusal(HTTPStatus.FORBIDDEN, "csrf", f"{CSRF}: is not the word of this state, read it anew")


async def get_root(_request: web.BaseRequest) -> web.Response:
    """``GET /``: go to the page."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, hdrs.LOCATION: "page"})


def _file(name: str, content_type: str) -> Handler:
    text = resources.files("sidecar.server.page").joinpath(name).read_text()

    async def handler(_request: web.BaseRequest) -> web.Response:
        return _response(text, content_type)

    return handler


def _response(text: str, content_type: str) -> web.Response:
    return web.Response(text=text, content_type=content_type, charset="utf-8", headers=HEADERS)
