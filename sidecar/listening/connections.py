"""The connections of one listener: aiohttp's low-level server with bounds against clients that misbehave.

Bounds: size of head and body, number of connections, and time: a connection that has not brought a whole request for
``idle_s`` seconds is cut, however busily it trickles; when all places are taken the one that has been silent longest
makes room, so that a crowd of idle clients cannot shut out a health poll.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from aiohttp.http import HttpProcessingError

from sidecar.listening import web

BODY_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 4 * 1024
HEADERS_LIMIT: Final = 32
"""Of each connection the parser may hold twice LINE_LIMIT * HEADERS_LIMIT bytes, and then twice BODY_LIMIT."""

BROKEN_OFF: Final = (web.RequestPayloadError, OSError)
"""What reading a body raises when its client has gone or sends nonsense."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Held(web.StreamResponse):
    """A head and no end. ``on_closed`` is called once, when the client has closed the connection; not when we stop."""

    def __init__(self, on_closed: Callable[[], None]) -> None:
        super().__init__()
        self.on_closed = on_closed

    async def lasts(self, ended: asyncio.Future[None]) -> None:
        """Return once it has ``ended``; one that has more to send than the head sends it meanwhile."""
        await ended


class Connections(web.Server):
    """Makes the protocol of each connection, and notes when each last brought a whole request."""

    def __init__(
        self,
        answer: Handler,
        refused: Callable[[str], None],
        on_failure: Callable[[Exception], None],
        max_connections: int,
        idle_s: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            answer,
            request_factory=self._request,
            access_log=None,
            logger=_garbage_logger(refused, on_failure),
            keepalive_timeout=idle_s,
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=HEADERS_LIMIT,
            read_bufsize=BODY_LIMIT,
            lingering_time=1.0,
            auto_decompress=False,
        )
        self._loop = loop
        self._time = loop.time
        self._refused = refused
        self._max = max_connections
        self._idle_s = idle_s
        self._heard: dict[web.RequestHandler, float] = {}
        self._held: dict[web.RequestHandler, asyncio.Future[None]] = {}
        self._closing = False

    def _request(self, *parts: Any) -> web.BaseRequest:
        message, payload, protocol, writer, task = parts
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=BODY_LIMIT)

    def heard(self, request: web.BaseRequest) -> None:
        """Note that the request's connection has brought a whole request."""
        self._heard[request.protocol] = self._time()
        self.has_come(request)

    def has_come(self, request: web.BaseRequest) -> None:
        """Note that all has come of the request that there is to come."""
        if isinstance(request.protocol, _Connection):
            request.protocol.has_begun = False

    async def hold(self, request: web.BaseRequest, held: Held) -> None:
        """Send the head, and keep the connection until it ends; it takes no place, and nobody cuts it."""
        protocol, ended = request.protocol, self._loop.create_future()
        self._heard.pop(protocol, None)
        self._held[protocol] = ended
        try:
            with suppress(OSError):  # who has gone before the head was sent has gone
                await held.prepare(request)
                if protocol.connected and not self._closing:
                    await held.lasts(ended)
        finally:
            self._held.pop(protocol, None)
            if not self._closing:
                held.on_closed()

    def pre_shutdown(self) -> None:
        """End what is between two requests, and what is held."""
        self._closing = True
        super().pre_shutdown()
        for ended in self._held.values():
            _end(ended)

    def __call__(self) -> web.RequestHandler:
        """The protocol of one connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)

    @property
    def is_busy(self) -> bool:
        """Whether there is any connection, but for those that are held."""
        return bool(self._heard)

    def let_go(self) -> list[socket.socket]:
        """Give away what is between two requests: sockets from which nothing was read that was not answered.

        What is of TLS cannot be given away, for its keys are in here: it is ended with the goodbye of TLS, after which
        a client knows that nothing it sent was read.
        """
        given = []
        for handler, transport in list(self._connections.items()):
            if isinstance(handler, _Connection) and handler.is_idle and not transport.is_closing():
                if transport.get_extra_info("sslcontext") is None:
                    transport.pause_reading()
                    given.append(transport.get_extra_info("socket").dup())
                self._heard.pop(handler, None)
                handler.force_close()  # closes our descriptor; a connection that is given lives on with the other
        return given

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection in; one too many costs the one that has been silent longest its place."""
        super().connection_made(handler, transport)
        if len(self._heard) >= self._max:
            self._cut(min(self._heard, key=self._heard.__getitem__), "crowded")
        self._heard[handler] = self._time()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        self._heard.pop(handler, None)
        if handler in self._held:
            _end(self._held[handler])

    def cut_idle(self) -> None:
        """Cut every connection that has not brought a whole request for ``idle_s`` seconds."""
        oldest = self._time() - self._idle_s
        for handler in [handler for handler, heard_at in self._heard.items() if heard_at < oldest]:
            self._cut(handler, "idle")

    def _cut(self, handler: web.RequestHandler, word: str) -> None:
        self._heard.pop(handler, None)
        self._refused(word)
        handler.force_close()
        transport = self._connections.get(handler)
        if transport is not None:
            transport.abort()  # a gentle close would wait for a client that does not read


class _Connection(web.RequestHandler):
    """A connection that knows whether anything has come since its last whole request."""

    __slots__ = ("has_begun",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.has_begun = False
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.has_begun = True
        super().data_received(data)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has come."""
        waiter = self._waiter  # aiohttp's own sign: nobody else tells that the answer before has left
        is_waiting = waiter is not None and not waiter.done()
        return is_waiting and not self.has_begun and self._is_flushed()

    def _is_flushed(self) -> bool:
        transport = self.transport
        return isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size() == 0


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


class _Counted(logging.Handler):
    """Counts what is not HTTP at all; aiohttp has answered it with a 400 and would log a traceback each."""

    def __init__(self, refused: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        super().__init__()
        self._refused = refused
        self._on_failure = on_failure

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (HttpProcessingError, *BROKEN_OFF)):
            self._refused("not_http")
        elif isinstance(error, Exception):
            self._on_failure(error)


def _garbage_logger(refused: Callable[[str], None], on_failure: Callable[[Exception], None]) -> logging.Logger:
    logger = logging.Logger("garbage", logging.DEBUG)  # noqa: LOG001 - its own, known to no registry
    logger.addHandler(_Counted(refused, on_failure))
    return logger
