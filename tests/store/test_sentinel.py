"""The master that Sentinels name: found, checked, lost in a failover and found again."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from harness.asking import FRESH, REPLAYED, SECOND, Asking
from harness.ports import free_port
from harness.sentinels import MASTER, Sentinel, Watched
from harness.waiting import eventually
from sidecar.store.link import Link

if TYPE_CHECKING:
    from harness.starting import Children, StartRedis
    from store.conftest import Actor, AskAt


async def name_as_master(sentinel: Actor, port: int) -> None:
    """Have the actor say what a Sentinel says of the master's place."""
    sentinel.line = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)


async def url_of(*sentinels: Actor) -> str:
    hosts = [urlsplit(await sentinel.open()).netloc for sentinel in sentinels]
    return f"redis+sentinel://{','.join(hosts)}/fleet"


async def claims_until_granted(asking: Asking, claim_id: str) -> list[str]:
    """All the answers, the grant last."""
    answers: list[str] = []

    async def claim() -> bool:
        answers.append(await asking.claim(claim_id))
        return " " in answers[-1]

    await eventually(claim, timeout_s=30, what="a grant")
    return answers


# -- a failover ---------------------------------------------------------------------------------------------


async def test_claim_during_a_failover_is_unknown_and_is_granted_by_the_new_master(
    start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children, sentinels=3)
    asking = ask_at(watched.url)
    assert await asking.claim("a") == FRESH
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.master.kill()
    answers = await claims_until_granted(asking, "a")
    assert answers[0] == "connection"
    assert set(answers) <= {"connection", "sentinel", REPLAYED}
    assert watched.replica.cli("ROLE")[0] == "master"
    assert await asking.claim("b") == SECOND


async def test_master_that_hangs_is_a_timeout_until_another_takes_over(
    start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children)
    asking = ask_at(watched.url)
    assert await asking.claim("a") == FRESH
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.master.pause()
    asking.timeout_s = 0.5
    answers = await claims_until_granted(asking, "a")
    assert answers[0] == "timeout"
    assert answers[-1] == REPLAYED


async def test_demoted_master_is_readonly_once_and_then_resolved_anew(
    actor: Actor, start_redis: StartRedis, ask_at: AskAt
) -> None:
    old, new = start_redis("old"), start_redis("new")
    asking = ask_at(await url_of(actor))
    await name_as_master(actor, old.port)
    assert await asking.claim("a") == FRESH
    await name_as_master(actor, new.port)
    assert await asking.claim("b") == SECOND
    old.cli("REPLICAOF", "127.0.0.1", str(free_port()))
    assert await asking.claim("c") == "readonly"
    assert await asking.claim("c") == FRESH
    assert new.cli("DBSIZE") == 1


# -- whom to believe ----------------------------------------------------------------------------------------


async def test_sentinels_that_are_gone_or_hang_leave_time_for_the_next(
    start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children)
    watched.notice_late()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = silent.getsockname()[1]
        asking = ask_at(watched.url_of(free_port(), hung, watched.sentinels[0].port), timeout_s=6.0)
        assert await asking.claim("a") == FRESH
        assert await asking.claim("a") == REPLAYED


async def test_replica_that_is_named_as_master_is_not_taken_for_one(
    actor: Actor, start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children)
    watched.notice_late()
    await name_as_master(actor, watched.replica.port)
    liar = await url_of(actor)
    assert await ask_at(liar).claim("a") == "readonly"
    honest = f",127.0.0.1:{watched.sentinels[0].port}/fleet"
    assert await ask_at(liar.replace("/fleet", honest)).claim("a") == FRESH
    assert watched.master.cli("DBSIZE") == 1


async def test_sentinel_that_names_a_master_is_asked_first_the_next_time(
    actor: Actor, start_redis: StartRedis, ask_at: AskAt
) -> None:
    server = start_redis()
    await name_as_master(actor, server.port)
    dead = free_port()
    asking = ask_at((await url_of(actor)).replace("://", f"://127.0.0.1:{dead},"))
    assert await asking.claim("a") == FRESH
    server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    asked: list[object] = []
    async with await asyncio.start_server(lambda *peer: asked.extend(peer), "127.0.0.1", dead):
        await claims_until_granted(asking, "a")
    assert (asked, actor.connections) == ([], 2)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"*-1\r\n", "sentinel"),
        (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "sentinel"),
        (b"-ERR unknown command\r\n", "sentinel"),
        (b"-NOAUTH Authentication required.\r\n", "auth"),
        (b"-NOPERM this user has no permissions\r\n", "permission"),
    ],
    ids=["no such master", "no port", "no Sentinel", "no password", "no permission"],
)
async def test_why_no_sentinel_is_of_use_is_told(line: bytes, word: str, actor: Actor, ask_at: AskAt) -> None:
    actor.line = line
    asking = ask_at(await url_of(actor))
    assert await asking.claim("a") == word
    assert await asking.claim("a") == word


async def test_sentinels_that_are_all_gone_are_a_word_of_their_own(ask_at: AskAt) -> None:
    asking = ask_at(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/fleet")
    assert await asking.claim("a") == "sentinel"


# -- passwords ----------------------------------------------------------------------------------------------


async def test_sentinels_have_a_password_of_their_own(
    start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children, password="s/cret")
    watched.notice_late()
    port = watched.sentinels[0].port
    assert await ask_at(watched.url_of(port)).claim("a") == "auth"
    wrong = "?sentinel_password=s%2Fcre"
    assert await ask_at(watched.url_of(port, query=wrong)).claim("a") == "auth"
    right = "?sentinel_password=s%2Fcret"
    assert await ask_at(watched.url_of(port, query=right)).claim("a") == FRESH


async def test_sentinel_lets_a_user_in_who_may_ask_for_the_master_and_nothing_else(
    start_redis: StartRedis, children: Children, ask_at: AskAt
) -> None:
    sentinel = children.adopt(Sentinel(start_redis.directory, "sentinel", start_redis())).start()
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{MASTER}?sentinel_username=app&sentinel_password=pw"
    sentinel.cli("ACL", "SETUSER", "app", "on", ">pw")
    assert await ask_at(url).claim("a") == "permission"
    sentinel.cli("ACL", "SETUSER", "app", "+sentinel|get-master-addr-by-name")
    assert await ask_at(url).claim("a") == FRESH


async def test_login_and_database_of_the_url_are_for_the_master_alone(
    actor: Actor, start_redis: StartRedis, ask_at: AskAt
) -> None:
    server = start_redis(password="s/cret")
    await name_as_master(actor, server.port)
    url = (await url_of(actor)).replace("://", "://:s%2Fcret@") + "/3"
    assert await ask_at(url).claim("a") == FRESH
    assert server.cli("INFO", "keyspace").keys() == {"db3"}
    assert await ask_at(url.replace("s%2Fcret", "wrong")).claim("a") == "auth"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hunter2@host",
        "redis+sentinel://:hunter2@host/fleet/zero",
        "redis+sentinel://:hunter2@host:port/fleet",
        "redis+sentinel://:hunter2@host/fleet?socket_timeout=1",
        "redis+sentinel://:hunter2@host/fleet?db=hunter2",
        "redis+guard://:hunter2@host/fleet",
    ],
)
def test_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="cannot be used as a Redis URL") as refusal:
        Link(url, 1)
    assert "hunter2" not in str(refusal.value)
