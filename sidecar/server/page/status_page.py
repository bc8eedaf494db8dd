"""The status page: three files, its state as JSON and as a stream of events, and the holds that a person sets on it.

The files contain no data. Only the page itself may ask for everything else, and an order also needs a secret that is
part of the state (OWASP, cross-site request forgery prevention).

A browser without JavaScript goes on to ``/page/plain``, unless a token is needed: it could not send one.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs

from sidecar.net import web
from sidecar.server import long_answer
from sidecar.server.callers import Authorize
from sidecar.server.page.change_stream import ChangeStream
from sidecar.server.page.plain_page import PARTS, plain_page

STREAMS: Final = 8
COMMENT_S: Final = 15.0
"""Interval of comments, so that no proxy closes an idle stream."""

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
TO_PLAIN: Final = '<noscript><meta http-equiv="refresh" content="0; url=page/plain"></noscript>\n'
FILES: Final = {
    "/page": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


class StatusPage:
    """The page over ``changes``. ``orders``: handlers of POST and DELETE of a hold; ``csrf``: the state's secret."""

    def __init__(self, changes: ChangeStream, orders: Mapping[str, web.Handler], *, csrf: str) -> None:
        self._changes = changes
        self._orders = orders
        self._csrf = csrf
        self._streams = 0

    def routes(self, authorize: Authorize | None = None) -> web.Routes:
        """Routes of one listener; with ``authorize`` everything but the files needs the token."""
        access = _Access(authorize)

        async def get_state(request: web.BaseRequest) -> web.StreamResponse:
            await access.check(request)
            return await long_answer.respond(request, await self._changes.whole(), headers=HEADERS)

        async def get_plain(request: web.BaseRequest) -> web.StreamResponse:
            await access.check(request)
            parts = {name: value async for name, value in self._changes.values(PARTS)}
            return _response(plain_page(parts, time.time()), "text/html")

        async def get_stream(request: web.BaseRequest) -> web.StreamResponse:
            await access.check(request)
            if request.method == hdrs.METH_HEAD:
                return _response(b"", "text/event-stream")
            return self._stream(request, access)

        def order(method: str) -> web.Handler:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                await access.check(request)
                _check_order(request, self._csrf)
                response = await self._orders[method](request)
                self._changes.hurry()
                return response

            return handler

        return {
            "/": {"GET": get_root},
            **{path: {"GET": _file(*file)} for path, file in FILES.items()},
            **({} if authorize else {"/page": {"GET": _file(*FILES["/page"], TO_PLAIN)}}),
            "/page/plain": {"GET": get_plain},
            "/page/state": {"GET": get_state},
            "/page/stream": {"GET": get_stream},
            "/page/hold": {method: order(method) for method in self._orders},
        }

    def _stream(self, request: web.BaseRequest, access: _Access) -> EventStream:
        if self._streams >= STREAMS:
            raise web.HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "full",
                f"stream: {STREAMS} viewers are connected already",
                {"Retry-After": "10"},
            )
        self._streams += 1
        return EventStream(self._changes, request, access, self._closed)

    def _closed(self) -> None:
        self._streams -= 1


class EventStream(web.LongResponse):
    """Server-sent events (HTML, section 9.2): the whole state, then each change, and a comment now and then.

    It ends when the client closes it, does not read, or is no longer authorized.
    """

    def __init__(
        self, changes: ChangeStream, request: web.BaseRequest, access: _Access, on_closed: Callable[[], None]
    ) -> None:
        super().__init__(on_closed)
        self.force_close()
        self.headers.update({**HEADERS, hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        self._changes = changes
        self._request = request
        self._access = access

    async def send_until(self, ended: asyncio.Future[None]) -> None:
        """Send until ``ended`` is done."""
        version = 0
        with self._changes.viewed():
            while await self._access.is_still_allowed(self._request) and not ended.done():
                sent, changed = self._changes.version, self._changes.changed  # before sending, which may take a while
                if not await self._send(version):
                    return
                version = sent
                await asyncio.wait((ended, changed), timeout=COMMENT_S, return_when=asyncio.FIRST_COMPLETED)

    async def _send(self, version: int) -> bool:
        """Send what is new since ``version``, or a comment; return whether the client has read it in time."""
        news = self._changes.since(version)
        try:
            async with asyncio.timeout(SLOW_S):
                await long_answer.send(self, [b"data: ", *news, b"\n\n"] if news else [b": nothing has changed\n\n"])
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()  # a close would wait for a client that does not read
            return False
        return True


class _Access:
    """The access check for the state at one listener."""

    def __init__(self, authorize: Authorize | None) -> None:
        self._authorize = authorize

    async def check(self, request: web.BaseRequest) -> None:
        """Raise ``HttpError`` for a request of another web page, or without the token."""
        if request.headers.get(FETCH_SITE, "same-origin") not in ("same-origin", "none") or not _is_own(request):
            raise web.HttpError(HTTPStatus.FORBIDDEN, "cross_origin", "Origin: only the status page may ask for this")
        if not await self._is_allowed(request):
            raise web.HttpError(
                HTTPStatus.UNAUTHORIZED,
                "token",
                "Authorization: takes Bearer and the token",
                {hdrs.WWW_AUTHENTICATE: "Bearer"},
            )

    async def is_still_allowed(self, request: web.BaseRequest) -> bool:
        """Whether a stream that has begun may go on."""
        try:
            return await self._is_allowed(request)
        except web.HttpError:  # the response has begun, and can only end
            return False

    async def _is_allowed(self, request: web.BaseRequest) -> bool:
        return self._authorize is None or await self._authorize(request.headers.get(hdrs.AUTHORIZATION))


def _is_own(request: web.BaseRequest) -> bool:
    """Whether the ``Origin`` is missing, or is the page's own."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return True
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(host) and host.lower() == request.headers.get(hdrs.HOST, "").lower()


def _check_order(request: web.BaseRequest, csrf: str) -> None:
    headers = request.headers
    if headers.get(FETCH_SITE) != "same-origin" and hdrs.ORIGIN not in headers:
        raise web.HttpError(
            HTTPStatus.FORBIDDEN, "cross_origin", "Origin: missing; programs that are no browser use /hold"
        )
    given = headers.get(CSRF, "")
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), csrf.encode()):
        raise web.HttpError(HTTPStatus.FORBIDDEN, "csrf", f"{CSRF}: is not csrf of the present state, read it again")


async def get_root(_request: web.BaseRequest) -> web.Response:
    """``GET /``: redirect to the page."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, hdrs.LOCATION: "page"})


def _file(name: str, content_type: str, end_of_head: str = "") -> web.Handler:
    text = resources.files("sidecar.server.page").joinpath(name).read_text()
    content = text.replace("</head>", f"{end_of_head}</head>", 1).encode()

    async def handler(_request: web.BaseRequest) -> web.Response:
        return _response(content, content_type)

    return handler


def _response(content: bytes, content_type: str) -> web.Response:
    return web.Response(body=content, content_type=content_type, charset="utf-8", headers=HEADERS)
