"""Tools of request handlers: aiohttp's server classes, errors that become responses, bodies and JSON.

``aiohttp.web`` itself would import a router, files and websockets: 1 MiB and 15 ms in every sidecar.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import hdrs
from aiohttp.http import HttpVersion11
from aiohttp.web_exceptions import HTTPRequestEntityTooLarge
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from sidecar.net.http_error import HttpError

__all__ = (
    "BODY_LIMIT",
    "BROKEN_OFF",
    "SERVER",
    "BaseRequest",
    "HTTPRequestEntityTooLarge",
    "Handler",
    "HttpError",
    "LongResponse",
    "RequestHandler",
    "Response",
    "Routes",
    "Server",
    "StreamResponse",
    "is_tcp",
    "json_response",
    "read_body",
)

BODY_LIMIT: Final = 64 * 1024
BODY_S: Final = 5.0
SERVER: Final = "health-arbiter"
"""The ``Server`` header. aiohttp's own names the versions of Python and aiohttp, which help an attacker."""

BROKEN_OFF: Final = (RequestPayloadError, OSError)
"""Exceptions of a body when the client closes the connection or sends nonsense."""

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]

Routes = Mapping[str, Mapping[str, Handler]]
"""``{path: {method: handler}}``; a handler of GET answers HEAD as well."""


class LongResponse(StreamResponse):
    """A response that lasts as long as its connection, such as a stream of events.

    ``on_closed`` is called once when the client has closed the connection, but not when the sidecar stops.
    """

    def __init__(self, on_closed: Callable[[], None]) -> None:
        super().__init__()
        self.on_closed = on_closed

    async def send_until(self, ended: asyncio.Future[None]) -> None:
        """Return once ``ended`` is done. A response with a body overrides this and sends the body meanwhile."""
        await ended


def is_tcp(request: BaseRequest) -> bool:
    """Whether the request came over TCP, not over a unix socket."""
    return isinstance(request.protocol.peername, tuple)


async def read_body(request: BaseRequest, timeout_s: float = BODY_S) -> bytes:
    """The whole body; ``HttpError`` if it is too large, compressed, broken, or does not arrive in ``timeout_s``."""
    if not request.body_exists:
        return b""
    if (request.content_length or 0) > BODY_LIMIT:
        raise HttpError(413, "too_large", f"body: larger than {BODY_LIMIT} bytes")
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise HttpError(415, "encoding", "Content-Encoding: send the body as it is")
    if request.content.is_eof():
        return await request.read()
    try:
        async with asyncio.timeout(timeout_s):
            await _send_continue(request)
            return await request.read()
    except TimeoutError:
        raise HttpError(408, "slow", f"body: did not come within {timeout_s:g} s") from None
    except (*BROKEN_OFF, RuntimeError) as error:  # RuntimeError: the sidecar itself closed the connection
        error.__traceback__ = None  # its frames hold the body and the error: a cycle that only the collector frees
        raise HttpError(400, "broken", "body: broke off") from None


async def _send_continue(request: BaseRequest) -> None:
    """Ask for the body if the client waits for that, as curl does with a large one (RFC 9110, section 10.1.1)."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document that ends in a newline, for terminals."""
    content = json.dumps(value).encode() + b"\n"
    return Response(body=content, status=status, headers=headers, content_type="application/json")
