"""How we speak to one Redis, wherever it is: at a fixed place, where Sentinels say, or in a Cluster.

Whatever goes wrong ends the connection and is told in one word. Nothing is tried twice, and no reply out of step is
ever read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ssl import SSLEOFError, SSLError, SSLZeroReturnError
from typing import Any, Final, Protocol, TypeVar

from redis import exceptions as theirs

from sidecar.store.access import Access, AccessError, SecretError
from sidecar.store.wire import Dialler, Wire

T = TypeVar("T")

NO_FILES: Final = Access()


class NoMasterError(theirs.ConnectionError):
    """No Sentinel tells where the master is."""


# Looked at from the top: redis-py derives some of these from others.
_WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (
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
    (theirs.TryAgainError, "cluster"),
    (theirs.AskError, "cluster"),
    (NoMasterError, "sentinel"),
    (theirs.ConnectionError, "connection"),
    (theirs.RedisError, "response"),
    (OSError, "connection"),
)
# Errors that redis-py has no class for, or that servers before 7 wrap with the place in the script where they arose.
# From who has not logged in a server takes no more than ten words at a time, and calls more a "Protocol error".
_SAID: Final = re.compile(
    r"(?:^|: -?)(?:(?P<busy>BUSY)|(?P<oom>OOM)|(?P<readonly>READONLY)|(?P<permission>NOPERM|The user executing)"
    r"|(?P<auth>unauthenticated))\b"
)


class Route(Protocol):
    """Where commands go."""

    async def exchange(self, *command: str | bytes) -> Any:
        """The reply to one command, or an error as redis-py names it."""

    async def drop(self) -> None:
        """End all connections at once, so that a late reply meets nobody."""

    async def aclose(self) -> None:
        """End all connections in good order."""


class Link:
    """A single way to the Redis at ``url``; not for several tasks at a time.

    ``redis://``, ``rediss://`` and ``unix://`` are fixed places; ``redis+sentinel://host,host/master`` is wherever the
    Sentinels see the master, ``redis+cluster://host,host`` the Cluster's owner of the keys, which must share a slot.
    On the way there, each Sentinel and each node gets no more than a share of ``connect_timeout_s``.

    Raises ValueError, which repeats nothing of the URL, when it or the files of ``access`` cannot be used, or when
    they contradict each other.
    """

    def __init__(self, url: str, connect_timeout_s: float, access: Access = NO_FILES) -> None:
        try:
            self._route = _route(url, connect_timeout_s, access)
        except AccessError:
            raise
        except (ValueError, TypeError, OSError, theirs.RedisError):
            raise ValueError("cannot be used as a Redis URL") from None

    async def ask(self, read: Callable[[Any], T], *command: str | bytes) -> T:
        """Send one command and return what ``read`` makes of the reply (as RESP2 has it).

        Failures are raised as redis-py names them; ``read`` raises InvalidResponse for a reply that makes no sense.
        Whatever is raised, cancellation too, ends the connection, so that a late reply meets nobody. The one
        exception is NoScriptError, the reply that asks for another command.
        """
        try:
            return read(await self._route.exchange(*command))
        except theirs.NoScriptError:
            raise
        except BaseException:
            await self._route.drop()
            raise

    async def aclose(self) -> None:
        """End the connection."""
        await self._route.aclose()


def error_word(error: Exception) -> str:
    """The machine's word for what ``Link.ask`` raised; ``internal`` when it did not come from Redis."""
    if isinstance(error.__cause__, theirs.RedisError):
        return error_word(error.__cause__)  # over a unix socket redis-py wraps what the handshake met
    if type(error) is theirs.ResponseError and (said := _SAID.search(str(error))):
        return str(said.lastgroup)
    if isinstance(error, theirs.ConnectionError) and _is_about_tls(error.__context__):
        return "tls"
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "internal")


def _is_about_tls(cause: BaseException | None) -> bool:
    return isinstance(cause, SSLError) and not isinstance(cause, SSLEOFError | SSLZeroReturnError)


class _Fixed:
    """The route to a place that does not move."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.drop, self.aclose = wire.drop, wire.aclose

    async def exchange(self, *command: str | bytes) -> Any:
        await self._wire.ready()
        return await self._wire.exchange(*command)


def _route(url: str, connect_timeout_s: float, access: Access) -> Route:
    kind = url.partition("://")[0].lower().partition("+")[2]
    if kind == "sentinel":
        from sidecar.store.sentinel import SentinelRoute  # noqa: PLC0415 - most have none

        return SentinelRoute(url, connect_timeout_s, access)
    if kind == "cluster":
        from sidecar.store.cluster import ClusterRoute  # noqa: PLC0415 - as above

        return ClusterRoute(url, connect_timeout_s, access)
    return _Fixed(Dialler(url, connect_timeout_s, access).wire())
