"""The connections of one listener, with bounds, and aiohttp's low-level server behind them.

Bounds: the number of connections, what each may buffer (see ``connection``), and time. A connection that sends no whole
head for ``idle_s`` seconds is cut, even while bytes trickle in; so is one that does not read its responses for
``UNREAD_S``. Beyond the maximum number the connection with the oldest request is cut, so that idle clients cannot shut
out a health poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from aiohttp import hdrs
from aiohttp.http import HttpProcessingError

from sidecar.net import web
from sidecar.net.connection import READ_BYTES, AiohttpHandler, Connection, ResponseCache
from sidecar.net.request_head import HEADERS_LIMIT, LINE_LIMIT, HeadParser

UNREAD_S: Final = 10.0
CONTINUED_A_TURN: Final = 4
"""Number of connections that go on with further requests in one turn of the loop."""

NEVER_S: Final = 86_400.0


class _Request(web.BaseRequest):
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Name no versions: aiohttp calls this for every response, its own errors and long responses as well."""
        response.headers[hdrs.SERVER] = web.SERVER


class BoundedServer(web.Server):
    """Makes the protocol of each connection, and records when each last sent a whole head."""

    def __init__(
        self,
        handler: web.Handler,
        on_refusal: Callable[[str], None],
        on_failure: Callable[[Exception], None],
        *,
        max_connections: int,
        idle_s: float,
        response_cache: ResponseCache | None = None,
        takes_bodies: bool = True,
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._request,
            access_log=None,
            logger=_counting_logger(on_refusal, on_failure),
            keepalive_timeout=NEVER_S,  # idle connections are cut here: aiohttp does not see every request
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=HEADERS_LIMIT,
            read_bufsize=web.BODY_LIMIT,
            lingering_time=1.0,
            auto_decompress=False,
        )
        self.heads = HeadParser(takes_bodies=takes_bodies)
        self.response_cache = response_cache
        self.on_refusal = on_refusal
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._max = max_connections
        self._idle_s = idle_s
        self.occupied = asyncio.Event()
        """Set while there is a connection that may have to be cut; ``cut_idle`` clears it."""
        self._last_request: dict[Connection, float] = {}
        self._unread: dict[Connection, float] = {}
        self._later: dict[Connection, None] = {}
        self._is_scheduled = False
        self._long: dict[web.RequestHandler, asyncio.Future[None]] = {}
        self._closing = False

    def __call__(self, early: bytes = b"") -> Connection:  # type: ignore[override]  # a protocol before aiohttp's
        """The protocol of one connection."""
        return Connection(self, early)

    def new_handler(self, connection: Connection) -> AiohttpHandler:
        """Make the handler that passes the requests of this connection to aiohttp."""
        handler = AiohttpHandler(self, loop=self._loop, **self._kwargs)
        handler.connection = connection
        assert connection.transport is not None  # noqa: S101 - a request has come on it
        handler.connection_made(connection.transport)
        return handler

    def _request(self, *parts: Any) -> web.BaseRequest:
        message, payload, protocol, writer, task = parts
        return _Request(message, payload, protocol, writer, task, self._loop, client_max_size=web.BODY_LIMIT)

    def answered(self, request: web.BaseRequest) -> None:
        """Note that there is a response to this request."""
        if isinstance(request.protocol, AiohttpHandler):
            request.protocol.connection.answered()

    async def keep_open(self, request: web.BaseRequest, response: web.LongResponse) -> None:
        """Send a long response until it ends. Its connection no longer counts, and is never cut as idle."""
        protocol, ended = request.protocol, self._loop.create_future()
        if isinstance(protocol, AiohttpHandler):
            self._last_request.pop(protocol.connection, None)
            protocol.connection.expect_no_more()
        self._long[protocol] = ended
        try:
            with suppress(OSError):  # the client has gone before the head was sent
                await response.prepare(request)
                if protocol.connected and not self._closing:
                    await response.send_until(ended)
        finally:
            self._long.pop(protocol, None)
            if not self._closing:
                response.on_closed()

    def pre_shutdown(self) -> None:
        """Close the connections between two requests, and end long responses."""
        self._closing = True
        super().pre_shutdown()
        for connection in [connection for connection in self._last_request if not connection.is_asked]:
            connection.close()
        for ended in self._long.values():
            _end(ended)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """Close every connection; responses under way have ``timeout`` seconds to leave."""
        await super().shutdown(timeout)
        for connection in list(self._last_request):
            connection.close()

    # -- called by the connections ----------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        """Count a new connection; if there are too many, cut the one with the oldest request."""
        if len(self._last_request) >= self._max:
            self.cut_oldest("crowded")
        self._last_request[connection] = self._time()
        self.occupied.set()

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._last_request.pop(connection, None)
        self._unread.pop(connection, None)
        if connection.handler in self._long:
            _end(self._long[connection.handler])

    def note_request(self, connection: Connection) -> None:
        """Note that the connection has sent a whole head."""
        if connection in self._last_request:
            del self._last_request[connection]  # the dict is in the order of the last requests
            self._last_request[connection] = self._time()

    def note_unread(self, connection: Connection, *, is_unread: bool) -> None:
        """Note that its client does not read, or reads again."""
        if is_unread:
            self._unread[connection] = self._time()
        else:
            self._unread.pop(connection, None)

    def continue_later(self, connection: Connection) -> None:
        """Schedule its next requests: only few connections go on in one turn of the loop."""
        self._later[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        turn = list(islice(self._later, CONTINUED_A_TURN))
        for connection in turn:
            del self._later[connection]
        if self._later:
            self.continue_later(next(iter(self._later)))
        for connection in turn:
            connection.advance()  # which may append it again

    # -- cutting ----------------------------------------------------------------------------------------------

    def cut_idle(self) -> None:
        """Cut connections that send no head for ``idle_s`` seconds, or do not read for ``UNREAD_S``."""
        now = self._time()
        for connection, since in list(self._unread.items()):
            if since < now - UNREAD_S and connection in self._last_request:
                self.cut(connection, "unread")
        for connection, last in list(self._last_request.items()):
            if last < now - self._idle_s:
                self.cut(connection, "idle")
        if not self._last_request:
            self.occupied.clear()

    def cut_oldest(self, word: str) -> None:
        """Cut the connection with the oldest request."""
        oldest = next(iter(self._last_request), None)
        if oldest is not None:
            self.cut(oldest, word)

    def cut(self, connection: Connection, word: str) -> None:
        """Abort a connection, and count that under ``word``."""
        self._last_request.pop(connection, None)
        self.on_refusal(word)
        connection.abort()


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


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
