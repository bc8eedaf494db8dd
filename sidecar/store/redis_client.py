"""The client of one Redis, and the word for each of its failures, the same in metrics, in the log and in answers.

A second attempt inside the library could charge a claim twice. So every failure is raised at once and ends the
connection, and a late reply is never read as the answer to another command.

Replies have no limit of size here: those of the scripts are bounded by the scripts, and those of other commands by
their arguments. The sidecar trusts its Redis server.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import gaierror
from ssl import SSLEOFError, SSLError, SSLZeroReturnError
from typing import Any, Final, TypeVar

from redis import exceptions as theirs
from redis.asyncio.sentinel import MasterNotFoundError

from sidecar.config.redis_urls import shown
from sidecar.store.protocol import StoreError
from sidecar.store.redis_access import AccessError, SecretError
from sidecar.store.redis_connections import FAILURES, connections_of
from sidecar.store.redis_content import UNREADABLE, Script

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
            self._connections = connections_of(url, connect_timeout_s, password_file, key)
            self._address = shown(url)
        except AccessError:
            raise
        except (ValueError, TypeError, OSError, theirs.RedisError):
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
            if not isinstance(error, theirs.NoScriptError):  # this reply only asks for another command
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

    async def run(self, read: Callable[[Any], T], script: Script, prefix: str, arguments: Sequence[str | int]) -> T:
        """As ``ask``, with a script and its keys: by its digest, and in full to a server that does not know it."""
        command = (len(script.keys), *(f"{prefix}:{name}" for name in script.keys), *arguments)
        try:
            return await self.ask(read, "EVALSHA", script.sha, *command)
        except StoreError as error:
            if not isinstance(error.__cause__, theirs.NoScriptError):
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
        raise theirs.InvalidResponse("a reply that no command of this project gives") from error


# -- words -----------------------------------------------------------------------------------------------------

# In this order, because redis-py derives some of these from others.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "timeout"),
    (theirs.TimeoutError, "timeout"),
    (SecretError, "secret"),
    (theirs.AuthenticationError, "auth"),
    (theirs.AuthenticationWrongNumberOfArgsError, "auth"),
    (theirs.AuthorizationError, "auth"),
    (theirs.NoPermissionError, "permission"),
    (theirs.ReadOnlyError, "readonly"),
    (theirs.MasterDownError, "readonly"),
    (theirs.OutOfMemoryError, "oom"),
    (theirs.BusyLoadingError, "loading"),
    (theirs.ClusterError, "cluster"),
    (theirs.RedisClusterException, "cluster"),
    (theirs.TryAgainError, "cluster"),
    (theirs.AskError, "cluster"),
    (MasterNotFoundError, "sentinel"),
    (theirs.ConnectionError, "connection"),
    (theirs.RedisError, "response"),
    (SSLEOFError, "connection"),
    (SSLZeroReturnError, "connection"),
    (SSLError, "tls"),
    (OSError, "connection"),
)
_WRAPPERS: Final = (theirs.ConnectionError, theirs.RedisClusterException)
"""redis-py wraps in these the failures of a connection attempt, or of a question about a Cluster or a master."""
# Errors without a class in redis-py, or errors that servers before 7 wrap with their place in the script. A permission
# that a script lacks has three texts: those of Redis 6.2, of 7.0, and since 7.2 "ACL failure in script".
# A client that has not logged in may send ten words at a time; more of them are a "Protocol error".
_MESSAGE: Final = re.compile(
    r"(?:^|: -?)(?:(?P<busy>BUSY)|(?P<oom>OOM)|(?P<readonly>READONLY)|(?P<permission>NOPERM|The user executing"
    r"|ACL failure in script)|(?P<auth>unauthenticated))\b"
)
# Sentinel collects in a text why no Sentinel named the master.
_OF_SENTINELS: Final = re.compile(r"(?P<auth>Authentication\w*Error)|(?P<tls>\[SSL: )")

_ARGUMENTS: Final = re.compile(r",? with args beginning with.*")
"""A server that does not know AUTH repeats the password."""

_MOST_SAID: Final = 200


def error_word(error: BaseException) -> str:
    """The word for what redis-py raised; ``internal`` when it did not come from Redis."""
    failed = _unwrapped(error)
    if type(failed) is theirs.ResponseError and (said := _MESSAGE.search(str(failed))):
        return str(said.lastgroup)
    if isinstance(failed, MasterNotFoundError) and (said := _OF_SENTINELS.search(str(failed))):
        return str(said.lastgroup)
    return next((word for kind, word in _WORDS if isinstance(failed, kind)), "internal")


def message(error: BaseException) -> str:
    """What Redis or the network said, in one line, without redis-py's frame and without arguments of a command."""
    failed = _unwrapped(error)
    if isinstance(failed, gaierror):
        return str(failed.strerror)
    if isinstance(failed, OSError) and not isinstance(failed, SSLError) and failed.errno:
        return os.strerror(failed.errno)
    text = _ARGUMENTS.sub("", " ".join(str(failed).split()))
    return text[:_MOST_SAID] or type(failed).__name__


def _unwrapped(error: BaseException) -> BaseException:
    inner = error.__cause__ or error.__context__
    is_wrapper = type(error) in _WRAPPERS and inner is not None and error_word(inner) != "internal"
    return _unwrapped(inner) if is_wrapper and inner is not None else error
