"""The connection to a Redis at a fixed address, or to the master that Sentinels name: redis-py without its retries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from redis import exceptions as theirs
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection
from redis.backoff import NoBackoff

from sidecar.config.redis_urls import RedisUrl
from sidecar.store.credentials import AccessError, PasswordFile, TlsConnection, tls_options
from sidecar.store.replies import ENCODING_ERRORS

FAILURES: Final = (OSError, theirs.RedisError, theirs.RedisClusterException)
"""The exceptions of redis-py for a failed exchange."""

NO_RETRY: Final = Retry(NoBackoff(), 0)
_OURS: Final[Mapping[str, Any]] = {
    "protocol": 2,
    "decode_responses": False,
    "encoding_errors": ENCODING_ERRORS,
    "driver_info": None,
    "health_check_interval": 0,
    "retry": NO_RETRY,
    "retry_on_timeout": False,
}


class RedisConnection:
    """A ``Redis`` with one connection. ``sentinels`` are asked while it connects, and closed afterwards."""

    def __init__(self, redis: Redis, sentinels: Sequence[Redis] = ()) -> None:
        self._redis = redis.client()
        self._redis.response_callbacks.clear()  # replies stay as they are
        self._sentinels = sentinels

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._redis.connection is not None

    @contextmanager
    def idle(self) -> Iterator[AbstractConnection | None]:
        """Lend the connection while no command is under way; None if there is none."""
        yield self._redis.connection

    async def execute_command(self, *command: str | bytes | int) -> Any:
        """The reply to one command, over a new connection if need be. Raises what redis-py raises."""
        if not self.is_open:
            try:
                await self._redis.initialize()
            finally:
                for sentinel in self._sentinels:
                    with suppress(*FAILURES):
                        await sentinel.aclose()
        return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        """End the connection; the next command makes another."""
        await self._redis.aclose(close_connection_pool=True)


def fixed_connection(url: str, timeout_s: float, password_file: str) -> RedisConnection:
    """The connection to the server at a fixed address, made within ``timeout_s``. Raises as ``options_of`` does."""
    return RedisConnection(Redis.from_pool(ConnectionPool(**options_of(parse_url(url), timeout_s, password_file))))


def master_connection(place: RedisUrl, timeout_s: float, password_file: str) -> RedisConnection:
    """The connection to the master that the first Sentinel with an answer names; each Sentinel gets a part of the time.

    The options of TLS are for the Sentinels as well, the login and the password file are not.
    """
    parsed: Mapping[str, Any] = parse_url(f"{place.scheme}://{place.login}@/{''.join(place.path[1:])}?{place.query}")
    of_master = {name: value for name, value in parsed.items() if not name.startswith("sentinel_")}
    of_sentinel = {name.removeprefix("sentinel_"): parsed[name] for name in parsed.keys() - of_master.keys()}
    of_both = {name: value for name, value in parsed.items() if name.startswith(("ssl_", "connection_class"))}
    master = options_of(of_master, timeout_s, password_file)
    master["connection_class"] = _MASTERS[master["connection_class"]]
    share_s = timeout_s / (len(place.hosts) + 1)
    options = options_of(of_both | of_sentinel, share_s, "", share_s)
    sentinel = Sentinel([])  # type: ignore[no-untyped-call]  # its constructor takes no class of connections
    sentinel.sentinels = [
        Redis.from_pool(ConnectionPool(**options, host=host, port=port)) for host, port in place.hosts
    ]
    return RedisConnection(sentinel.master_for(place.path[0], **master), sentinel.sentinels)


def options_of(
    parsed: Mapping[str, Any], connect_s: float, password_file: str, reply_s: float | None = None
) -> dict[str, Any]:
    """The options for connections from what ``parse_url`` made of a URL, and their class.

    ``connect_s``: time to connect. ``reply_s``: time for a reply, unless the caller bounds the whole exchange, because
    it costs a task for each command.
    Raises AccessError, or another error of redis-py or the standard library for options that cannot be used.
    """
    options = {**parsed, **_OURS, "socket_connect_timeout": connect_s, "socket_timeout": reply_s}
    kind = options.pop("connection_class", Connection)
    if password_file:
        if "password" in options:
            raise AccessError("the password stands both in the URL and in a file")
        options["credential_provider"] = PasswordFile(options.pop("username", None), password_file)
    if kind is SSLConnection:
        kind, options = TlsConnection, tls_options(options)
    kind(**options)  # refuses options that it does not know
    return {**options, "connection_class": kind}


class _MasterTls(SentinelManagedConnection, TlsConnection):
    pass


_MASTERS: Final = {Connection: SentinelManagedConnection, TlsConnection: _MasterTls}
