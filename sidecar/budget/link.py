"""One connection to Redis: opened when it is needed, and dropped whenever a reply could be out of step.

It is redis-py's connection without its client and pool: a claim wants one exchange at a time, no retries (each one
could charge again), no announcement of the library, and the whole of it within a deadline that the caller sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from redis import exceptions as theirs
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

T = TypeVar("T")

_OURS: Final[dict[str, Any]] = {
    "protocol": 2,
    "decode_responses": False,
    "driver_info": None,
    "health_check_interval": 0,
    "retry": Retry(NoBackoff(), 0),
    "retry_on_timeout": False,
    # The caller's deadline covers sending and reading too; theirs would cost a task for each command.
    "socket_timeout": None,
}
# Looked at from the top: redis-py derives some of these from others.
_WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "timeout"),
    (theirs.TimeoutError, "timeout"),
    (theirs.AuthenticationError, "auth"),
    (theirs.AuthenticationWrongNumberOfArgsError, "auth"),
    (theirs.AuthorizationError, "auth"),
    (theirs.NoPermissionError, "permission"),
    (theirs.ReadOnlyError, "readonly"),
    (theirs.OutOfMemoryError, "oom"),
    (theirs.BusyLoadingError, "loading"),
    (theirs.ConnectionError, "connection"),
    (theirs.RedisError, "response"),
    (OSError, "connection"),
)
# Errors that redis-py has no class for, or that servers before 7 wrap with the place in the script where they arose.
_SAID: Final = re.compile(
    r"(?:^|: -?)(?:(?P<busy>BUSY)|(?P<oom>OOM)|(?P<readonly>READONLY)|(?P<permission>NOPERM|The user executing))\b"
)


class Link:
    """A single connection to the Redis at ``url``; not for several tasks at a time.

    Raises ValueError, which repeats nothing of the URL, when the URL cannot be used.
    """

    def __init__(self, url: str, connect_timeout_s: float) -> None:
        try:
            self._connection = _connection(url, connect_timeout_s)
        except (ValueError, TypeError, OSError, theirs.RedisError):
            raise ValueError("cannot be used as a Redis URL") from None

    async def ask(self, read: Callable[[Any], T], *command: str | bytes) -> T:
        """Send one command and return what ``read`` makes of the reply (as RESP2 has it).

        Failures are raised as redis-py names them; ``read`` raises InvalidResponse for a reply that makes no sense.
        Whatever is raised, cancellation too, ends the connection, so that a late reply meets nobody. The one
        exception is NoScriptError, the reply that asks for another command.
        """
        connection = self._connection
        try:
            if connection.is_connected and await connection.can_read():
                await connection.disconnect(nowait=True)  # the server has closed it, or speaks unasked
            await connection.send_command(*command)  # connects first when it has to
            return read(await connection.read_response())
        except theirs.NoScriptError:
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def aclose(self) -> None:
        """End the connection."""
        await self._connection.disconnect()


def error_word(error: Exception) -> str:
    """The machine's word for what ``Link.ask`` raised; ``internal`` when it did not come from Redis."""
    if isinstance(error.__cause__, theirs.RedisError):
        return error_word(error.__cause__)  # over a unix socket redis-py wraps what the handshake met
    if type(error) is theirs.ResponseError and (said := _SAID.search(str(error))):
        return str(said.lastgroup)
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "internal")


def _connection(url: str, connect_timeout_s: float) -> AbstractConnection:
    options: dict[str, Any] = {**parse_url(url), **_OURS, "socket_connect_timeout": connect_timeout_s}
    connection: AbstractConnection = options.pop("connection_class", Connection)(**options)
    if isinstance(connection, SSLConnection):
        connection.ssl_context.get()  # read the certificates now, not while health is being served
    return connection
