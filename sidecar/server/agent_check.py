"""Answers HAProxy's agent-check: one line a connection, always the complete state; nothing is read.

Facts of HAProxy 2.6 behind the lines: only ``ready`` undoes ``drain`` and only ``up`` undoes ``fail``, so each line has
both, and the weight, because HAProxy keeps what a line leaves out; a reason needs a blank before its ``#``; the line
must end in a newline. HAProxy ignores an agent that it cannot reach, so a dead sidecar changes nothing. Its agent-check
has no TLS.
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
from sidecar.net.listening import Listening
from sidecar.server.health import printable_ascii, why_down

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate

LINE_LIMIT: Final = 128


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


class AgentCheck:
    """Says the line of each moment to each connection at its sockets, or to those that ``gate`` admits.

    ``on_poll(path, status)`` gets each that is answered.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        on_poll: Callable[[str, int], None],
        on_failure: Callable[[Exception], None],
        gate: AddressGate | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._on_poll = on_poll
        self._on_failure = on_failure
        self._listening = Listening(self._say, gate=gate)
        self.addresses = self._listening.addresses
        self.open_tcp = self._listening.open_tcp
        self.stop = self._listening.stop

    def _say(self, connection: socket.socket, _host: str) -> None:
        with connection, suppress(OSError):  # the client has left
            connection.send(self._line_now().encode())  # it always fits the socket's buffer

    def _line_now(self) -> str:
        try:
            current = self._snapshot()
            text = line(current.presented, current.share)
            self._on_poll("agent", 200 if current.presented.haproxy_up else 503)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            self._on_failure(error)
            return _up(FULL)
        return text
