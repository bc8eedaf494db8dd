"""The connections of one listener, and aiohttp's low-level server behind them, with bounds against misbehaviour.

Bounds: number of connections, what each may hold (see ``connection.py``), and time: a connection that has not brought a
head for ``idle_s`` seconds is cut, however busily it trickles, and one that does not read its answers for ``UNREAD_S``;
when all places are taken the one that has been silent longest makes room, so that a crowd of idle clients cannot shut
out a health poll.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from sidecar.net import web
from sidecar.net.connection import READ_BYTES, Connection
from sidecar.net.crowd import Backend, Ready
from sidecar.net.garbage import garbage_logger
from sidecar.net.heads import HEADERS_LIMIT, LINE_LIMIT, Heads

BODY_LIMIT: Final = 64 * 1024
UNREAD_S: Final = 10.0
GO_ON_A_TURN: Final = 4
"""Connections that brought more than one turn's requests, and go on in the next."""

NEVER_S: Final = 86_400.0

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
    """Makes the protocol of each connection, and notes when each last brought a whole head.

    ``ready``: the answers that were made before, which need no aiohttp.
    """

    def __init__(
        self,
        answer: Handler,
        refused: Callable[[str], None],
        on_failure: Callable[[Exception], None],
        *,
        max_connections: int,
        idle_s: float,
        ready: Ready | None = None,
        takes_bodies: bool = True,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            answer,
            request_factory=self._request,
            access_log=None,
            logger=garbage_logger(refused, on_failure),
            keepalive_timeout=NEVER_S,  # we look after that, and know of the requests that it never saw
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=HEADERS_LIMIT,
            read_bufsize=BODY_LIMIT,
            lingering_time=1.0,
            auto_decompress=False,
        )
        self.heads = Heads(takes_bodies=takes_bodies)
        self.ready = ready
        self.refused = refused
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._loop = loop
        self._time = loop.time
        self._max = max_connections
        self._idle_s = idle_s
        self._heard: dict[Connection, float] = {}
        self._stuck: dict[Connection, float] = {}
        self._later: dict[Connection, None] = {}
        self._goes_on = False
        self._held: dict[web.RequestHandler, asyncio.Future[None]] = {}
        self._closing = False

    def __call__(self, early: bytes = b"") -> Connection:  # type: ignore[override]  # a protocol before aiohttp's
        """The protocol of one connection."""
        return Connection(self, early)

    def backend(self, connection: Connection) -> Backend:
        """Make what hands the requests of this connection to aiohttp."""
        backend = Backend(self, loop=self._loop, **self._kwargs)
        backend.connection = connection
        assert connection.transport is not None  # noqa: S101 - a request has come on it
        backend.connection_made(connection.transport)
        return backend

    def _request(self, *parts: Any) -> web.BaseRequest:
        message, payload, protocol, writer, task = parts
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=BODY_LIMIT)

    def answered(self, request: web.BaseRequest) -> None:
        """Note that there is an answer to this request."""
        if isinstance(request.protocol, Backend):
            request.protocol.connection.answered()

    async def hold(self, request: web.BaseRequest, held: Held) -> None:
        """Send the head, and keep the connection until it ends; it takes no place, and nobody cuts it."""
        protocol, ended = request.protocol, self._loop.create_future()
        if isinstance(protocol, Backend):
            self._heard.pop(protocol.connection, None)
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
        for connection in [connection for connection in self._heard if not connection.is_asked]:
            connection.end()
        for ended in self._held.values():
            _end(ended)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End everything; answers under way have so long to leave."""
        await super().shutdown(timeout)
        for connection in list(self._heard):
            connection.end()

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
        for connection in [connection for connection in self._heard if connection.is_idle]:
            transport = connection.transport
            if transport is None or transport.is_closing():
                continue
            if transport.get_extra_info("sslcontext") is None:
                transport.pause_reading()
                with suppress(OSError):  # no descriptor is left for it
                    given.append(transport.get_extra_info("socket").dup())
            self._heard.pop(connection, None)
            connection.end()  # closes our descriptor; a connection that is given lives on with the other
        return given

    # -- what the connections say -----------------------------------------------------------------------------

    def came(self, connection: Connection) -> None:
        """Take a connection in; one too many costs the one that has been silent longest its place."""
        if len(self._heard) >= self._max:
            self.make_room("crowded")
        self._heard[connection] = self._time()

    def heard(self, connection: Connection) -> None:
        """Note that the connection has brought a whole head."""
        if connection in self._heard:
            del self._heard[connection]  # who was heard last stands last
            self._heard[connection] = self._time()

    def stuck(self, connection: Connection, *, is_stuck: bool) -> None:
        """Note that its client does not read, or reads again."""
        if is_stuck:
            self._stuck[connection] = self._time()
        else:
            self._stuck.pop(connection, None)

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""
        self._heard.pop(connection, None)
        self._stuck.pop(connection, None)
        if connection.backend in self._held:
            _end(self._held[connection.backend])

    def later(self, connection: Connection) -> None:
        """Let it go on when it is its turn: few do in one turn of the loop."""
        self._later[connection] = None
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        turn = list(islice(self._later, GO_ON_A_TURN))
        for connection in turn:
            del self._later[connection]
        if self._later:
            self.later(next(iter(self._later)))
        for connection in turn:
            connection.advance()  # which may put it at the end again

    # -- who is cut -------------------------------------------------------------------------------------------

    def cut_idle(self) -> None:
        """Cut every connection that brings nothing for ``idle_s`` seconds, or does not read for ``UNREAD_S``."""
        now = self._time()
        for connection, since in list(self._stuck.items()):
            if since < now - UNREAD_S and connection in self._heard:
                self.cut(connection, "unread")
        for connection, heard_at in list(self._heard.items()):
            if heard_at < now - self._idle_s:
                self.cut(connection, "idle")

    def make_room(self, word: str) -> None:
        """Cut the connection that has been silent longest."""
        oldest = next(iter(self._heard), None)
        if oldest is not None:
            self.cut(oldest, word)

    def cut(self, connection: Connection, word: str) -> None:
        """End a connection at once."""
        self._heard.pop(connection, None)
        self.refused(word)
        connection.abort()


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
