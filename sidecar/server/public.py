"""The public listener: HTTP/1 for strangers, answered from memory, with a bound for everything.

It takes GET, HEAD and OPTIONS without a body, one request of a connection at a time: an answer ends the connection if
the client has sent more behind its request. Connections are read and written on their sockets, also with TLS. A flood
is made of new connections, and asyncio's transport would cost more than the answer; with TLS it would hold 256 KiB.

The bounds: ``most`` connections are open, with TLS half of them; the next one takes the place of that which has been
silent for longest, of the address that has most of them. Four fifths may stay open after their answer. A client has
``SLOW_S`` seconds to send a head, or to read an answer, and ``IDLE_S`` between two requests. A turn ends after
``TURN_S``.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.net.http_error import HttpError
from sidecar.net.listening import Listening
from sidecar.server.public_http import END, HEAD_LIMIT, PublicAnswer, PublicRequest, parse, refusal, refuse_hopeless

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate
    from sidecar.net.tls import ServerTls

MOST: Final = 320  # connections
EVENTS: Final = 64  # connections that are found ready at once
READ_BYTES: Final = 16 * 1024  # as long as a record of TLS, so that nothing waits where epoll does not see it
TURN_S: Final = 0.005  # a TLS handshake costs up to a millisecond, an answer a twentieth of that
BETWEEN_S: Final = 0.002  # a turn without work costs 10 microseconds, as a tenth of a report to the local listener
IDLE_S: Final = 75.0
SLOW_S: Final = 10.0
SWEEP_S: Final = 2.0
NO_CLIENT_CERTIFICATE: Final = frozenset({"PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"})
"""The reasons of OpenSSL for a client without a certificate, or with one that no known authority has signed."""

AnswerTo = Callable[[PublicRequest], PublicAnswer]
"""The answer to a request; ``HttpError`` if there is none."""


class PublicServer:
    """Answers requests with ``answer_to`` at any number of listening sockets.

    ``on_refusal(listener, word)`` gets every refused request and every cut connection, ``on_failure`` every exception
    of ``answer_to``: the client sees a 500 and no more. ``gate`` says which clients are served, None: all.
    """

    name: Final = "public"

    def __init__(
        self,
        answer_to: AnswerTo,
        *,
        on_refusal: Callable[[str, str], None],
        on_failure: Callable[[Exception], None],
        gate: AddressGate | None = None,
        tls: ServerTls | None = None,
        most: int = MOST,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._answer_to = answer_to
        self._on_refusal = on_refusal
        self._on_failure = on_failure
        self._tls = tls
        self._most = most // 2 if tls else most  # a handshake that is not finished takes up to 60 KiB
        self._kept = self._most * 4 // 5
        self._epoll = select.epoll()
        self._ready: list[tuple[int, int]] = []
        self._listening = Listening(
            self._add, gate=gate, on_ready=self.turn, on_full=lambda: self._make_room("descriptors")
        )
        self.addresses = self._listening.addresses
        self.open_tcp = self._listening.open_tcp
        self.stop = self._listening.stop
        self._connections: dict[int, _Client] = {}
        """The open ones by their descriptors, those that are silent for longest first."""
        self._hosts = Counter[str]()
        """The number of connections of each address that has one."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self.loop.add_reader(self._epoll.fileno(), self.turn)

    def turn(self) -> None:
        """Serve what is ready, for about ``TURN_S``.

        New connections come first: most checks are new, and those that are kept may be busy.
        """
        begun_at = self.loop.time()
        self._due_at, ends_at = begun_at + BETWEEN_S, begun_at + TURN_S
        self._listening.accept()
        self._ready = self._ready or self._epoll.poll(0, EVENTS)
        while self._ready:
            number, _ = self._ready.pop()
            if number in self._connections:
                self._connections[number].go_on()
            if self.loop.time() >= ends_at:
                return

    def turn_between(self) -> None:
        """Serve what is ready if the last turn was not just now.

        For the many pieces of other work in one turn of the loop, which would hold up the checks until its end.
        """
        if self.loop.time() >= self._due_at:
            self.turn()

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        self.stop()
        for connection in list(self._connections.values()):
            connection.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if not self._epoll.closed:
            self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    # -- connections ------------------------------------------------------------------------------------------

    @property
    def connected(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def _add(self, plain: socket.socket, host: str) -> None:
        if len(self._connections) >= self._most:
            self._make_room("crowded")
        opened = plain
        if self._tls is not None:
            try:
                plain.getpeername()  # ``wrap_socket`` would leave the socket open if the client has gone
                opened = self._tls.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            except OSError:
                plain.close()
                self.refused("handshake")
                return
        connection = _Client(self, opened, host)
        self._connections[opened.fileno()] = connection
        self._hosts[host] += 1
        self._epoll.register(opened, select.EPOLLIN)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)
        if self._tls is None:
            connection.go_on()  # its request has often come with it

    def _make_room(self, word: str) -> None:
        """Cut the connection that is silent for longest, of the address that has most of them."""
        if self._connections:
            busiest = max(self._hosts, key=self._hosts.__getitem__)
            self._cut(next(each for each in self._connections.values() if each.host == busiest), word)

    def _sweep(self) -> None:
        """Cut the connections that are silent for too long."""
        now = self.loop.time()
        for connection in list(self._connections.values()):
            if now > connection.since + connection.patience_s:
                self._cut(connection, connection.awaits)
        self._sweeping = self.loop.call_later(SWEEP_S, self._sweep) if self._connections else None

    def _cut(self, connection: _Client, word: str) -> None:
        connection.close()
        self.refused(word)

    # -- called by a connection -------------------------------------------------------------------------------

    @property
    def may_keep(self) -> bool:
        """Whether a connection may stay open after its answer."""
        return len(self._connections) <= self._kept

    def refused(self, word: str) -> None:
        """Count a refused request or connection."""
        self._on_refusal(self.name, word)

    def answer(self, request: PublicRequest) -> PublicAnswer:
        """The answer to a request, also if it is refused or fails."""
        try:
            return self._answer_to(request)
        except HttpError as error:
            self.refused(error.word)
            return refusal(error.status, str(error), error.headers)
        except Exception as error:  # noqa: BLE001 - the listener must go on
            self._on_failure(error)
            return refusal(500, "the sidecar failed to answer, see its log")

    def wait_for(self, connection: _Client, events: int) -> None:
        """Call its ``go_on`` at these events."""
        self._epoll.modify(connection.socket, events)

    def is_silent_now(self, connection: _Client) -> None:
        """Note the beginning of its silence."""
        connection.since = self.loop.time()
        number = connection.socket.fileno()
        self._connections[number] = self._connections.pop(number)

    def forget(self, connection: _Client) -> None:
        """The connection is about to be closed."""
        del self._connections[connection.socket.fileno()]
        self._hosts[connection.host] -= 1
        if not self._hosts[connection.host]:
            del self._hosts[connection.host]


