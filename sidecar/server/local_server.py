"""The local listener and the page for other machines: a stock aiohttp server with bounds.

The bounds are for the mistakes of an app: large and slow bodies, connections that it forgets, requests whose responses
it does not read. aiohttp itself reads no further while 32 requests of a connection wait, and closes idle connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from aiohttp import hdrs
from aiohttp.http import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from sidecar.net import web
from sidecar.net.listening import Listening
from sidecar.server.public import NO_CLIENT_CERTIFICATE
from sidecar.server.request_check import ORDERS, RequestCheck

if TYPE_CHECKING:
    import ssl

    from sidecar.net.tls import ServerTls

IDLE_S: Final = 75.0
CLOSE_S: Final = 1.0
"""Time for responses under way when the listener closes."""

LINE_LIMIT: Final = 8 * 1024
WRONG_TOKEN_S: Final = 0.2
"""Delay of the response to a wrong token, against guessing. A right token has no delay."""

READ_BYTES: Final = 16 * 1024
"""How much of a body is parsed ahead of its handler."""

HANDSHAKES: Final = 32
"""Maximum number of unfinished TLS handshakes; beyond that the oldest one gives way."""

HANDSHAKE_S: Final = 2.0
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LocalServer:
    """Serves ``routes`` to those whom ``check`` permits, on any number of sockets.

    ``on_refusal(listener, word)`` gets every refused request and connection, ``on_failure`` every exception of a
    handler: the client sees a 500 and no more. With ``tls`` TCP connections speak TLS. Beyond ``max_connections`` an
    idle connection gives way to a new one. An order that has begun is carried out, also when its client leaves.
    ``between`` is called before each answer: a flood of requests holds up what it serves for one answer only.
    """

    def __init__(
        self,
        name: str,
        routes: web.Routes,
        check: RequestCheck,
        *,
        on_refusal: Callable[[str, str], None],
        on_failure: Callable[[Exception], None],
        max_connections: int = 256,
        between: Callable[[], None] = lambda: None,
        idle_s: float = IDLE_S,
        tls: ServerTls | None = None,
    ) -> None:
        self.name = name
        self.routes = routes
        self._check = check
        self._on_refusal = partial(on_refusal, name)
        self._on_failure = on_failure
        self._max = max_connections
        self._between = between
        self._tls = tls
        self._listening = Listening(self._take)
        self.addresses = self._listening.addresses
        self.open_tcp, self.open_unix = self._listening.open_tcp, self._listening.open_unix
        self.stop = self._listening.stop
        self._starting: dict[asyncio.Task[None], None] = {}
        """The connections that are not open yet, the oldest first."""

        self._answering: set[object] = set()
        """The connections whose request is being answered."""

        self._bounds: dict[str, Any] = {
            "access_log": None,
            "logger": _counting_logger(self._on_refusal, on_failure),
            "keepalive_timeout": idle_s,
            "lingering_time": CLOSE_S,
            "max_line_size": LINE_LIMIT,
            "max_field_size": LINE_LIMIT,
            "read_bufsize": READ_BYTES,
            "between": between,
            "auto_decompress": False,
        }
        self._server = Server(self._answer, handler_cancellation=True)

    def _take(self, connection: socket.socket, host: str) -> None:
        """Begin to serve a connection. Each takes the certificate of its time."""
        context = self._tls.context if self._tls is not None and host else None
        if context is not None and len(self._starting) >= HANDSHAKES:
            next(iter(self._starting)).cancel()
            self._on_refusal("handshake")
        starting = asyncio.get_running_loop().create_task(self._start(connection, context))
        self._starting[starting] = None
        starting.add_done_callback(self._starting.pop)

    async def _start(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE_S if context else None
            )
        except OSError as error:  # errors of TLS are OSErrors too
            is_stranger = getattr(error, "reason", "") in NO_CLIENT_CERTIFICATE
            self._on_refusal("certificate" if is_stranger else "handshake")
            connection.close()

    def _connection(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection. Those of one turn of the loop are counted late."""
        connections = [each for each in self._server.connections if each.transport is not None]
        if len(connections) >= self._max:
            self._on_refusal("crowded")
            idle = next((each for each in connections if each not in self._answering), None)
            if idle is None:
                return _Full()
            idle.force_close()
        return _LocalConnection(self._server, loop=asyncio.get_running_loop(), **self._bounds)

    async def close(self) -> None:
        """Stop listening and close every connection; responses under way have ``CLOSE_S`` to leave."""
        self.stop()
        for starting in self._starting:
            starting.cancel()
        await asyncio.sleep(0)  # requests that have arrived are answered
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_S)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._answering.add(request.protocol)
        self._between()
        try:
            self._check.check_headers(request)
            if self._check.needs_token(request):
                await self._check.check_token(request)
            answering = self._handler(request)(request)
            response = await (asyncio.shield(answering) if request.path in ORDERS else answering)
        except web.HttpError as error:
            self._on_refusal(error.word)
            if error.status == HTTPStatus.UNAUTHORIZED:
                await asyncio.sleep(WRONG_TOKEN_S)
            response = web.json_response({"error": str(error)}, error.status, error.headers)
            if error.word == "upgrade":  # what follows is no HTTP, and aiohttp would keep all of it
                response.force_close()
        except Exception as error:  # noqa: BLE001 - aiohttp would count it as a bad request of the client
            if not (isinstance(error, ConnectionError) and _has_left(request)):
                self._on_failure(error)
            response = web.json_response({"error": "the sidecar failed to answer, see its log"}, 500)
        finally:
            self._answering.discard(request.protocol)
        response.headers[hdrs.SERVER] = web.PRODUCT  # aiohttp would name its version
        if not request.content.is_eof() and web.is_chunked(request):
            await _end(request, response)
        return response

    def _handler(self, request: web.BaseRequest) -> web.Handler:
        methods = self.routes.get(request.path)
        if methods is None:
            raise web.HttpError(HTTPStatus.NOT_FOUND, "path", f"path: {request.path[:100]!r} is not served here")
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
            sentence = f"method: {request.path} takes {', '.join(allowed)}"
            raise web.HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "method", sentence, {hdrs.ALLOW: ",".join(allowed)})
        return handler


