"""ASGI middleware: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

from .exchange import Exchange, report_exception
from .reporting import announce_start

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_DISCONNECTS: Final = ("ClientDisconnect", "WebSocketDisconnect")
"""The classes by which Starlette says that the client has disconnected."""


class ArbiterMiddleware:
    """Wraps an ASGI application. Requests for ``ignore_paths``, such as a health page of the app, are not reported.

    Exceptions pass through unchanged. A client that disconnects is no error. For a websocket it
    reports only exceptions, for lifespan nothing.
    """

    def __init__(self, app: App, *, ignore_paths: Collection[str] = ()) -> None:
        self._app = app
        self._ignored = frozenset(ignore_paths)
        announce_start()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] == "http" and scope.get("path") not in self._ignored:
            with Exchange() as exchange:
                await self._observed(exchange, scope, receive, send)
        elif scope["type"] == "websocket":
            # Not the current request: it may last for days, and each of its errors counts.
            exchange = Exchange()
            try:
                await self._observed(exchange, scope, receive, send)
            except Exception as error:
                if error is not exchange.harmless:
                    report_exception(error)
                raise
        else:
            await self._app(scope, receive, send)

    async def _observed(self, exchange: Exchange, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, and tell the exchange the status, and what only says that the client has left."""

        async def receive_and_look() -> Message:
            message = await receive()
            exchange.has_left |= message["type"] in ("http.disconnect", "websocket.disconnect")
            return message

        async def look_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.answered(message["status"])
            try:
                await send(message)
            except OSError as error:  # ASGI 2.4: the client has disconnected
                exchange.harmless, exchange.has_left = error, True
                raise

        try:
            await self._app(scope, receive_and_look, look_and_send)
        except Exception as error:
            if exchange.has_left and type(error).__name__ in _DISCONNECTS:
                exchange.harmless = error
            raise