class _Client:
    """One client: requests in, answers out."""

    def __init__(self, server: PublicServer, opened: socket.socket, host: str) -> None:
        self.socket = opened
        self.host = host
        self.since = server.loop.time()
        """When it began to be silent: at its beginning, or with the first bytes of a request."""
        self._server = server
        self._handshake = opened.do_handshake if isinstance(opened, ssl.SSLSocket) else None
        self._is_new = True
        self._rest = b""
        self._unsent = memoryview(b"")
        self._is_unread = False
        """Whether it waits until the client has read, not until it has sent something."""
        self._is_over = False
        """Whether it has had its last answer. What the client still sends is read away: a reset would destroy that."""
        self._lingers = False
        """Whether the client closes the connection after the last answer, not the server."""

    @property
    def awaits(self) -> str:
        """What the client has not done yet; the word for cutting it."""
        return "handshake" if self._handshake else "unread" if self._is_unread else "idle"

    @property
    def patience_s(self) -> float:
        """Seconds that it may be silent."""
        return SLOW_S if self._is_new or self._rest or self._is_unread or self._is_over else IDLE_S

    def go_on(self) -> None:
        """Do what can be done without waiting. It never raises."""
        try:
            if self._handshake is not None:
                self._handshake()
                self._handshake = None
            if self._is_unread:
                self._send()
            else:
                self._read()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError as error:  # errors of TLS are OSErrors, too
            if self._handshake is not None:
                is_stranger = getattr(error, "reason", "") in NO_CLIENT_CERTIFICATE
                self._server.refused("certificate" if is_stranger else "handshake")
            self.close()

    def close(self) -> None:
        """Cut it."""
        self._server.forget(self)
        self.socket.close()

    def _read(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            self.close()
        elif not self._is_over:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if not self._rest:
            self._server.is_silent_now(self)
        self._rest = (self._rest + data).lstrip(b"\r\n")
        end = self._rest.find(END, 0, HEAD_LIMIT) + len(END)
        try:
            if end >= len(END):
                self._answer(parse(self._rest[:end]), has_more=bool(self._rest[end:].strip(b"\r\n")))
            elif self._rest:
                refuse_hopeless(self._rest)
        except HttpError as error:
            self._server.refused(error.word)
            self._is_over = self._lingers = True
            self._respond(refusal(error.status, str(error), error.headers).written("GET", keeps=False))

    def _answer(self, request: PublicRequest, *, has_more: bool) -> None:
        keeps = request.keeps and not has_more and self._server.may_keep
        self._is_over, self._lingers = not keeps, request.keeps or has_more
        self._respond(self._server.answer(request).written(request.method, keeps=keeps))

    def _respond(self, response: bytes) -> None:
        self._is_new, self._rest, self._unsent = False, b"", memoryview(response)
        self._send()

    def _send(self) -> None:
        with suppress(BlockingIOError, ssl.SSLWantWriteError):
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        is_unread = bool(self._unsent)
        if is_unread != self._is_unread:
            self._is_unread = is_unread
            self._server.wait_for(self, select.EPOLLOUT if is_unread else select.EPOLLIN)
        if self._is_over and not is_unread:
            self._end()

    def _end(self) -> None:
        """Tell the client that nothing more comes."""
        with suppress(OSError):
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket.unwrap()
        if self._lingers:
            self.socket.shutdown(socket.SHUT_WR)
        else:
            self.close()