def _has_left(request: web.BaseRequest) -> bool:
    """Whether the client has closed its connection, so that nothing can be written."""
    return request.transport is None or request.transport.is_closing()


async def _end(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Send the response and close the connection. aiohttp would read a rest in small chunks at any cost."""
    with suppress(ConnectionError):
        await response.prepare(request)
        await response.write_eof()
    request.protocol.force_close()


class _LocalConnection(RequestHandler):
    """A connection whose refusals of invalid HTTP do not name the versions of the server.

    ``between`` is called before anything that arrives is parsed.
    """

    def __init__(self, *args: Any, between: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._between = between

    def data_received(self, data: bytes) -> None:
        if data:  # without any, aiohttp parses what it has paused at
            self._between()
        super().data_received(data)

    def handle_error(self, *args: Any, **kwargs: Any) -> web.StreamResponse:
        response = super().handle_error(*args, **kwargs)
        response.headers[hdrs.SERVER] = web.PRODUCT
        return response


class _Full(asyncio.Protocol):
    """Answers a connection that there is no room for, and closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_FULL)
        transport.close()


class _CountingHandler(logging.Handler):
    """Counts requests that aiohttp refused as invalid HTTP; aiohttp would log a traceback for each."""

    def __init__(self, on_refusal: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        super().__init__()
        self._on_refusal = on_refusal
        self._on_failure = on_failure

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (HttpProcessingError, *web.BROKEN_OFF)):
            self._on_refusal("not_http")
        elif isinstance(error, Exception):
            self._on_failure(error)


def _counting_logger(on_refusal: Callable[[str], None], on_failure: Callable[[Exception], None]) -> logging.Logger:
    logger = logging.Logger("aiohttp.server", logging.DEBUG)  # noqa: LOG001 - private, known to no registry
    logger.addHandler(_CountingHandler(on_refusal, on_failure))
    return logger
