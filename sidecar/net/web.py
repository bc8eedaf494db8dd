"""Tools of the local listener's handlers: aiohttp's classes, errors that become responses, bodies and JSON.

The classes are imported from the modules that define them: ``aiohttp.web`` imports its applications, routers, web
sockets and command line as well, 1.5 MiB and 20 ms of every start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import hdrs
from aiohttp.web_protocol import RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse

from sidecar.net.http_error import HttpError

__all__ = (
    "BODY_LIMIT",
    "BROKEN_OFF",
    "PRODUCT",
    "BaseRequest",
    "Handler",
    "HttpError",
    "Response",
    "Routes",
    "StreamResponse",
    "is_chunked",
    "is_tcp",
    "json_response",
    "read_body",
)

PRODUCT: Final = "health-arbiter"
"""The name of the server in its responses."""

BODY_LIMIT: Final = 64 * 1024
BODY_S: Final = 5.0
CHUNKS: Final = 128
"""Maximum number of chunks of a body: aiohttp takes up to 30 microseconds for each."""

BROKEN_OFF: Final = (RequestPayloadError, OSError)
"""Exceptions of a body when the client closes the connection or sends nonsense."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]

Routes = Mapping[str, Mapping[str, Handler]]
"""``{path: {method: handler}}``; a handler of GET answers HEAD as well."""


def is_tcp(request: BaseRequest) -> bool:
    """Whether the request came over TCP, not over a unix socket."""
    return isinstance(request.protocol.peername, tuple)


def is_chunked(request: BaseRequest) -> bool:
    """Whether the body comes in chunks, so that its length is not known before its end."""
    return hdrs.TRANSFER_ENCODING in request.headers


async def read_body(request: BaseRequest, timeout_s: float = BODY_S) -> bytes:
    """The whole body; ``HttpError`` if it is too large, compressed, broken, or does not arrive in ``timeout_s``."""
    content, headers = request.content, request.headers
    if headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise HttpError(415, "encoding", "Content-Encoding: send the body as it is")
    try:
        if content.is_eof() and hdrs.TRANSFER_ENCODING not in headers:
            body = content.read_nowait()
        else:
            body = await _arriving(request, timeout_s)
    except TimeoutError:
        raise HttpError(408, "slow", f"body: did not come within {timeout_s:g} s") from None
    except (*BROKEN_OFF, RuntimeError) as error:  # RuntimeError: the sidecar itself closed the connection
        error.__traceback__ = None  # its frames hold the body and the error: a cycle that only the collector frees
        raise HttpError(400, "broken", "body: broke off") from None
    if len(body) > BODY_LIMIT:
        raise _too_large()
    return body


async def _arriving(request: BaseRequest, timeout_s: float) -> bytes:
    """The body as far as its limit and a little more."""
    if (request.content_length or 0) > BODY_LIMIT:
        raise _too_large()
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await request.writer.write(CONTINUE)
    body, chunks = bytearray(), 0
    async with asyncio.timeout(timeout_s):
        while len(body) <= BODY_LIMIT:
            piece, ends_chunk = await request.content.readchunk()
            if not piece and not ends_chunk:
                break
            body += piece
            chunks += ends_chunk
            if chunks > CHUNKS:
                raise HttpError(413, "chunks", f"body: has more than {CHUNKS} chunks")
    return bytes(body)


def _too_large() -> HttpError:
    return HttpError(413, "too_large", f"body: larger than {BODY_LIMIT} bytes")


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document that ends in a newline, for terminals."""
    content = json.dumps(value).encode() + b"\n"
    return Response(body=content, status=status, headers=headers, content_type="application/json")
