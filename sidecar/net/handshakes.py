"""TLS before a door: who has not shaken hands yet costs little, and holds up nobody.

asyncio's own way would take any number of connections in, each with a buffer of 256 KiB, and sign for each as soon as
it asks. Here a handshake begins at most every ``PACE_S``, so that a crowd gets no more of the loop than its part; few
are under way at once and few wait, and one too many costs the oldest of those its place who come from the address that
most come from. The doors behind see whole connections only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import ssl

PACE_S: Final = 0.005
"""A signature with an RSA key of 2048 bits takes about 1 ms."""

AT_ONCE: Final = 32
WAITING: Final = 128
HANDSHAKE_S: Final = 5.0
SHUTDOWN_S: Final = 1.0


class Served(Protocol):
    """What serves a connection once it speaks TLS: any of asyncio's protocols that also takes bytes read before."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""


Protocols = Callable[[], Served]


class Handshakes:
    """Makes the protocol of each connection; once it speaks TLS it has one that ``make`` has made.

    ``refused`` is told a word for each connection that came to nothing: ``handshake`` or ``crowded``.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Protocols,
        refused: Callable[[str], None],
        on_failure: Callable[[Exception], None],
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self.context = context
        self.make = make
        self.refused = refused
        self.on_failure = on_failure
        self.handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Handshake] = deque()
        self._begun: dict[_Handshake, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> asyncio.Protocol:
        """The protocol of one connection."""
        return _Handshake(self)

    @property
    def is_busy(self) -> bool:
        """Whether anybody waits for a handshake, or for its end."""
        return bool(self._waiting or self._begun)

    def close(self) -> None:
        """End whatever is no connection yet."""
        if self._timer is not None:
            self._timer.cancel()
        for handshake in [*self._waiting, *self._begun]:
            handshake.abort()
        self._waiting.clear()

    def wait(self, handshake: _Handshake) -> None:
        """Begin with it when it is its turn."""
        self._waiting.append(handshake)
        if len(self._waiting) > WAITING:
            excess = _excess(self._waiting)
            self._waiting.remove(excess)
            self._cut(excess)
        if self._timer is None:
            self._turn()

    def _turn(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if len(self._begun) >= AT_ONCE:
            excess = _excess(self._begun)
            del self._begun[excess]
            self._cut(excess)
        handshake = self._waiting.popleft()
        task = self._begun[handshake] = self._loop.create_task(handshake.shake())
        task.add_done_callback(lambda _: self._begun.pop(handshake, None))
        self._timer = self._loop.call_later(PACE_S, self._turn)

    def _cut(self, handshake: _Handshake) -> None:
        self.refused("crowded")
        handshake.abort()


def _excess(crowd: Collection[_Handshake]) -> _Handshake:
    """Who is one too many: so a single client shuts out nobody but itself."""
    ((host, _),) = Counter(one.host for one in crowd).most_common(1)
    return next(one for one in crowd if one.host == host)


class _Handshake(asyncio.Protocol):
    """A connection that is to speak TLS, until it does; what comes behind the handshake is kept for who follows."""

    def __init__(self, crowd: Handshakes) -> None:
        self.host = ""
        self._crowd = crowd
        self._transport: asyncio.Transport | None = None
        self._early = b""
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - only stream sockets lead here
        self._transport = transport
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        transport.pause_reading()
        self._crowd.wait(self)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        self._is_over = True

    def abort(self) -> None:
        """End it at once; nobody hears more of it."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    async def shake(self) -> None:
        """Shake hands, and give the connection to who serves it."""
        try:
            transport = await self._secured()
        except OSError as error:  # what TLS says is one of them
            transport = None
            error.__traceback__ = None  # its frames hold the buffer, and the error: that would wait for the collector
            if not self._is_over:
                self._crowd.refused("handshake")
        except Exception as error:  # noqa: BLE001 - one connection must not cost the others
            transport = None
            self._crowd.on_failure(error)
        if transport is None:
            self.abort()
        elif self._is_over:
            transport.abort()
        else:
            self._hand_on(transport)

    async def _secured(self) -> asyncio.Transport | None:
        assert self._transport is not None  # noqa: S101 - it waited for its turn with one
        if self._transport.is_closing():
            return None
        return await asyncio.get_running_loop().start_tls(
            self._transport,
            self,
            self._crowd.context,
            server_side=True,
            ssl_handshake_timeout=self._crowd.handshake_s,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

    def _hand_on(self, transport: asyncio.Transport) -> None:
        protocol = self._crowd.make()
        transport.set_protocol(protocol)  # type: ignore[arg-type]  # it is one of asyncio's
        protocol.connection_made(transport)
        if self._early:
            protocol.data_received(self._early)
