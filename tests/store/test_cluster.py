"""The node that owns the service's slot: found from any seed, followed when it moves, replaced when it dies."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from harness.asking import FRESH, KEY, REPLAYED, SECOND, Asking
from harness.cluster import Cluster
from harness.ports import free_port
from harness.stores import HEARD, claim, redis_store, warm
from harness.waiting import eventually
from sidecar.store.link import Link

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis
    from store.conftest import Actor, AskAt


@pytest.fixture
async def cluster(start_redis: StartRedis) -> Cluster:
    return await asyncio.to_thread(Cluster, start_redis)


def redirects(node: RedisServer, kind: str) -> int:
    """How often the node has sent somebody away since it started."""
    said = node.cli("INFO", "errorstats").get(f"errorstat_{kind}", {"count": 0})
    return int(said["count"])


def keys_of_slot(cluster: Cluster, node: RedisServer) -> int:
    return int(node.cli("CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(KEY)))


async def becomes(answer: str, asking: Asking) -> None:
    """Claim again and again until that is the answer."""

    async def is_so() -> bool:
        return await asking.claim("a") == answer

    await eventually(is_so, timeout_s=30, what=str(answer))


# -- finding the owner --------------------------------------------------------------------------------------


async def test_claim_reaches_the_owner_from_any_seed_and_remembers_it(cluster: Cluster, ask_at: AskAt) -> None:
    stranger, owner = cluster.strangers_to(KEY)[0], cluster.owner_of(KEY)
    asking = ask_at(cluster.url_of(stranger))
    assert await asking.load() == "loaded"
    assert await asking.claim("a") == FRESH
    assert await asking.claim("a") == REPLAYED
    assert (redirects(stranger, "MOVED"), keys_of_slot(cluster, owner)) == (1, 1)


async def test_seeds_that_are_gone_or_hang_leave_time_for_the_next(cluster: Cluster, ask_at: AskAt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]}"
        asking = ask_at(cluster.url.replace("://", f"://{dead},"), timeout_s=6.0)
        assert await asking.claim("a") == FRESH


async def test_seeds_that_are_all_gone_are_a_lost_connection(ask_at: AskAt) -> None:
    asking = ask_at(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    assert await asking.claim("a") == "connection"
    assert await asking.load() == "connection"


async def test_connection_that_was_closed_is_replaced(cluster: Cluster, ask_at: AskAt) -> None:
    asking = ask_at(cluster.url)
    assert await asking.claim("a") == FRESH
    cluster.owner_of(KEY).cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await becomes(REPLAYED, asking)


# -- a slot that moves --------------------------------------------------------------------------------------


async def test_claim_follows_its_key_while_the_slot_moves(cluster: Cluster, ask_at: AskAt) -> None:
    owner, new = cluster.owner_of(KEY), cluster.strangers_to(KEY)[0]
    asking = ask_at(cluster.url)
    assert await asking.claim("a") == FRESH
    cluster.begin_move(KEY, new)
    assert await asking.claim("a") == REPLAYED
    assert redirects(owner, "ASK") == 0
    cluster.move_keys(KEY, new)
    for _ in range(2):
        assert await asking.claim("a") == REPLAYED
    assert redirects(owner, "ASK") >= 2  # the owner is still the one to ask first
    moved_before = redirects(owner, "MOVED")
    cluster.end_move(KEY, new)
    for _ in range(2):
        assert await asking.claim("a") == REPLAYED
    assert await asking.claim("b") == SECOND
    assert (redirects(owner, "MOVED") - moved_before, keys_of_slot(cluster, new)) == (1, 1)


async def test_first_claim_while_the_slot_moves_is_granted_where_it_goes(cluster: Cluster, ask_at: AskAt) -> None:
    owner, new = cluster.owner_of(KEY), cluster.strangers_to(KEY)[0]
    cluster.begin_move(KEY, new)
    asking, other = ask_at(cluster.url_of(owner)), ask_at(cluster.url_of(new))
    assert await asking.claim("a") == FRESH
    assert await other.claim("a") == REPLAYED
    cluster.end_move(KEY, new)
    assert await other.claim("a") == REPLAYED
    assert await asking.claim("b") == SECOND


async def test_claim_with_keys_that_come_one_by_one_is_unknown_until_the_slot_has_moved(
    cluster: Cluster, ask_at: AskAt
) -> None:
    new, other_key = cluster.strangers_to(KEY)[0], f"{KEY}:never-there"
    asking = ask_at(cluster.url)
    assert await asking.claim("a", other_key) == FRESH
    cluster.begin_move(KEY, new)
    assert await asking.claim("a", other_key) == "cluster"
    cluster.move_keys(KEY, new)
    assert await asking.claim("a", other_key) == "cluster"
    cluster.end_move(KEY, new)
    assert await asking.claim("a", other_key) == REPLAYED
    assert await asking.claim("b", other_key) == SECOND


async def test_store_is_whole_again_once_its_slot_has_moved(cluster: Cluster) -> None:
    new = cluster.strangers_to(KEY)[0]
    async with aclosing(redis_store(cluster.url)) as store:
        assert await warm(store) == HEARD
        assert await claim(store, "id") == FRESH
        cluster.begin_move(KEY, new)
        assert await claim(store, "id") == "cluster"
        cluster.move_keys(KEY, new)
        assert await claim(store, "id") == "cluster"
        cluster.end_move(KEY, new)
        assert await claim(store, "id") == REPLAYED
        assert await warm(store) == HEARD


# -- a node that dies ---------------------------------------------------------------------------------------


async def test_claim_while_the_owner_is_dead_is_unknown_and_is_granted_by_its_replica(
    cluster: Cluster, ask_at: AskAt
) -> None:
    owner = cluster.owner_of(KEY)
    replica = await asyncio.to_thread(cluster.add_replica, owner)
    asking = ask_at(cluster.url)
    assert await asking.claim("a") == FRESH
    assert owner.cli("WAIT", 1, 5000) == 1
    owner.kill()
    assert await asking.claim("a") in ("connection", "cluster")
    await becomes(REPLAYED, asking)
    assert replica.cli("ROLE")[0] == "master"


async def test_owner_that_hangs_is_a_timeout_until_its_replica_takes_over(cluster: Cluster, ask_at: AskAt) -> None:
    owner = cluster.owner_of(KEY)
    await asyncio.to_thread(cluster.add_replica, owner)
    asking = ask_at(cluster.url)
    assert await asking.claim("a") == FRESH
    assert owner.cli("WAIT", 1, 5000) == 1
    owner.pause()
    asking.timeout_s = 0.5
    assert await asking.claim("a") == "timeout"
    await becomes(REPLAYED, asking)


async def test_cluster_without_the_slot_says_so_until_it_is_back(cluster: Cluster, ask_at: AskAt) -> None:
    owner = cluster.owner_of(KEY)
    asking = ask_at(cluster.url)
    assert await asking.claim("a") == FRESH
    cluster.notice_soon()
    owner.kill()
    await becomes("cluster", asking)
    owner.restart()
    await becomes(FRESH, asking)  # it has no persistence


# -- nodes that make no sense -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "?", "127.0.0.1"], ids=["unnamed", "unknown", "named"])
@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
async def test_node_that_sends_us_to_itself_is_not_asked_for_ever(
    kind: str, host: str, actor: Actor, ask_at: AskAt
) -> None:
    url = await actor.open()
    asking = ask_at(url.replace("redis", "redis+cluster"))
    actor.line = f"-{kind} 1 {host}:{urlsplit(url).port}\r\n".encode()
    assert await asking.claim("a") == "cluster"
    assert actor.connections == 1


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://:hunter2@host/1",
        "redis+cluster://:hunter2@host:port",
        "redis+cluster://:hunter2@host,",
        "redis+cluster://:hunter2@host?db=1",
    ],
)
def test_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="cannot be used as a Redis URL") as refusal:
        Link(url, 1)
    assert "hunter2" not in str(refusal.value)
