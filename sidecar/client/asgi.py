"""ASGI middleware: 5xx and exceptions are errors, every request is a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from sidecar.client.exchange import CURRENT, Exchange, report_exception

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class ArbiterMiddleware:
    """Wraps an ASGI application. Requests for ``ignore_paths``, the app's own health page say, are not looked at.

    Exceptions pass through as they are. A client that goes away is no error. Of a websocket only exceptions are told;
    lifespan is not touched.
    """

    def __init__(self, app: App, *, ignore_paths: Collection[str] = ()) -> None:
        self._app = app
        self._ignored = frozenset(ignore_paths)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection, as ASGI has it."""
        if scope["type"] == "http" and scope.get("path") not in self._ignored:
            await self._follow(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._watch(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _follow(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange, line = Exchange(), _Line(receive, send)
        line.exchange = exchange
        token = CURRENT.set(exchange)
        try:
            await self._app(scope, line.receive, line.send)
        except Exception as error:
            if not line.is_cut_by(error):
                exchange.failed(error)
            exchange.finished(left=line.left)
            raise
        else:
            exchange.finished(left=line.left)
        finally:
            CURRENT.reset(token)

    async def _watch(self, scope: Message, receive: Receive, send: Send) -> None:
        line = _Line(receive, send)
        try:
            await self._app(scope, line.receive, line.send)
        except Exception as error:
            if not line.is_cut_by(error):
                report_exception(error)
            raise


class _Line:
    """The two ways between server and app, and whether the client has hung up."""

    __slots__ = ("_failure", "_receive", "_send", "exchange", "left")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._failure: OSError | None = None
        self.left = False
        self.exchange: Exchange | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self.left = True
        return message

    async def send(self, message: Message) -> None:
        if self.exchange is not None and message["type"] == "http.response.start":
            self.exchange.answered(message["status"])
        try:
            await self._send(message)
        except OSError as error:
            # ASGI 2.4: a server raises OSError when there is nobody to send to.
            self._failure, self.left = error, True
            raise

    def is_cut_by(self, error: Exception) -> bool:
        """Whether this exception only says that the client has gone; Starlette has two of its own for that."""
        gone = type(error).__name__ in ("ClientDisconnect", "WebSocketDisconnect")
        return error is self._failure or (self.left and gone)
