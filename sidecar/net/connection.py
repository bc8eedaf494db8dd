"""One connection of a listener. It answers from the cache, and passes other requests to aiohttp one by one.

aiohttp gets the next request when it has a response to the one before. So the buffer for data that a client sends ahead
of responses, behind an upgrade or in tiny chunks is at most one head and one read. The listener stops reading from a
client that does not read its responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from sidecar.net import web
from sidecar.net.chunked_body import ChunkedBody, TooManyChunksError
from sidecar.net.request_head import (
    CHUNKED,
    END,
    BadHeadError,
    HeadParser,
    RequestHead,
    error_response,
    refuse_hopeless,
)

READ_BYTES: Final = 16 * 1024
REQUESTS_A_TURN: Final = 2
"""Requests of one connection that the loop handles before other connections."""

LINGER_S: Final = 1.0
LINGER_BYTES: Final = 128 * 1024
"""Bytes to read after a refusal: if the client is still sending, a reset would destroy the response."""

ResponseCache = Callable[[RequestHead], bytes | None]
"""The whole cached response to this plain request, None if there is none."""


class ConnectionOwner(Protocol):
    """The interface of the listener for its connections."""

    heads: HeadParser
    buffer: memoryview

    @property
    def response_cache(self) -> ResponseCache | None:
        """The cached responses, if there are any."""

    def on_refusal(self, word: str, /) -> None:
        """Count a refused request."""

    def add(self, connection: Connection) -> None:
        """Count a new connection."""

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""

    def note_request(self, connection: Connection) -> None:
        """Note that it has sent a whole head."""

    def note_unread(self, connection: Connection, *, is_unread: bool) -> None:
        """Note that its client does not read, or reads again."""

    def continue_later(self, connection: Connection) -> None:
        """Call its ``advance`` in a later turn of the loop."""

    def cut(self, connection: Connection, word: str) -> None:
        """Abort it, and count that under ``word``."""

    def new_handler(self, connection: Connection) -> AiohttpHandler:
        """Make the handler that passes requests to aiohttp."""


class AiohttpHandler(web.RequestHandler):
    """aiohttp's end of a connection."""

    __slots__ = ("connection",)
    connection: Connection

    @property
    def is_waiting(self) -> bool:
        """Whether every response has left."""
        waiter = self._waiter  # aiohttp's own attribute: nothing public shows that the last response has left
        return waiter is not None and not waiter.done()


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection. ``early``: bytes that were read before it had a transport."""

    def __init__(self, owner: ConnectionOwner, early: bytes = b"") -> None:
        self.transport: asyncio.Transport | None = None
        self.handler: AiohttpHandler | None = None
        self.is_asked = False
        """Whether aiohttp has a request and no response to it yet."""
        self._owner = owner
        self._rest = early
        self._searched = 0
        """Bytes at the beginning of ``_rest`` that hold no end of a head."""
        self._body: int | ChunkedBody = 0
        self._is_unread = False
        self._is_later = False
        self._is_over = False
        self._is_last = False
        self._lingered = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _is_answered(self) -> bool:
        return self.handler is None or (not self.is_asked and self.handler.is_waiting)

    # -- called by the transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - listeners have stream sockets only
        self.transport = transport
        self._owner.add(self)
        if self._rest:
            self.advance()

    def get_buffer(self, _size: int) -> memoryview:
        """One buffer for all connections: each empties it before another is read."""
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes in the buffer."""
        if self._is_over:
            self._lingered += nbytes
            if self._lingered > LINGER_BYTES:
                self.abort()
            return
        if self._is_last:
            self._owner.cut(self, "pipelined")
            return
        data = bytes(self._owner.buffer[:nbytes])
        self._rest = self._rest + data if self._rest else data
        self.advance()

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Free everything."""
        self._is_over = True
        self._rest = b""
        self._owner.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.handler is not None:
            self.handler.connection_lost(exc)
        self.transport = None

    def pause_writing(self) -> None:
        """Handle no further request: the client does not read."""
        self._is_unread = True
        self._owner.note_unread(self, is_unread=True)
        if self.handler is not None:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_unread = False
        self._owner.note_unread(self, is_unread=False)
        if self.handler is not None:
            self.handler.resume_writing()
        self._owner.continue_later(self)

    # -- requests, one by one ---------------------------------------------------------------------------------

    def answered(self) -> None:
        """Continue with the next request: aiohttp has a response, which may not have left yet."""
        self.is_asked = False
        if self._rest:
            self._owner.continue_later(self)

    def expect_no_more(self) -> None:
        """Cut it if the client sends anything else: while a request waits, the end of the connection stays unseen."""
        self._is_last = True
        if self._rest:
            self._owner.cut(self, "pipelined")

    def advance(self) -> None:
        """Handle what has come, as far as one turn allows."""
        self._is_later = False
        for _ in range(REQUESTS_A_TURN):
            if not self._may_go_on():
                break
            if self._body:
                self._feed_body()
            elif not self._next_request():
                break
        else:
            self._is_later = self._may_go_on()
        if self._is_later:
            self._owner.continue_later(self)
        self._regulate()

    def _may_go_on(self) -> bool:
        transport = self.transport
        if self._is_over or transport is None or transport.is_closing() or not self._rest:
            return False
        return bool(self._body) or not (self.is_asked or self._is_unread)

    def _regulate(self) -> None:
        """Pause reading while a request waits or the client reads no responses. During a body aiohttp decides."""
        transport = self.transport
        if transport is None or self._body:
            return
        is_waiting = self._rest and (self.is_asked or self._is_later)
        if not self._is_over and (self._is_unread or is_waiting):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _next_request(self) -> bool:
        """Handle a head; False if it is not whole, or was the last."""
        rest = self._rest if self._searched else self._rest.lstrip(b"\r\n")
        end = rest.find(END, max(0, self._searched - len(END) + 1)) + len(END)
        self._rest, self._searched = rest, 0 if end >= len(END) else len(rest)
        owner = self._owner
        try:
            if end < len(END):
                if rest:
                    refuse_hopeless(rest)
                return False
            head = owner.heads.read(rest[:end])
            owner.note_request(self)
            cache = owner.response_cache
            if cache is not None and head.is_plain and self._is_answered and (response := cache(head)) is not None:
                self._rest = rest[end:]
                return self._respond(response, keeps=head.keeps)
            self._pass_on(head, end)
        except BadHeadError as error:
            self._refuse(error)
            return False
        return True

    def _respond(self, response: bytes, *, keeps: bool) -> bool:
        assert self.transport is not None  # noqa: S101 - a request has come on it
        self.transport.write(response)
        if not keeps:
            self._is_over = True
            self.transport.close()
        return keeps

    def _pass_on(self, head: RequestHead, end: int) -> None:
        """Pass a request to aiohttp, with as much of its body as has come."""
        rest = self._rest
        self._body = ChunkedBody() if head.length == CHUNKED else head.length
        try:
            end += self._count_body(rest[end:])
        except ValueError as error:
            raise BadHeadError(400, "not_http", f"not HTTP: {error}") from None
        except TooManyChunksError as error:
            raise BadHeadError(400, "chunks", f"body: {error}") from None
        if self.handler is None:
            self.handler = self._owner.new_handler(self)
        self.is_asked = True
        self._rest = rest[end:]
        self.handler.data_received(rest[:end])

    def _feed_body(self) -> None:
        assert self.handler is not None  # noqa: S101 - it has the head of this body
        rest = self._rest
        try:
            taken = self._count_body(rest)
        except TooManyChunksError:
            self._owner.cut(self, "chunks")
            return
        except ValueError:
            self._rest, self._is_over = b"", True  # the body has no end: the handler's time-out ends the request
            return
        self._rest = rest[taken:]
        self.handler.data_received(rest[:taken])

    def _count_body(self, data: bytes) -> int:
        """The number of these bytes that belong to the body; the rest of the body is what is still expected."""
        body = self._body
        if isinstance(body, int):
            taken = min(body, len(data))
            self._body = body - taken
        else:
            taken = body.take(data)
            if body.is_over:
                self._body = 0
        return taken

    # -- the end ----------------------------------------------------------------------------------------------

    def _refuse(self, error: BadHeadError) -> None:
        """Send the error if every earlier response has left, and close once the client has had time to read it."""
        transport, self._rest, self._is_over = self.transport, b"", True
        self._owner.on_refusal(error.word)
        assert transport is not None  # noqa: S101 - the head has come on it
        if not self._is_answered:
            assert self.handler is not None  # noqa: S101 - without it every request is answered
            self.handler.close()
            return
        transport.write(error_response(error))
        if transport.can_write_eof():
            with suppress(OSError):  # the client has reset it meanwhile
                transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        else:
            transport.close()

    def close(self) -> None:
        """Close it after what was written has left."""
        self._is_over = True
        if self.handler is not None:
            self.handler.force_close()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close it at once: ``close`` would wait for a client that does not read."""
        self._is_over = True
        self._rest = b""
        if self.transport is not None:
            self.transport.abort()
