"""What a connection needs of all those of its listener, and aiohttp's end of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sidecar.net import web
from sidecar.net.heads import Head, Heads

if TYPE_CHECKING:
    from sidecar.net.connection import Connection

Ready = Callable[[Head], bytes | None]
"""The whole answer to this plain request, if there is one that was made before."""


class Crowd(Protocol):
    """What a connection needs of all those of its listener."""

    heads: Heads
    ready: Ready | None
    buffer: memoryview

    def came(self, connection: Connection) -> None:
        """Take it in."""

    def heard(self, connection: Connection) -> None:
        """Note that it has brought a whole head."""

    def stuck(self, connection: Connection, *, is_stuck: bool) -> None:
        """Note that its client does not read, or reads again."""

    def refused(self, word: str) -> None:
        """Count a refusal."""

    def cut(self, connection: Connection, word: str) -> None:
        """End it at once, and count that."""

    def later(self, connection: Connection) -> None:
        """Let it go on when it is its turn."""

    def gone(self, connection: Connection) -> None:
        """Forget it."""

    def backend(self, connection: Connection) -> Backend:
        """Make what hands requests to aiohttp."""


class Backend(web.RequestHandler):
    """aiohttp's end of a connection."""

    __slots__ = ("connection",)
    connection: Connection

    @property
    def is_waiting(self) -> bool:
        """Whether every answer has left."""
        waiter = self._waiter  # aiohttp's own sign: nobody else tells that the answer before has left
        return waiter is not None and not waiter.done()
