"""The connections to a Redis Cluster: each command goes to the node that owns its key, and redirects are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.exceptions import ClusterError

from sidecar.config.redis_urls import RedisUrl
from sidecar.store.redis_connection import NO_RETRY, options_of

_SCRIPTS: Final = ("EVAL", "EVALSHA")


class ClusterConnections:
    """A ``RedisCluster``, made anew from the hosts of the URL after each failure.

    A command without keys goes to the owner of ``key``. Connecting to a node, and its reply, take at most half of
    ``timeout_s`` each, so that a host that hangs leaves time for another.
    """

    def __init__(self, place: RedisUrl, timeout_s: float, password_file: str, key: str) -> None:
        parsed = parse_url(f"{place.scheme}://{place.login}@?{place.query}")
        self._options: Mapping[str, Any] = options_of(parsed, timeout_s / 2, password_file, timeout_s / 2)
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
            raise ClusterError("sent to an unknown node") from error

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
        cluster = RedisCluster(startup_nodes=nodes, retry=NO_RETRY, require_full_coverage=False, reinitialize_steps=0)
        # Its constructor takes no class of connections.
        cluster.connection_kwargs.update(self._options)
        nodes = [ClusterNode(host, port, **cluster.connection_kwargs) for host, port in self._hosts]
        cluster.nodes_manager.startup_nodes = {node.name: node for node in nodes}
        await cluster.initialize()
        cluster.response_callbacks.clear()  # replies stay as they are
        cluster.result_callbacks.clear()
        self._cluster = cluster
        return cluster
