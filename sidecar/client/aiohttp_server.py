"""Middleware for aiohttp's server: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from .exchange import SERVER_ERROR, Exchange
from .reporting import announce_start

announce_start()  # here, because aiohttp tells a middleware nothing before the first request


@web.middleware
async def arbiter_aiohttp_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Report requests. Must be the first of ``Application(middlewares=[...])``. A disconnect is no error."""
    with Exchange() as exchange:
        try:
            response = await handler(request)
        except web.HTTPException as answer:
            exchange.answered(answer.status)
            if answer.status < SERVER_ERROR:
                exchange.harmless = answer
            raise
        except ConnectionResetError as error:
            if request.transport is None or request.transport.is_closing():
                exchange.harmless, exchange.has_left = error, True
            raise
        exchange.answered(response.status)
        return response
