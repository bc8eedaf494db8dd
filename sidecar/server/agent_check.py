"""Answers HAProxy's agent-check: one line a connection, always the complete state; nothing is read.

Facts of HAProxy 2.6 behind the lines: only ``ready`` undoes ``drain`` and only ``up`` undoes ``fail``, so each line has
both, and the weight, because HAProxy keeps what a line leaves out; a reason needs a blank before its ``#``; the line
must end in a newline. HAProxy ignores an agent that it cannot reach, so a dead sidecar changes nothing. Its agent-check
has no TLS.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.measure.weight import FULL
from sidecar.core.types import State
from sidecar.net.sockets import BACKLOG, NO_DESCRIPTOR_S, accepted, address_of, bind_tcp
from sidecar.net.threads import in_thread
from sidecar.server.health import printable_ascii, why_down

if TYPE_CHECKING:
    from sidecar.net.address_gate import AddressGate

LINE_LIMIT: Final = 128
ACCEPTS: Final = 8
"""Connections that are answered in a turn of the loop."""


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
        self.addresses: list[str] = []
        self._snapshot = snapshot
        self._on_poll = on_poll
        self._on_failure = on_failure
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []

    async def open_tcp(self, host: str, port: int) -> None:
        """Listen on ``host:port``; OSError when that is not possible."""
        for opened in await in_thread(bind_tcp, host, port):
            self._listening.append(opened)
            opened.listen(BACKLOG)
            opened.settimeout(0)
            self.addresses.append(address_of(opened))
            self._loop.add_reader(opened, self._accept, opened)

    def stop(self) -> None:
        """Close the sockets. A second call does nothing."""
        while self._listening:
            opened = self._listening.pop()
            self._loop.remove_reader(opened)
            opened.close()

    def _accept(self, opened: socket.socket) -> None:
        try:
            for connection, host in accepted(opened, ACCEPTS):
                with connection, suppress(OSError):
                    if self._gate is None or self._gate.admits(connection, host):
                        connection.send(self._line_now().encode())  # it always fits the socket's buffer
        except OSError:  # no descriptor is left
            self._loop.remove_reader(opened)
            self._loop.call_later(NO_DESCRIPTOR_S, self._listen_again, opened)

    def _listen_again(self, opened: socket.socket) -> None:
        if opened in self._listening:
            self._loop.add_reader(opened, self._accept, opened)

    def _line_now(self) -> str:
        try:
            current = self._snapshot()
            text = line(current.presented, current.share)
            self._on_poll("agent", 200 if current.presented.haproxy_up else 503)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            self._on_failure(error)
            return _up(FULL)
        return text
