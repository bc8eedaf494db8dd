"""The node that owns the service's slot: found from any seed, followed when it moves, replaced when it dies."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from harness.children import Children, StartRedis, short_path
from harness.cluster import Cluster
from harness.ports import free_port
from harness.stores import PREFIX, beat, claim, redis_store, send_beat, suspect
from harness.token_client import FRESH, KEY, REPLAYED, SECOND, TokenClient
from harness.waiting import eventually
from sidecar.core.types import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer
    from store.conftest import Actor, OpenClient


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with short_path(tmp_path_factory.mktemp("cluster")) as directory, Children() as children:
        yield Cluster(StartRedis(directory, children))


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster of this module, without data and with the slots of its start."""
    shared_cluster.renew(KEY)
    return shared_cluster


@pytest.fixture
async def mortal_cluster(start_redis: StartRedis) -> Cluster:
    """A cluster whose nodes the test may kill."""
    return await asyncio.to_thread(Cluster, start_redis)


def redirects(node: RedisServer, kind: str) -> int:
    """How often the node has sent somebody away since it started."""
    said = node.cli("INFO", "errorstats").get(f"errorstat_{kind}", {"count": 0})
    return int(said["count"])


def keys_of_slot(cluster: Cluster, node: RedisServer) -> int:
    return int(node.cli("CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(KEY)))


async def becomes(answer: str, client: TokenClient) -> None:
    """Claim again and again until that is the answer."""

    async def is_so() -> bool:
        return await client.claim("a") == answer

    await eventually(is_so, timeout_s=60, what=str(answer))


# -- finding the owner --------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_reaches_the_owner_from_any_seed_and_remembers_it(
    cluster: Cluster, open_client: OpenClient
) -> None:
    stranger, owner = cluster.strangers_to(KEY)[0], cluster.owner_of(KEY)
    client = open_client(cluster.url_of(stranger))
    assert await client.ping() == "PONG"
    assert await client.claim("a") == FRESH
    assert await client.claim("a") == REPLAYED
    assert (redirects(stranger, "MOVED"), keys_of_slot(cluster, owner)) == (0, 1)


@pytest.mark.site
@pytest.mark.process
async def test_each_call_of_the_store_reaches_the_owner_of_its_keys(cluster: Cluster) -> None:
    async with aclosing(redis_store(cluster.url)) as store:
        assert (await send_beat(store, suspect("a", about="news"))).alive == 1
        assert await claim(store, "id") == FRESH
        assert [name for name, *_ in (await store.members(most=10, since_us=0)).members] == ["a"]
        assert await store.note([Entry("culled", 1.0, "a")]) == 1
        assert [entry.what for entry in await store.entries(0, "", 10)] == ["culled"]
        assert [await store.first("word", 60), await store.first("word", 60)] == [True, False]
        assert [await store.count(f"errorWatcher:{number}", 60) for number in range(8)] == [1] * 8
        assert await claim(store, "id") == REPLAYED


@pytest.mark.site
@pytest.mark.process
async def test_seeds_that_are_gone_or_hang_leave_time_for_the_next(cluster: Cluster, open_client: OpenClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]}"
        client = open_client(cluster.url.replace("://", f"://{dead},"), timeout_s=6.0)
        assert await client.claim("a") == FRESH


@pytest.mark.process
async def test_owner_that_closes_an_idle_connection_is_noticed(cluster: Cluster) -> None:
    async with aclosing(redis_store(cluster.url)) as store:
        await send_beat(store, beat("a"))
        assert not store.lost.is_set()
        cluster.owner_of(f"{PREFIX}:state").cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await eventually(store.lost.is_set, timeout_s=30, what="the connection is lost")
        assert await claim(store, "a") == FRESH


# -- a slot that moves --------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_follows_its_key_while_the_slot_moves(cluster: Cluster, open_client: OpenClient) -> None:
    owner, new = cluster.owner_of(KEY), cluster.strangers_to(KEY)[0]
    client = open_client(cluster.url)
    assert await client.claim("a") == FRESH
    cluster.begin_move(KEY, new)
    assert await client.claim("a") == REPLAYED
    assert redirects(owner, "ASK") == 0
    cluster.move_keys(KEY, new)
    for _ in range(2):
        assert await client.claim("a") == REPLAYED
    assert redirects(owner, "ASK") >= 2  # the owner is still the one to ask first
    moved_before = redirects(owner, "MOVED")
    cluster.end_move(KEY, new)
    for _ in range(2):
        assert await client.claim("a") == REPLAYED
    assert await client.claim("b") == SECOND
    assert (redirects(owner, "MOVED") - moved_before, keys_of_slot(cluster, new)) == (1, 1)


# -- a node that dies ---------------------------------------------------------------------------------------


@pytest.mark.site
@pytest.mark.process
async def test_claim_while_the_owner_is_dead_is_unknown_and_is_granted_by_its_replica(
    mortal_cluster: Cluster, open_client: OpenClient
) -> None:
    owner = mortal_cluster.owner_of(KEY)
    replica = await asyncio.to_thread(mortal_cluster.add_replica, owner)
    client = open_client(mortal_cluster.url)
    assert await client.claim("a") == FRESH
    assert owner.cli("WAIT", 1, 5000) == 1
    owner.kill()
    assert await client.claim("a") in ("connection", "cluster")
    await becomes(REPLAYED, client)
    assert replica.cli("ROLE")[0] == "master"


# -- nodes that make no sense -------------------------------------------------------------------------------


def slots(host: bytes, port: int) -> bytes:
    """What a node says that has all slots."""
    return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n%b\r\n:%d\r\n" % (host, port)


@pytest.mark.parametrize("kind", ["MOVED 1 127.0.0.1", "ASK 1 127.0.0.1", "ASK 1 127.0.0.2"])
async def test_redirects_without_end_or_to_an_unknown_node_are_a_word(
    kind: str, actor: Actor, open_client: OpenClient
) -> None:
    url = await actor.open()
    port = urlsplit(url).port or 0
    actor.lines[b"SLOTS"], actor.line = slots(b"$9\r\n127.0.0.1", port), f"-{kind}:{port}\r\n".encode()
    actor.lines |= {b"COMMAND": b"*0\r\n", b"ASKING": b"+OK\r\n"}
    assert await open_client(url.replace("redis", "redis+cluster")).claim("a") == "cluster"
    assert actor.connections <= 2
