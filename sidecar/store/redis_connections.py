"""The connections to Redis: redis-py without its retries.

One server has one connection, at a fixed address or at the master that Sentinels name. In a Cluster each command goes
to the node that owns its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from redis import exceptions as theirs
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection
from redis.backoff import NoBackoff

from sidecar.config.redis_urls import RedisUrl, split
from sidecar.store.redis_access import UNUSABLE, AccessError, PasswordFile, TlsConnection, load_certificates
from sidecar.store.redis_content import ENCODING_ERRORS

FAILURES: Final = (OSError, theirs.RedisError, theirs.RedisClusterException)
"""The exceptions of redis-py for a failed exchange."""

_NO_RETRY: Final = Retry(NoBackoff(), 0)
_OURS: Final[Mapping[str, Any]] = {
    "protocol": 2,
    "decode_responses": False,
    "encoding_errors": ENCODING_ERRORS,
    "driver_info": None,
    "health_check_interval": 0,
    "retry": _NO_RETRY,
    "retry_on_timeout": False,
}
_SCRIPTS: Final = ("EVAL", "EVALSHA")


def connections_of(url: str, timeout_s: float, password_file: str, key: str) -> ServerConnection | ClusterConnections:
    """The connections for a URL, made within ``timeout_s`` at their first use; ``key`` names the node of a Cluster.

    Raises AccessError, or another error of redis-py or the standard library for a URL that cannot be used.
    """
    place = split(url)
    if place.kind == "cluster":
        return ClusterConnections(place, timeout_s, password_file, key)
    if place.kind == "sentinel":
        return _to_master(place, timeout_s, password_file)
    options = _options_of(parse_url(url), timeout_s, password_file)
    return ServerConnection(Redis.from_pool(ConnectionPool(**options)))


class ServerConnection:
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


class ClusterConnections:
    """A ``RedisCluster``, made anew from the hosts of the URL after each failure; it follows redirects.

    A command without keys goes to the owner of ``key``. Connecting to a node, and its reply, take at most half of
    ``timeout_s`` each, so that a host that hangs leaves time for another.
    """

    def __init__(self, place: RedisUrl, timeout_s: float, password_file: str, key: str) -> None:
        parsed = parse_url(f"{place.scheme}://{place.login}@?{place.query}")
        self._options: Mapping[str, Any] = _options_of(parsed, timeout_s / 2, password_file, timeout_s / 2)
        self._hosts = place.hosts
        self._key = key
        self._cluster: RedisCluster | None = None

    @property
    def is_open(self) -> bool:
        """Whether the Cluster is known; then it has a connection."""
        return self._cluster is not None

    @contextmanager
    def idle(self) -> Iterator[AbstractConnection | None]:
        """Lend the connection to the owner of ``key`` while no command is under way; None if there is none."""
        owner = self._cluster and self._cluster.get_node_from_key(self._key)
        if not owner:
            yield None
            return
        connection = owner.acquire_connection()
        try:
            yield connection if connection.is_connected else None
        finally:
            owner.release(connection)

    async def execute_command(self, *command: str | bytes | int) -> Any:
        """The reply to one command, after at most sixteen redirects. Raises what redis-py raises."""
        cluster = self._cluster or await self._learnt()
        key = command[3] if command[0] in _SCRIPTS else self._key
        try:
            return await cluster.execute_command(*command, target_nodes=cluster.get_node_from_key(key))  # type: ignore[arg-type]
        except AttributeError as error:  # redis-py has no node at the address of an ASK
            raise theirs.ClusterError("sent to an unknown node") from error

    async def aclose(self) -> None:
        """End all connections; the next command asks the hosts of the URL again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.aclose()
            # After a failure RedisCluster takes itself for closed, and leaves connections open.
            await cluster.nodes_manager.aclose()
            await cluster.nodes_manager.aclose("startup_nodes")

    async def _learnt(self) -> RedisCluster:
        nodes = [ClusterNode(host, port) for host, port in self._hosts]
        cluster = RedisCluster(startup_nodes=nodes, retry=_NO_RETRY, require_full_coverage=False, reinitialize_steps=0)
        # Its constructor takes no class of connections.
        cluster.connection_kwargs.update(self._options)
        nodes = [ClusterNode(host, port, **cluster.connection_kwargs) for host, port in self._hosts]
        cluster.nodes_manager.startup_nodes = {node.name: node for node in nodes}
        await cluster.initialize()
        cluster.response_callbacks.clear()  # replies stay as they are
        cluster.result_callbacks.clear()
        self._cluster = cluster
        return cluster


def _to_master(place: RedisUrl, timeout_s: float, password_file: str) -> ServerConnection:
    """The connection to the master that the first Sentinel with an answer names; each Sentinel gets a part of the time.

    The options of TLS are for the Sentinels as well, the login and the password file are not.
    """
    parsed: Mapping[str, Any] = parse_url(f"{place.scheme}://{place.login}@/{place.database}?{place.query}")
    of_master = {name: value for name, value in parsed.items() if not name.startswith("sentinel_")}
    of_sentinel = {name.removeprefix("sentinel_"): parsed[name] for name in parsed.keys() - of_master.keys()}
    of_both = {name: value for name, value in parsed.items() if name.startswith(("ssl_", "connection_class"))}
    master = _options_of(of_master, timeout_s, password_file)
    master["connection_class"] = _MASTERS[master["connection_class"]]
    share_s = timeout_s / (len(place.hosts) + 1)
    options = _options_of(of_both | of_sentinel, share_s, "", share_s)
    sentinel = Sentinel([])  # type: ignore[no-untyped-call]  # its constructor takes no class of connections
    sentinel.sentinels = [
        Redis.from_pool(ConnectionPool(**options, host=host, port=port)) for host, port in place.hosts
    ]
    return ServerConnection(sentinel.master_for(place.name, **master), sentinel.sentinels)


def _options_of(
    parsed: Mapping[str, Any], connect_s: float, password_file: str, reply_s: float | None = None
) -> dict[str, Any]:
    """The options for connections from what ``parse_url`` made of a URL, and their class.

    ``connect_s``: time to connect. ``reply_s``: time for a reply, unless the caller bounds the whole exchange, because
    it costs a task for each command.
    """
    options = {**parsed, **_OURS, "socket_connect_timeout": connect_s, "socket_timeout": reply_s}
    kind = options.pop("connection_class", Connection)
    if password_file:
        if "password" in options:
            raise AccessError("the password stands both in the URL and in a file")
        options["credential_provider"] = PasswordFile(options.pop("username", None), password_file)
    if kind is SSLConnection:
        kind = TlsConnection
        options.setdefault("ssl_password", "")  # without a password OpenSSL would ask for one at the terminal
    made = kind(**options)  # refuses options that it does not know
    if isinstance(made, TlsConnection):
        try:
            load_certificates(made.ssl_context)  # as a check
        except OSError:
            raise AccessError(UNUSABLE) from None
    return {**options, "connection_class": kind}


class _MasterTls(SentinelManagedConnection, TlsConnection):
    pass


_MASTERS: Final = {Connection: SentinelManagedConnection, TlsConnection: _MasterTls}
