"""Middleware for aiohttp's server: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from .exchange import CURRENT, SERVER_ERROR, Exchange


@web.middleware
async def arbiter_aiohttp_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Report requests. Must be the first of ``Application(middlewares=[...])``. A disconnect is no error."""
    exchange = Exchange()
    token = CURRENT.set(exchange)
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        exchange.answered(answer.status)
        if answer.status >= SERVER_ERROR:
            exchange.failed(answer)  # its cause may be the real error
        exchange.finished()
        raise
    except Exception as error:
        is_disconnect = isinstance(error, ConnectionResetError) and _is_closed(request)
        if not is_disconnect:
            exchange.failed(error)
        exchange.finished(is_disconnect=is_disconnect)
        raise
    else:
        exchange.answered(response.status)
        exchange.finished()
        return response
    finally:
        CURRENT.reset(token)


def _is_closed(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
