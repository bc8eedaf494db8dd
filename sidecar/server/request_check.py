"""What a request must bring along: the one check of origin, host and token before the routes of a listener.

The local listener is for programs on this machine, not for web pages in a browser: browsers send ``Origin`` or
``Sec-Fetch-Site``, and DNS rebinding shows in ``Host`` (OWASP, cross-site request forgery prevention). Only the status
page may ask for its own data. The page listener is for other machines, and everything but the page's files needs the
token.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import hdrs

from sidecar.net import web
from sidecar.net.credential_files import bearer_token, is_same
from sidecar.net.threads import in_thread
from sidecar.net.web import HttpError

LOOPBACK: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]*)?", re.IGNORECASE)
FETCH_SITE: Final = "Sec-Fetch-Site"
PAGE_FILES: Final = frozenset({"/", "/page", "/page.css", "/page.js"})
"""Contain no data: any site may have a link to them."""

PAGE_DATA: Final = frozenset({"/why", "/fleet", "/events", "/hold"})
"""What the script of the page asks for."""

ORDERS: Final = frozenset({"/hold", "/cull", "/revive"})
LOCAL_TOKEN: Final = "Authorization: orders over TCP take Bearer and the token in the file of ARBITER_TOKEN_FILE"  # noqa: S105 - a sentence
REMOTE_TOKEN: Final = "Authorization: takes Bearer and the token"  # noqa: S105 - a sentence
LIMIT_S: Final = 2.0  # for the file of the token
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user, group."""


class RequestCheck:
    """The check for one listener. ``token``: the check of the token, None without one.

    ``is_remote``: the listener is for other machines. At the local one only orders need the token, and only over TCP: a
    unix socket is protected by the mode of its file.
    """

    def __init__(self, token: TokenCheck | None, *, is_remote: bool) -> None:
        self._token = token
        self._is_remote = is_remote

    def check_headers(self, request: web.BaseRequest) -> None:
        """Raise ``HttpError`` for a request of a web page that may not send it, or for another protocol."""
        headers = request.headers
        if hdrs.UPGRADE in headers:
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "upgrade", "Upgrade: no other protocol is spoken here")
        site, origin = headers.get(FETCH_SITE, "none"), headers.get(hdrs.ORIGIN)
        host = headers.get(hdrs.HOST, "")
        if (site != "none" or origin is not None) and request.path not in PAGE_FILES:
            _check_page(request.path, site, origin, host)
        if host and not self._is_remote and not LOOPBACK.fullmatch(host) and web.is_tcp(request):
            sentence = f"Host: takes a name of this machine's loopback, not {host[:100]!r}"
            raise web.HttpError(HTTPStatus.FORBIDDEN, "host", sentence)

    def needs_token(self, request: web.BaseRequest) -> bool:
        """Whether this request is for those who have the token."""
        if self._is_remote:
            return request.path not in PAGE_FILES
        return request.path in ORDERS and self._token is not None and web.is_tcp(request)

    async def check_token(self, request: web.BaseRequest) -> None:
        """Raise ``HttpError`` for a request without the token, or if the token cannot be read."""
        if self._token is None or not await self._token.allows(request.headers.get(hdrs.AUTHORIZATION)):
            sentence = REMOTE_TOKEN if self._is_remote else LOCAL_TOKEN
            raise web.HttpError(HTTPStatus.UNAUTHORIZED, "token", sentence, {hdrs.WWW_AUTHENTICATE: "Bearer"})


def _check_page(path: str, site: str, origin: str | None, host: str) -> None:
    """Raise ``HttpError`` for a web page that is not the status page, which may ask for its own data."""
    if path not in PAGE_DATA:
        raise web.HttpError(HTTPStatus.FORBIDDEN, "cross_origin", "Origin: web pages may not send here")
    if site not in ("none", "same-origin") or not _is_own(origin, host):
        raise web.HttpError(HTTPStatus.FORBIDDEN, "cross_origin", "Origin: only the status page may ask for this")


def _is_own(origin: str | None, host: str) -> bool:
    """Whether the origin is missing, or is that of the page at this host."""
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def origin(request: web.BaseRequest) -> str:
    """The origin of an order, as far as the connection shows it, for the log and the ledger."""
    peer = request.protocol.peername
    if isinstance(peer, tuple):
        return f"over TCP from {peer[0]}"
    return f"over the unix socket{_user(request)}"


def _user(request: web.BaseRequest) -> str:
    connection: Any = request.transport and request.transport.get_extra_info("socket")
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (AttributeError, OSError):  # another kind of socket, or it is closed already
        return ""
    return f" by user {_CREDENTIALS.unpack(packed)[1]}"


class TokenCheck:
    """Compares a request's token with what ``read`` returns, ``b""`` for none. A request waits ``limit_s`` at most."""

    def __init__(self, read: Callable[[], bytes], limit_s: float = LIMIT_S) -> None:
        self._read = read
        self._limit_s = limit_s
        self._reading: asyncio.Task[bytes] | None = None

    async def allows(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has the token; ``HttpError`` if its file cannot be read in time."""
        given = bearer_token(header)
        if not given:
            return False
        try:
            async with asyncio.timeout(self._limit_s):
                token = await self._token()
        except (TimeoutError, RuntimeError):  # RuntimeError: no thread can be started
            sentence = f"token: the file of ARBITER_TOKEN_FILE cannot be read within {self._limit_s:g} s, try again"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "token_file", sentence) from None
        return is_same(given, token)

    async def _token(self) -> bytes:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(in_thread(self._read))
        return await asyncio.shield(self._reading)
