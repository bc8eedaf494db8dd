"""A real Redis Cluster: three masters with a third of the slots each, and a replica where a test needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartRedis
    from harness.redis_server import RedisServer

_SLOTS = 16384
_SOON_MS, _LATE_MS = 1000, 15_000
"""How long a node may be silent before it counts as dead; on a busy machine some are silent for a second."""


class Cluster:
    """A complete cluster. ``nodes`` are the first masters, in the order of slots.

    The failure of a node is detected late until ``notice_soon`` is called.
    """

    def __init__(self, start_redis: StartRedis, masters: int = 3) -> None:
        self._start_redis = start_redis
        self.nodes = [self._start(f"node-{n}") for n in range(masters)]
        bounds = [_SLOTS * n // masters for n in range(masters + 1)]
        for n, node in enumerate(self.nodes):
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            node.cli("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            self._introduce(node)
        wait_for(self._is_complete, timeout_s=60, what="every node knows the whole cluster")
        self._notice_after(_LATE_MS)

    @property
    def url(self) -> str:
        return self.url_of(*self.nodes)

    def url_of(self, *nodes: RedisServer) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}"

    def owner_of(self, key: str) -> RedisServer:
        """The first master that had the key's slot at the start."""
        return self.nodes[self.slot_of(key) * len(self.nodes) // _SLOTS]

    def strangers_to(self, key: str) -> list[RedisServer]:
        """The other nodes."""
        return [node for node in self.nodes if node is not self.owner_of(key)]

    def slot_of(self, key: str) -> int:
        return int(self.nodes[0].cli("CLUSTER", "KEYSLOT", key))

    def add_replica(self, master: RedisServer) -> RedisServer:
        """Add a node that takes over when the master dies; it is returned once it has the data."""
        self.notice_soon()
        replica = self._start("replica")
        self._introduce(replica)
        wait_for(
            lambda: _id(master) in replica.cli("CLUSTER", "NODES"), timeout_s=60, what="the replica knows its master"
        )
        replica.cli("CLUSTER", "REPLICATE", _id(master))
        link = "master_link_status"
        wait_for(
            lambda: replica.cli("INFO", "replication").get(link) == "up", timeout_s=60, what="the replica has the data"
        )
        wait_for(lambda: _sees_all(replica), timeout_s=60, what="the replica knows the slots, which a takeover needs")
        wait_for(self._is_complete, timeout_s=60, what="every node knows the whole cluster")
        return replica

    def notice_soon(self) -> None:
        """Have the failure of a node detected within seconds from now on."""
        self._notice_after(_SOON_MS)

    def _notice_after(self, silence_ms: int) -> None:
        for node in self.nodes:
            node.cli("CONFIG", "SET", "cluster-node-timeout", silence_ms)

    def begin_move(self, key: str, to: RedisServer) -> None:
        """Have the owner answer ASK with the address of ``to`` for every key that it does not have."""
        owner, slot = self.owner_of(key), self.slot_of(key)
        to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(owner))
        owner.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to))

    def move_keys(self, key: str, to: RedisServer) -> None:
        """Migrate the keys of this key's slot."""
        owner, slot = self.owner_of(key), self.slot_of(key)
        keys = owner.cli("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        if keys:
            owner.cli("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)

    def end_move(self, key: str, to: RedisServer) -> None:
        """Make ``to`` the owner on every node."""
        slot, new = self.slot_of(key), _id(to)
        for node in (to, *(node for node in self.nodes if node is not to)):
            node.cli("CLUSTER", "SETSLOT", slot, "NODE", new)

    def renew(self, key: str) -> None:
        """Empty all nodes, and give the slot of this key back to its first owner."""
        owner, slot = self.owner_of(key), self.slot_of(key)
        for node in self.nodes:
            node.cli("FLUSHALL")
            node.cli("CLUSTER", "SETSLOT", slot, "STABLE")
            node.cli("CONFIG", "RESETSTAT")
        new = next(node for node in self.nodes if _has(node, slot))
        if new is not owner:
            owner.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(new))
            self.end_move(key, owner)

    def _start(self, name: str) -> RedisServer:
        options = {
            "cluster-enabled": "yes",
            "cluster-config-file": f"{name}-nodes.conf",
            "cluster-port": str(free_port()),
            "cluster-node-timeout": str(_SOON_MS),
            "repl-diskless-sync-delay": "0",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        return self._start_redis(name, *words)

    def _introduce(self, node: RedisServer) -> None:
        bus = node.cli("CONFIG", "GET", "cluster-port")["cluster-port"]
        self.nodes[0].cli("CLUSTER", "MEET", "127.0.0.1", node.port, bus)

    def _is_complete(self) -> bool:
        known = {node.cli("CLUSTER INFO")["cluster_known_nodes"] for node in self.nodes}
        return len(known) == 1 and all(_sees_all(node) for node in self.nodes)


def _id(node: RedisServer) -> str:
    return str(node.cli("CLUSTER", "MYID"))


def _has(node: RedisServer, slot: int) -> bool:
    """Whether the node says that the slot is its own."""
    masters = [master for first, last, master, *_ in node.cli("CLUSTER", "SLOTS") if first <= slot <= last]
    return [str(master[2]) for master in masters] == [_id(node)]


def _sees_all(node: RedisServer) -> bool:
    return bool(node.cli("CLUSTER INFO")["cluster_state"] == "ok")
