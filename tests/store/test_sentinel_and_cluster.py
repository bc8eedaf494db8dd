"""The master that Sentinels name, and the node of a Cluster that owns the slot: found, lost and found again."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from harness.children import Children, StartRedis, short_path
from harness.claims import beat, suspect
from harness.cluster import Cluster
from harness.ports import free_port
from harness.sentinels import MASTER, SentinelSetup, masters_reply
from harness.stores import FRESH, PREFIX, REACHED, REPLAYED, SECOND, claim, reach, send_beat
from harness.waiting import eventually
from sidecar.core.types import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import Actor, OpenStore


KEY: Final = f"{PREFIX}:state"
GRANTS: Final = f"{PREFIX}:grants"


async def url_of(*sentinels: Actor) -> str:
    hosts = [urlsplit(await sentinel.open()).netloc for sentinel in sentinels]
    return f"redis+sentinel://{','.join(hosts)}/{MASTER}"


async def claims_until_granted(store: RedisStore, claim_id: str) -> list[str]:
    """All the answers, the grant last."""
    answers: list[str] = []

    async def is_granted() -> bool:
        answers.append(await claim(store, claim_id))
        return " " in answers[-1]

    await eventually(is_granted, timeout_s=60, what="a grant")
    return answers


# -- a failover ---------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_during_a_failover_is_unknown_and_is_granted_by_the_new_master(
    start_redis: StartRedis, children: Children, open_store: OpenStore
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children, sentinels=3)
    store = open_store(watched.url)
    assert await claim(store, "a") == FRESH
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.master.kill()
    answers = await claims_until_granted(store, "a")
    assert answers[0] == "connection"
    assert set(answers) <= {"connection", "sentinel", "timeout", REPLAYED}
    assert watched.replica.cli("ROLE")[0] == "master"
    assert await claim(store, "b") == SECOND


async def test_demoted_master_is_readonly_once_and_then_resolved_anew(
    actor: Actor, redis_server: RedisServer, faketime_redis: RedisServer, open_store: OpenStore
) -> None:
    old, new = redis_server, faketime_redis
    store = open_store(await url_of(actor))
    actor.line = masters_reply(old.port)
    assert await claim(store, "a") == FRESH
    actor.line = masters_reply(new.port)
    assert await claim(store, "b") == SECOND
    old.cli("REPLICAOF", "127.0.0.1", str(free_port()))
    assert await claim(store, "c") == "readonly"
    assert await claim(store, "c") == FRESH
    assert new.cli("ZCARD", GRANTS) == 1


# -- whom to believe ----------------------------------------------------------------------------------------


@pytest.mark.process
async def test_sentinels_that_are_gone_or_hang_leave_time_for_the_next(
    start_redis: StartRedis, children: Children, open_store: OpenStore
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children)
    watched.notice_late()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = silent.getsockname()[1]
        store = open_store(watched.url_of(free_port(), hung, watched.sentinels[0].port), timeout_s=6.0)
        assert await claim(store, "a") == FRESH
        assert await claim(store, "a") == REPLAYED


@pytest.mark.parametrize(
    ("line", "word"),
    [
        pytest.param(masters_reply(1, "another"), "sentinel", id="no such master"),
        pytest.param(b"-ERR unknown command\r\n", "response", id="no Sentinel"),
        pytest.param(b"-NOAUTH Authentication required.\r\n", "auth", id="no password"),
        pytest.param(b"-NOPERM this user has no permissions\r\n", "permission", id="no permission"),
    ],
)
async def test_answer_without_a_master_has_a_word_for_its_cause(
    line: bytes, word: str, actor: Actor, open_store: OpenStore
) -> None:
    actor.line = line
    store = open_store(await url_of(actor))
    assert await claim(store, "a") == word
    assert await claim(store, "a") == word


async def test_sentinels_that_are_all_gone_are_a_word_of_their_own(open_store: OpenStore) -> None:
    store = open_store(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{MASTER}")
    assert await claim(store, "a") == "sentinel"


# -- passwords ----------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_sentinels_have_a_password_of_their_own(
    start_redis: StartRedis, children: Children, open_store: OpenStore
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children, password="s/cret")
    watched.notice_late()
    port = watched.sentinels[0].port
    assert await claim(open_store(watched.url_of(port)), "a") == "auth"
    wrong = "?sentinel_password=s%2Fcre"
    assert await claim(open_store(watched.url_of(port, query=wrong)), "a") == "auth"
    right = "?sentinel_password=s%2Fcret"
    assert await claim(open_store(watched.url_of(port, query=right)), "a") == FRESH


async def test_login_and_database_of_the_url_are_for_the_master_alone(
    actor: Actor, redis_server: RedisServer, open_store: OpenStore
) -> None:
    redis_server.set_password("s/cret")
    actor.line = masters_reply(redis_server.port)
    url = (await url_of(actor)).replace("://", "://:s%2Fcret@") + "/3"
    assert await claim(open_store(url), "a") == FRESH
    assert redis_server.cli("INFO", "keyspace").keys() == {"db3"}
    assert await claim(open_store(url.replace("s%2Fcret", "wrong")), "a") == "auth"


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


# -- finding the owner --------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_reaches_the_owner_from_any_seed_and_remembers_it(cluster: Cluster, open_store: OpenStore) -> None:
    stranger, owner = cluster.strangers_to(KEY)[0], cluster.owner_of(KEY)
    store = open_store(cluster.url_of(stranger))
    assert await reach(store) == REACHED
    assert await claim(store, "a") == FRESH
    assert await claim(store, "a") == REPLAYED
    assert (redirects(stranger, "MOVED"), owner.cli("ZCARD", GRANTS)) == (0, 1)


@pytest.mark.process
async def test_each_call_of_the_store_reaches_the_owner_of_its_keys(cluster: Cluster, open_store: OpenStore) -> None:
    store = open_store(cluster.url)
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
async def test_seeds_that_are_gone_or_hang_leave_time_for_the_next(cluster: Cluster, open_store: OpenStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]}"
        store = open_store(cluster.url.replace("://", f"://{dead},"), timeout_s=6.0)
        assert await claim(store, "a") == FRESH


@pytest.mark.process
async def test_owner_that_closes_an_idle_connection_is_noticed(cluster: Cluster, open_store: OpenStore) -> None:
    store = open_store(cluster.url)
    await send_beat(store, beat("a"))
    assert not store.lost.is_set()
    cluster.owner_of(KEY).cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(store.lost.is_set, timeout_s=30, what="the connection is lost")
    assert await claim(store, "a") == FRESH


# -- a slot that moves --------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_while_its_slot_moves_is_unknown_and_then_follows_its_key(
    cluster: Cluster, open_store: OpenStore
) -> None:
    """A command over several keys, of which some are elsewhere, is refused by both nodes (TRYAGAIN)."""
    owner, new = cluster.owner_of(KEY), cluster.strangers_to(KEY)[0]
    store, quiet = open_store(cluster.url), open_store(cluster.url)
    assert [await claim(store, "a"), await claim(quiet, "a")] == [FRESH, REPLAYED]
    cluster.begin_move(KEY, new)
    assert await claim(store, "a") == "cluster"
    cluster.move_keys(KEY, new)
    assert await claim(store, "a") == "cluster"
    moved_before = redirects(owner, "MOVED")
    cluster.end_move(KEY, new)
    assert [await claim(store, "a"), await claim(quiet, "a"), await claim(quiet, "b")] == [REPLAYED, REPLAYED, SECOND]
    assert (redirects(owner, "MOVED") - moved_before, new.cli("ZCARD", GRANTS)) == (1, 2)


# -- a node that dies ---------------------------------------------------------------------------------------


@pytest.mark.site
@pytest.mark.process
async def test_claim_while_the_owner_is_dead_is_unknown_and_is_granted_by_its_replica(
    mortal_cluster: Cluster, open_store: OpenStore
) -> None:
    owner = mortal_cluster.owner_of(KEY)
    replica = await asyncio.to_thread(mortal_cluster.add_replica, owner)
    store = open_store(mortal_cluster.url)
    assert await claim(store, "a") == FRESH
    assert owner.cli("WAIT", 1, 5000) == 1
    owner.kill()
    assert await claim(store, "a") in ("connection", "cluster")
    assert (await claims_until_granted(store, "a"))[-1] == REPLAYED
    assert replica.cli("ROLE")[0] == "master"


# -- nodes that make no sense -------------------------------------------------------------------------------


def slots(host: bytes, port: int) -> bytes:
    """What a node says that has all slots."""
    return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n%b\r\n:%d\r\n" % (host, port)


@pytest.mark.parametrize("kind", ["MOVED 1 127.0.0.1", "ASK 1 127.0.0.1", "ASK 1 127.0.0.2"])
async def test_redirects_without_end_or_to_an_unknown_node_are_a_word(
    kind: str, actor: Actor, open_store: OpenStore
) -> None:
    url = await actor.open()
    port = urlsplit(url).port or 0
    actor.lines[b"SLOTS"], actor.line = slots(b"$9\r\n127.0.0.1", port), f"-{kind}:{port}\r\n".encode()
    actor.lines |= {b"COMMAND": b"*0\r\n", b"ASKING": b"+OK\r\n"}
    assert await claim(open_store(url.replace("redis", "redis+cluster")), "a") == "cluster"
    assert actor.connections <= 2
