"""The client of one Redis: at a fixed address, at the master that Sentinels name, or in a Cluster.

This is redis-py without its retries: a second attempt inside the library could charge a claim twice. Every failure is
raised at once and ends the connection, so that a late reply is never read as the answer to another command.

Replies have no limit of size here: those of the scripts are bounded by the scripts, and those of other commands by
their arguments. The sidecar trusts its Redis server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.exceptions import InvalidResponse, NoScriptError, RedisError

from sidecar.config.redis_urls import shown, split
from sidecar.store.credentials import AccessError
from sidecar.store.protocol import StoreError
from sidecar.store.redis_connection import FAILURES, RedisConnection, fixed_connection, master_connection
from sidecar.store.redis_errors import error_word, message
from sidecar.store.replies import UNREADABLE
from sidecar.store.scripts import Script

if TYPE_CHECKING:
    from sidecar.store.cluster_connections import ClusterConnections

T = TypeVar("T")

_CLOSE_S: Final = 0.1
"""Maximum time to close the connections after a failure: TLS waits for the other side."""
_A_DAY_S: Final = 86_400.0

WATCH_AFTER_S: Final = 1.0
"""Time after a command at which the idle connection is watched: a claim, which has several, does not pay for it."""


class RedisClient:
    """One exchange at a time with the Redis at ``url``; not for several tasks at once.

    ``redis://``, ``rediss://`` and ``unix://`` are fixed addresses; ``redis+sentinel://host,host/master`` is the master
    by its Sentinels, ``redis+cluster://host,host`` the node of a Cluster that owns ``key``.

    ``lost`` is set when a connection has ended, whoever ended it.

    Raises ValueError, which repeats nothing of the URL, when the URL or the files cannot be used, or when
    they contradict each other.
    """

    def __init__(
        self,
        url: str,
        connect_timeout_s: float,
        password_file: str = "",
        key: str = "",
        *,
        lost: asyncio.Event | None = None,
    ) -> None:
        try:
            self._connections = _connections(url, connect_timeout_s, password_file, key)
            self._address = shown(url)
        except AccessError:
            raise
        except (ValueError, TypeError, OSError, RedisError):
            raise ValueError("cannot be used as a Redis URL") from None
        self._lost = lost or asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._was_open = False

    async def ask(self, read: Callable[[Any], T], *command: str | bytes | int) -> T:
        """Send one command, over a new connection if need be, and return ``read(reply)`` (RESP2).

        Raises StoreError with the word of ``error_word``. Every error ends the connection, cancellation too.
        """
        try:
            if await self._end_watch() or await self._is_at_end():
                await self._end_connection()
            return _understood(read, await self._connections.execute_command(*command))
        except BaseException as error:
            self._was_open = self._connections.is_open
            if not isinstance(error, NoScriptError):  # this reply only asks for another command
                await self._end_connection()
            if isinstance(error, Exception):
                raise StoreError(error_word(error), f"{self._address}: {message(error)}") from error
            raise

    def silence(self) -> str:
        """What was missing when the last command was cancelled because it took too long."""
        if self._was_open:
            return f"{self._address}: no answer"
        hint = "; does this port speak TLS?" if self._address.startswith("rediss") else ""
        return f"{self._address}: no connection{hint}"

    async def run(
        self, read: Callable[[Any], T], script: Script, keys: Sequence[str], arguments: Iterable[str | int]
    ) -> T:
        """As ``ask``, with a script: sent by its digest, and in full to a server that does not know it."""
        command = (len(keys), *keys, *arguments)
        try:
            return await self.ask(read, "EVALSHA", script.sha, *command)
        except StoreError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.ask(read, "EVAL", script.text, *command)

    def watch(self) -> None:
        """Watch the connection until the next command."""
        if self._watching is None and self._connections.is_open:
            self._watching = asyncio.create_task(self._watch())

    def watch_soon(self) -> None:
        """Watch it from ``WATCH_AFTER_S`` on, until the next command."""
        if self._watching is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self.watch)

    async def aclose(self) -> None:
        """End the connection."""
        await self._end_watch()
        await self._connections.aclose()

    async def _watch(self) -> None:
        """Read from the idle connection: no reply comes, but its end does."""
        with suppress(*FAILURES), self._connections.idle() as connection:
            if connection is not None:
                await connection.read_response(timeout=_A_DAY_S, disconnect_on_error=False)
        self._lost.set()

    async def _end_watch(self) -> bool:
        """Take the connection back from the watch; whether it has ended meanwhile."""
        if self._timer is not None:
            self._timer.cancel()
        watching, self._watching = self._watching, None
        if watching is None:
            return False
        watching.cancel()
        await asyncio.wait([watching])
        return not watching.cancelled()

    async def _is_at_end(self) -> bool:
        """Whether the server has closed the connection, or has sent what is no reply."""
        with self._connections.idle() as connection:
            return connection is not None and bool(await connection.can_read())

    async def _end_connection(self) -> None:
        if self._connections.is_open:
            self._lost.set()
        with suppress(*FAILURES):
            async with asyncio.timeout(_CLOSE_S):
                await self._connections.aclose()


def _understood(read: Callable[[Any], T], reply: object) -> T:
    try:
        return read(reply)
    except UNREADABLE as error:
        raise InvalidResponse("a reply that no command of this project gives") from error


def _connections(url: str, timeout_s: float, password_file: str, key: str) -> RedisConnection | ClusterConnections:
    place = split(url)
    if place.kind in ("server", "socket"):
        return fixed_connection(url, timeout_s, password_file)
    if place.kind == "sentinel":
        return master_connection(place, timeout_s, password_file)
    from sidecar.store.cluster_connections import ClusterConnections  # noqa: PLC0415 - few need it

    return ClusterConnections(place, timeout_s, password_file, key)
