"""ASGI middleware: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from .exchange import CURRENT, Exchange, report_exception

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class ArbiterMiddleware:
    """Wraps an ASGI application. Requests for ``ignore_paths``, such as a health page of the app, are not reported.

    Exceptions pass through unchanged. A client that disconnects is no error. For a websocket it
    reports only exceptions, for lifespan nothing.
    """

    def __init__(self, app: App, *, ignore_paths: Collection[str] = ()) -> None:
        self._app = app
        self._ignored = frozenset(ignore_paths)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] == "http" and scope.get("path") not in self._ignored:
            await self._report_request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._report_exceptions(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _report_request(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange, connection = Exchange(), _Connection(receive, send)
        connection.exchange = exchange
        token = CURRENT.set(exchange)
        try:
            await self._app(scope, connection.receive, connection.send)
        except Exception as error:
            if not connection.is_disconnect(error):
                exchange.failed(error)
            exchange.finished(is_disconnect=connection.is_disconnected)
            raise
        else:
            exchange.finished(is_disconnect=connection.is_disconnected)
        finally:
            CURRENT.reset(token)

    async def _report_exceptions(self, scope: Message, receive: Receive, send: Send) -> None:
        connection = _Connection(receive, send)
        try:
            await self._app(scope, connection.receive, connection.send)
        except Exception as error:
            if not connection.is_disconnect(error):
                report_exception(error)
            raise


class _Connection:
    """The two directions between server and app, and whether the client has disconnected."""

    __slots__ = ("_failure", "_receive", "_send", "exchange", "is_disconnected")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._failure: OSError | None = None
        self.is_disconnected = False
        self.exchange: Exchange | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self.is_disconnected = True
        return message

    async def send(self, message: Message) -> None:
        if self.exchange is not None and message["type"] == "http.response.start":
            self.exchange.answered(message["status"])
        try:
            await self._send(message)
        except OSError as error:
            # ASGI 2.4: a server raises OSError when the client has disconnected.
            self._failure, self.is_disconnected = error, True
            raise

    def is_disconnect(self, error: Exception) -> bool:
        """Whether this exception only means that the client has disconnected; Starlette has two classes for that."""
        is_starlette = type(error).__name__ in ("ClientDisconnect", "WebSocketDisconnect")
        return error is self._failure or (self.is_disconnected and is_starlette)
