"""Answers HAProxy's agent-check: one line a connection, always the complete state; nothing is read.

Facts of HAProxy 2.6 behind the lines: only ``ready`` undoes ``drain`` and only ``up`` undoes ``fail``, so each line has
both, and weight and ``maxconn``, because HAProxy keeps what a line leaves out; a reason needs a blank before its ``#``;
the line must end in a newline. HAProxy ignores an agent that it cannot reach, so a dead sidecar changes nothing. Its
agent-check has no TLS.

``maxconn`` falls and rises with the weight. An adaptive limit (``cascade``) would have to see the calls; the weight
follows their results, falls faster than it rises, and is never 0: nor is ``maxconn``, because 0 means no limit.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.measure.weight import FULL
from sidecar.core.types import State
from sidecar.net.acceptor import Acceptor
from sidecar.server.health import printable_ascii, why_down

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate

LINE_LIMIT: Final = 128
ACCEPTED_A_TURN: Final = 8


def line(container: Container, weight: int = FULL) -> str:
    """The line for this state and this weight in percent: ASCII, under 128 characters, newline included."""
    if container.haproxy_up:
        return _up(weight)
    reason = why_down(container)
    if container.nomad_up or container.state is State.STOPPING:
        text = f"drain 0% #{reason}"
    else:
        text = f"fail #{'' if container.lease else 'culled: '}{reason}"
    return printable_ascii(text)[: LINE_LIMIT - 2] + "\n"


def _up(weight: int) -> str:
    return f"up ready {weight}%\n"


def open_agent(
    listening: socket.socket,
    snapshot: Callable[[], Snapshot],
    *,
    on_poll: Callable[[str, str, int], None],
    on_failure: Callable[[Exception], None],
    gate: AddressGate | None = None,
) -> Acceptor:
    """Answer agent checks at a bound socket, all or those that ``gate`` admits.

    ``on_poll(poller, path, status)`` gets each that is answered.
    """

    def current_line() -> str:
        try:
            current = snapshot()
            text = line(current.presented, current.share)
            on_poll("haproxy", "agent", 200 if current.presented.haproxy_up else 503)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            on_failure(error)
            return _up(FULL)
        return text

    def answer(connection: socket.socket) -> None:
        """Send the line without a transport: it always fits the socket's buffer."""
        with connection, suppress(OSError):
            connection.send(current_line().encode())
            connection.shutdown(socket.SHUT_WR)

    return Acceptor(listening, answer, at_once=ACCEPTED_A_TURN, gate=gate, is_priority=True)
