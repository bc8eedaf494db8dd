"""The connections of one listener: aiohttp's low-level server with bounds against clients that misbehave.

Bounds: size of head and body, number of connections, and time: a connection that has not brought a whole request for
``idle_s`` seconds is cut, however busily it trickles; when all places are taken the one that has been silent longest
makes room, so that a crowd of idle clients cannot shut out a health poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

BODY_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 4 * 1024
HEADERS_LIMIT: Final = 32
"""Of each connection the parser may hold twice LINE_LIMIT * HEADERS_LIMIT bytes, and then twice BODY_LIMIT."""

BROKEN_OFF: Final = (web.RequestPayloadError, OSError)
"""What reading a body raises when its client has gone or sends nonsense."""

_BUSY: Final = float("inf")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


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

    def _request(self, *parts: Any) -> web.BaseRequest:
        message, payload, protocol, writer, task = parts
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=BODY_LIMIT)

    def begun(self, request: web.BaseRequest) -> None:
        """Note that the connection has brought a whole request: while it is being answered, nobody cuts it."""
        self._heard[request.protocol] = _BUSY

    def answered(self, request: web.BaseRequest) -> None:
        """Note that the connection is silent from now on."""
        if request.protocol in self._heard:
            self._heard[request.protocol] = self._time()

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
