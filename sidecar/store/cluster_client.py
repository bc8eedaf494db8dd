"""The node of a Redis Cluster that owns the keys of a service, which all have one hash tag."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.exceptions import ClusterError, InvalidResponse

from sidecar.config.redis_urls import HostList
from sidecar.store.access import Access
from sidecar.store.connection_watch import ConnectionWatch
from sidecar.store.redis_connection import NO_RETRY, options_of

_SLOTS: Final = 16384


class ClusterClient:
    """A client of the node that owns ``key``: a seed names the node, again after a failure; redirects are followed."""

    def __init__(self, place: HostList, share_s: float, access: Access, key: str, watch: ConnectionWatch) -> None:
        self._options = options_of(parse_url(f"{place.scheme}://{place.login}@?{place.query}"), share_s, access, watch)
        self._seeds = deque(place.hosts)
        self._share_s = share_s
        self._key = key
        self._cluster: RedisCluster | None = None

    async def execute_command(self, *command: str | bytes) -> Any:
        """The reply of the owner, after at most sixteen redirects."""
        if self._cluster is None:
            self._cluster = await self._learnt()
        owner = self._cluster.get_node_from_key(self._key)
        try:
            return await self._cluster.execute_command(*command, target_nodes=owner)
        except AttributeError as error:  # the library has no node at the address of an ASK
            raise ClusterError("sent to an unknown node") from error

    async def aclose(self) -> None:
        """End all connections; the next command asks a seed again for the owner."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.aclose()
            # After some failures the library does not close a client that is still open.
            await cluster.nodes_manager.aclose()
            await cluster.nodes_manager.aclose("startup_nodes")

    async def _learnt(self) -> RedisCluster:
        """The Cluster by the first seed that answers."""
        failures: list[Exception] = []
        for host, port in tuple(self._seeds):
            self._seeds.rotate(-1)  # the next attempt begins with another seed in any case
            try:
                async with asyncio.timeout(self._share_s):
                    return await self._made(host, port).initialize()
            except Exception as error:  # noqa: BLE001 - the library checks little of what a node says
                failures.append(error)
        raise failures[-1]

    def _made(self, host: str, port: int) -> RedisCluster:
        cluster = RedisCluster(host, port, retry=NO_RETRY, require_full_coverage=False, reinitialize_steps=0)
        # Its constructor takes neither a class of connections nor one of parsers.
        cluster.connection_kwargs.update(self._options, response_callbacks={"CLUSTER SLOTS": partial(_slots_by, host)})
        seed = ClusterNode(host, port, **cluster.connection_kwargs)
        cluster.nodes_manager.startup_nodes = {seed.name: seed}
        cluster.commands_parser = _OneKey(self._key)  # type: ignore[assignment]
        cluster.result_callbacks = {}
        return cluster


def _slots_by(seed: str, reply: list[list[Any]], **_: object) -> list[list[Any]]:
    """The reply of this seed to CLUSTER SLOTS; a node without a host gets the seed's host.

    Raises InvalidResponse for more slots than a Cluster has: the library makes a table of them on the event loop.
    """
    ranges = [(first, last) for first, last, *_ in reply]
    if (
        not all(0 <= first <= last for first, last in ranges)
        or sum(last - first + 1 for first, last in ranges) > _SLOTS
    ):
        raise InvalidResponse("no slots of a Cluster")
    for node in (node for _, _, *nodes in reply for node in nodes):
        node[0] = seed if node[0] in (None, b"", b"?") else node[0]
    return reply


class _OneKey:
    """Gives the Cluster's client the key of a command, in place of the table of all commands of the server."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def initialize(self, _node: object) -> None:
        """Send nothing."""

    async def get_keys(self, *_command: object) -> list[str]:
        """The key whose owner gets everything."""
        return [self._key]
