"""HAProxy's agent-check: one line a connection, always the complete state, and nothing is read.

Facts of HAProxy 2.6 that the lines rest on: only ``ready`` undoes ``drain`` and only ``up`` undoes ``fail``, so both
are said each time, and so are weight and ``maxconn``, for what is not said stays as it was; a reason needs a blank
before its ``#``; the line must end in a newline. An agent that cannot be reached is ignored, so a dead sidecar changes
nothing.

``maxconn`` falls and rises with the weight. A limit that learns from each call (``core/limits.py``) would have to see
the calls; the weight has learned from their results, falls faster than it rises, and is never 0: nor is ``maxconn``,
which to HAProxy would mean no limit at all.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Final

from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.life.weight import FULL
from sidecar.core.types import State
from sidecar.net.accepting import Accepting, Adopting
from sidecar.net.sockets import bound_tcp
from sidecar.net.threads import in_thread
from sidecar.server.health import harmless, why

LINE_LIMIT: Final = 128
ACCEPTED_AT_ONCE: Final = 8


def line(container: Container, weight: int = FULL, maxconn: int = 0) -> str:
    """The line for this standing: ASCII, under 128 characters, newline included.

    ``weight`` in percent; ``maxconn``: how many connections HAProxy may hold at full weight, not told if 0.
    """
    if container.haproxy_up:
        return _up(weight, maxconn)
    drains = container.nomad_up or container.state is State.STOPPING
    whom = "" if container.lease else "culled: "
    said = f"drain 0% #{why(container)}" if drains else f"fail #{whom}{why(container)}"
    return harmless(said)[: LINE_LIMIT - 2] + "\n"


def _up(weight: int, maxconn: int) -> str:
    limit = f" maxconn:{ceil(maxconn * weight / FULL)}" if maxconn else ""
    return f"up ready {weight}%{limit}\n"


class _Agent(asyncio.Protocol):
    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - only stream sockets lead here
        transport.write(self._tell().encode())
        transport.close()


class AgentDoor:
    """What listens for agent checks."""

    def __init__(self, accepting: list[Accepting]) -> None:
        self._accepting = accepting

    @property
    def sockets(self) -> list[socket.socket]:
        """What it listens on."""
        return [each.socket for each in self._accepting]

    def accept_no_more(self) -> None:
        """Leave who waits to whoever else listens."""
        for each in self._accepting:
            each.stop()

    def close(self) -> None:
        """Listen no more."""
        for each in self._accepting:
            each.close()


async def open_agent(
    host: str,
    port: int,
    snapshot: Callable[[], Snapshot],
    *,
    maxconn: int,
    on_poll: Callable[[str, str, int], None],
    on_failure: Callable[[Exception], None],
    opened: socket.socket | None = None,
    over: Callable[[Callable[[], asyncio.Protocol]], Callable[[], asyncio.Protocol]] | None = None,
) -> AgentDoor:
    """Listen for agent checks on ``host:port``, or on ``opened``, bound there; OSError when that is not possible.

    ``over`` puts TLS before it. HAProxy's agent-check speaks none, whatever its ``check-ssl`` says of other checks.
    """

    def tell() -> str:
        try:
            seen = snapshot()
            told = line(seen.container, seen.weight, maxconn)
            on_poll("haproxy", "agent", 200 if seen.container.haproxy_up else 503)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            on_failure(error)
            return _up(FULL, maxconn)
        return told

    def tell_at_once(connection: socket.socket) -> None:
        """Need no transport: so short a line always fits."""
        with connection, suppress(OSError):
            connection.send(tell().encode())
            connection.shutdown(socket.SHUT_WR)

    serve = tell_at_once
    if over is not None:
        serve = partial(Adopting(on_failure), make=over(lambda: _Agent(tell)))
    sockets = [opened] if opened is not None else await in_thread(bound_tcp, host, port)
    return AgentDoor([Accepting(each, serve, at_once=ACCEPTED_AT_ONCE, is_first=True) for each in sockets])
