"""HAProxy's agent-check: one line a connection, always the complete state, and nothing is read.

Facts of HAProxy 2.6 that the lines rest on: only ``ready`` undoes ``drain`` and only ``up`` undoes ``fail``, so both
are said each time; a reason needs a blank before its ``#``; the line must end in a newline. An agent that cannot be
reached is ignored, so a dead sidecar changes nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from sidecar.answer.health import why
from sidecar.core.arbiter import Standing
from sidecar.core.words import State

LINE_LIMIT: Final = 128
UP: Final = "up ready 100%\n"
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
"""What would end the line early, or is not ASCII: a reason may come from a file on disk."""


def line(standing: Standing) -> str:
    """The line for this standing: ASCII, at most 128 characters, newline included."""
    if standing.haproxy_up:
        return UP
    word = "drain 0%" if standing.nomad_up or standing.state is State.STOPPING else "fail"
    return _UNSAFE.sub("?", f"{word} #{why(standing)}")[: LINE_LIMIT - 1] + "\n"


class _Agent(asyncio.Protocol):
    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - only stream sockets lead here
        transport.write(self._tell().encode())
        transport.close()


async def open_agent(
    host: str,
    port: int,
    standing: Callable[[], Standing],
    *,
    on_poll: Callable[[str, str, int], None],
    on_failure: Callable[[Exception], None],
) -> asyncio.Server:
    """Listen for agent checks on ``host:port``; OSError when that is not possible."""

    def tell() -> str:
        try:
            told = line(standing())
            on_poll("haproxy", "agent", 200 if told == UP else 503)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            on_failure(error)
            return UP
        return told

    return await asyncio.get_running_loop().create_server(lambda: _Agent(tell), host, port, backlog=1024)
