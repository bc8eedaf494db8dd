"""Tools of the local listener's handlers: aiohttp's classes, errors that become responses, bodies and JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import hdrs
from aiohttp.web import AppKey, BaseRequest, Request, RequestPayloadError, Response, StreamResponse

from sidecar.net.http_error import HttpError

__all__ = (
    "BODY_LIMIT",
    "BROKEN_OFF",
    "CLOSING",
    "BaseRequest",
    "Handler",
    "HttpError",
    "Request",
    "Response",
    "Routes",
    "StreamResponse",
    "is_tcp",
    "json_response",
    "read_body",
)

BODY_LIMIT: Final = 64 * 1024
BODY_S: Final = 5.0
BROKEN_OFF: Final = (RequestPayloadError, OSError)
"""Exceptions of a body when the client closes the connection or sends nonsense."""

CLOSING: Final = AppKey("closing", asyncio.Event)
"""Set when the listener closes: a response that lasts as long as its connection ends then."""

Handler = Callable[[Request], Awaitable[StreamResponse]]

Routes = Mapping[str, Mapping[str, Handler]]
"""``{path: {method: handler}}``; a handler of GET answers HEAD as well."""


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
            return await request.read()
    except TimeoutError:
        raise HttpError(408, "slow", f"body: did not come within {timeout_s:g} s") from None
    except (*BROKEN_OFF, RuntimeError) as error:  # RuntimeError: the sidecar itself closed the connection
        error.__traceback__ = None  # its frames hold the body and the error: a cycle that only the collector frees
        raise HttpError(400, "broken", "body: broke off") from None


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document that ends in a newline, for terminals."""
    content = json.dumps(value).encode() + b"\n"
    return Response(body=content, status=status, headers=headers, content_type="application/json")
