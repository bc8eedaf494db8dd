"""Middleware for aiohttp's server: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.client.exchange import CURRENT, SERVER_ERROR, Exchange


@web.middleware
async def arbiter_aiohttp_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Put it first in ``Application(middlewares=[...])``. A client that goes away is no error."""
    exchange = Exchange()
    token = CURRENT.set(exchange)
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        exchange.answered(answer.status)
        if answer.status >= SERVER_ERROR:
            exchange.failed(answer)  # it may have been raised from what is really broken
        exchange.finished()
        raise
    except Exception as error:
        left = isinstance(error, ConnectionResetError) and _has_gone(request)
        if not left:
            exchange.failed(error)
        exchange.finished(left=left)
        raise
    else:
        exchange.answered(response.status)
        exchange.finished()
        return response
    finally:
        CURRENT.reset(token)


def _has_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
