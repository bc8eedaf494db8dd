"""One connection of a door: it reads heads, answers at once what was made ready, and hands all else to aiohttp.

aiohttp sees one request at a time, and the next one when it has an answer to that. So nothing that a client sends ahead
of answers, behind an upgrade or in tiny chunks is ever kept: what waits is a head and one reading. A client that does
not read its answers is not read from either.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.net.chunks import Chunks, TooManyChunksError
from sidecar.net.heads import CHUNKED, END, BadHeadError, Head, refusal, refuse_hopeless

if TYPE_CHECKING:
    from sidecar.net.crowd import Backend, Crowd

READ_BYTES: Final = 16 * 1024
A_TURN: Final = 2
"""Requests of one connection that are looked at before it is another one's turn."""

LINGER_S: Final = 1.0
LINGER_BYTES: Final = 128 * 1024
"""Of a client that was refused: it may still be sending, and would miss the answer if the connection were reset."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection. ``early``: bytes that were read from it before."""

    def __init__(self, crowd: Crowd, early: bytes = b"") -> None:
        self.transport: asyncio.Transport | None = None
        self.backend: Backend | None = None
        self.is_asked = False
        """Whether aiohttp has a request whose answer it does not know yet."""
        self._crowd = crowd
        self._rest = early
        self._body: int | Chunks = 0
        self._is_stuck = False
        self._is_later = False
        self._is_over = False
        self._lingered = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests: nothing has come of the next, and every answer has left."""
        transport = self.transport
        if transport is None or self.has_begun or self._is_over or transport.get_write_buffer_size():
            return False
        return self._is_answered

    @property
    def has_begun(self) -> bool:
        """Whether anything has come since the last whole request."""
        return bool(self._rest) or self.has_body_to_come

    @property
    def has_body_to_come(self) -> bool:
        """Whether the last request is not whole yet."""
        return bool(self._body)

    @property
    def _is_answered(self) -> bool:
        return self.backend is None or (not self.is_asked and self.backend.is_waiting)

    # -- what the transport says ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - only stream sockets lead here
        self.transport = transport
        self._crowd.came(self)
        if self._rest:
            self.advance()

    def get_buffer(self, _size: int) -> memoryview:
        """Where to read to: every connection reads at another moment."""
        return self._crowd.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take in what was read."""
        self.data_received(bytes(self._crowd.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        if self._is_over:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self.abort()
            return
        self._rest = self._rest + data if self._rest else data
        self.advance()

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Hold nothing any more."""
        self._is_over = True
        self._rest = b""
        self._crowd.gone(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.backend is not None:
            self.backend.connection_lost(exc)
        self.transport = None

    def pause_writing(self) -> None:
        """Ask nothing more for a client that does not read."""
        self._is_stuck = True
        self._crowd.stuck(self, is_stuck=True)
        if self.backend is not None:
            self.backend.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_stuck = False
        self._crowd.stuck(self, is_stuck=False)
        if self.backend is not None:
            self.backend.resume_writing()
        self._crowd.later(self)

    # -- requests, one by one ---------------------------------------------------------------------------------

    def answered(self) -> None:
        """Go on: aiohttp has an answer to its request, which may still have to leave."""
        self.is_asked = False
        if self._rest:
            self._crowd.later(self)

    def advance(self) -> None:
        """Look at what has come, as far as may be in one turn."""
        self._is_later = False
        for _ in range(A_TURN):
            if not self._may_go_on():
                break
            if self._body:
                self._feed_body()
            elif not self._next_request():
                break
        else:
            self._is_later = self._may_go_on()
        if self._is_later:
            self._crowd.later(self)
        self._regulate()

    def _may_go_on(self) -> bool:
        transport = self.transport
        if self._is_over or transport is None or transport.is_closing() or not self._rest:
            return False
        return bool(self._body) or not (self.is_asked or self._is_stuck)

    def _regulate(self) -> None:
        """Read on, unless there is enough to do, or the client reads no answers. A body is aiohttp's to stop."""
        transport = self.transport
        if transport is None or self._body:
            return
        is_waiting = self._rest and (self.is_asked or self._is_later)
        if not self._is_over and (self._is_stuck or is_waiting):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _next_request(self) -> bool:
        """Deal with a head; False if it is not whole, or was the last."""
        rest = self._rest = self._rest.lstrip(b"\r\n")
        end = rest.find(END) + len(END)
        try:
            if end < len(END):
                if rest:
                    refuse_hopeless(rest)
                return False
            head = self._crowd.heads.read(rest[:end])
            self._crowd.heard(self)
            ready = self._crowd.ready
            if ready is not None and head.is_plain and self._is_answered and (answer := ready(head)) is not None:
                self._rest = rest[end:]
                return self._answer(answer, keeps=head.keeps)
            self._ask(head, end)
        except BadHeadError as error:
            self._refuse(error)
            return False
        return True

    def _answer(self, answer: bytes, *, keeps: bool) -> bool:
        assert self.transport is not None  # noqa: S101 - what has come came on it
        self.transport.write(answer)
        if not keeps:
            self._is_over = True
            self.transport.close()
        return keeps

    def _ask(self, head: Head, end: int) -> None:
        """Let aiohttp answer, which has the body in one piece with its head if that has come."""
        rest = self._rest
        self._body = Chunks() if head.length == CHUNKED else head.length
        try:
            end += self._of_body(rest[end:])
        except ValueError as error:
            raise BadHeadError(400, "not_http", f"not HTTP: {error}") from None
        except TooManyChunksError as error:
            raise BadHeadError(400, "chunks", f"body: {error}") from None
        if self.backend is None:
            self.backend = self._crowd.backend(self)
        self.is_asked = True
        self._rest = rest[end:]
        self.backend.data_received(rest[:end])

    def _feed_body(self) -> None:
        assert self.backend is not None  # noqa: S101 - the body follows a head that it was given
        rest = self._rest
        try:
            taken = self._of_body(rest)
        except TooManyChunksError:
            self._crowd.cut(self, "chunks")
            return
        except ValueError:
            self._rest, self._is_over = b"", True  # there is no end to wait for: the handler's time will be over
            return
        self._rest = rest[taken:]
        self.backend.data_received(rest[:taken])

    def _of_body(self, data: bytes) -> int:
        """How many of these bytes are of the body, which are then no longer awaited."""
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
        """Say why, if every answer before has left, and end the connection when the client has had time to read it."""
        transport, self._rest, self._is_over = self.transport, b"", True
        self._crowd.refused(error.word)
        assert transport is not None  # noqa: S101 - what has come came on it
        if not self._is_answered:
            assert self.backend is not None  # noqa: S101 - else there would be no answer to wait for
            self.backend.close()
            return
        transport.write(refusal(error))
        if transport.can_write_eof():
            with suppress(OSError):  # it was reset meanwhile
                transport.write_eof()
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        else:
            transport.close()

    def end(self) -> None:
        """Close it; what was written leaves before."""
        self._is_over = True
        if self.backend is not None:
            self.backend.force_close()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End it at once: a gentle close would wait for a client that does not read."""
        self._is_over = True
        self._rest = b""
        if self.transport is not None:
            self.transport.abort()
