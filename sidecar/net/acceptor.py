"""Accepts connections: few in a turn of the event loop, and few TLS handshakes at once.

asyncio's own server accepts everything in the backlog at once, makes a task and a transport for each connection, and
stops for a second when no file descriptor is left. Here a connection may be answered before it costs any of that.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sidecar.net.event_loop import context

if TYPE_CHECKING:
    import ssl

    from sidecar.net.address_gate import AddressGate

BACKLOG: Final = 1024
NO_DESCRIPTOR_PAUSE_S: Final = 0.05
"""Pause in accepting when the process has no descriptor or memory left."""

HANDSHAKES: Final = 32
"""TLS handshakes of one listener that may be unfinished at once: each holds a buffer of 256 KiB in asyncio."""

HANDSHAKE_S: Final = 5.0
HANDSHAKE_MIN_S: Final = 0.5
"""Time for each handshake before another connection may replace it."""

HANDSHAKE_PAUSE_S: Final = 0.01
"""Pause in accepting while too many handshakes are unfinished."""

SHUTDOWN_S: Final = 1.0

NO_CLIENT_CERTIFICATE: Final = {"PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"}
"""The reasons of OpenSSL for a client without a certificate, or with one that no known authority has signed."""

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Acceptor:
    """Accepts at the bound socket ``listening`` and passes each connection to ``serve``.

    It accepts at most ``at_once`` connections in a turn of the loop, and none while ``may_accept`` returns False. It
    calls ``on_full`` when no descriptor is left. A connection that ``gate`` does not admit is closed at once, unread.
    ``is_priority``: the loop handles this socket and its connections before all others.
    """

    def __init__(
        self,
        listening: socket.socket,
        serve: Callable[[socket.socket], None],
        *,
        at_once: int,
        on_full: Callable[[], None] = lambda: None,
        may_accept: Callable[[], bool] | None = None,
        gate: AddressGate | None = None,
        is_priority: bool = False,
    ) -> None:
        listening.settimeout(0)
        try:
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        self.socket = listening
        self._loop = asyncio.get_running_loop()
        self._serve = serve
        self._at_once = at_once
        self._on_full = on_full
        self._may_accept = may_accept
        self._gate = gate
        self._context = context(is_priority=is_priority)
        self._timer: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        if self.socket.fileno() >= 0:
            if self._timer is not None:
                self._timer.cancel()
            self._loop.remove_reader(self.socket)
            self.socket.close()

    def _listen(self) -> None:
        self._context.run(self._loop.add_reader, self.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            if self._may_accept is not None and not self._may_accept():
                self._pause(HANDSHAKE_PAUSE_S)
                return
            try:
                connection, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._on_full()
                self._pause(NO_DESCRIPTOR_PAUSE_S)
                return
            if self._gate is not None and not self._gate.admits(connection, address[0]):
                connection.close()
                continue
            connection.settimeout(0)
            self._serve(connection)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self.socket)
        self._timer = self._loop.call_later(seconds, self._listen)


class ConnectionStarter:
    """Gives accepted sockets their transport and protocol, after a TLS handshake if there is a TLS context.

    A handshake has ``HANDSHAKE_S`` seconds. While ``HANDSHAKES`` are unfinished, other connections wait in the backlog
    until one ends or is ``HANDSHAKE_MIN_S`` old. In the latter case the oldest handshake of the address that has most
    of them is cut, so that a flood from one client shuts out only this client. ``on_refusal`` takes a word for each
    connection without a finished handshake: ``certificate`` if the client had to show one that counts and did not,
    ``handshake`` or ``crowded``.
    """

    def __init__(self, on_refusal: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        self._on_refusal = on_refusal
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._starting: dict[asyncio.Task[None], tuple[str, float]] = {}

    def may_begin(self) -> bool:
        """Whether another handshake may begin; it may cut an old one for that."""
        if len(self._starting) < HANDSHAKES:
            return True
        ((address, _),) = Counter(address for address, _ in self._starting.values()).most_common(1)
        oldest, since = next((task, at) for task, (other, at) in self._starting.items() if other == address)
        if since > self._loop.time() - HANDSHAKE_MIN_S:
            return False
        del self._starting[oldest]
        oldest.cancel()
        self._on_refusal("crowded")
        return True

    def begin(
        self, connection: socket.socket, factory: ProtocolFactory, tls_context: ssl.SSLContext | None = None
    ) -> None:
        """Start this connection: at once, or with TLS in a task."""
        if tls_context is None:
            # connect_accepted_socket does this in a task, which costs a third of what a connection of a flood costs.
            self._loop._make_socket_transport(connection, factory())  # type: ignore[attr-defined] # noqa: SLF001
            return
        task = self._loop.create_task(self._start(connection, factory, tls_context))
        self._starting[task] = _peer(connection), self._loop.time()
        task.add_done_callback(lambda task: self._started(task, connection))

    async def _start(self, connection: socket.socket, factory: ProtocolFactory, tls_context: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                factory,
                connection,
                ssl=tls_context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # errors of TLS are OSErrors too
            error.__traceback__ = None  # its frames hold the buffer and the error: a cycle for the garbage collector
            connection.close()
            is_stranger = getattr(error, "reason", "") in NO_CLIENT_CERTIFICATE
            self._on_refusal("certificate" if is_stranger else "handshake")
        except Exception as error:  # noqa: BLE001 - one connection must not cost the others
            connection.close()
            self._on_failure(error)

    def close(self) -> None:
        """End every connection that is not served yet."""
        for task in self._starting:
            task.cancel()

    def _started(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._starting.pop(task, None)
        if task.cancelled():
            connection.close()


def _peer(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[:1])
    except OSError:  # the client has closed it already
        return ""
