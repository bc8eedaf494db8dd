"""The master that Sentinels name: found, checked, lost in a failover and found again."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from harness.ports import free_port
from harness.sentinels import MASTER, SentinelSetup, masters_reply
from harness.token_client import FRESH, REPLAYED, SECOND, TokenClient
from harness.waiting import eventually

if TYPE_CHECKING:
    from harness.children import Children, StartRedis
    from harness.redis_server import RedisServer
    from store.conftest import Actor, OpenClient


async def url_of(*sentinels: Actor) -> str:
    hosts = [urlsplit(await sentinel.open()).netloc for sentinel in sentinels]
    return f"redis+sentinel://{','.join(hosts)}/{MASTER}"


async def claims_until_granted(client: TokenClient, claim_id: str) -> list[str]:
    """All the answers, the grant last."""
    answers: list[str] = []

    async def claim() -> bool:
        answers.append(await client.claim(claim_id))
        return " " in answers[-1]

    await eventually(claim, timeout_s=60, what="a grant")
    return answers


# -- a failover ---------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_claim_during_a_failover_is_unknown_and_is_granted_by_the_new_master(
    start_redis: StartRedis, children: Children, open_client: OpenClient
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children, sentinels=3)
    client = open_client(watched.url)
    assert await client.claim("a") == FRESH
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.master.kill()
    answers = await claims_until_granted(client, "a")
    assert answers[0] == "connection"
    assert set(answers) <= {"connection", "sentinel", "timeout", REPLAYED}
    assert watched.replica.cli("ROLE")[0] == "master"
    assert await client.claim("b") == SECOND


async def test_demoted_master_is_readonly_once_and_then_resolved_anew(
    actor: Actor, redis_server: RedisServer, faketime_redis: RedisServer, open_client: OpenClient
) -> None:
    old, new = redis_server, faketime_redis
    client = open_client(await url_of(actor))
    actor.line = masters_reply(old.port)
    assert await client.claim("a") == FRESH
    actor.line = masters_reply(new.port)
    assert await client.claim("b") == SECOND
    old.cli("REPLICAOF", "127.0.0.1", str(free_port()))
    assert await client.claim("c") == "readonly"
    assert await client.claim("c") == FRESH
    assert new.cli("DBSIZE") == 1


# -- whom to believe ----------------------------------------------------------------------------------------


@pytest.mark.process
async def test_sentinels_that_are_gone_or_hang_leave_time_for_the_next(
    start_redis: StartRedis, children: Children, open_client: OpenClient
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children)
    watched.notice_late()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = silent.getsockname()[1]
        client = open_client(watched.url_of(free_port(), hung, watched.sentinels[0].port), timeout_s=6.0)
        assert await client.claim("a") == FRESH
        assert await client.claim("a") == REPLAYED


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
    line: bytes, word: str, actor: Actor, open_client: OpenClient
) -> None:
    actor.line = line
    client = open_client(await url_of(actor))
    assert await client.claim("a") == word
    assert await client.claim("a") == word


async def test_sentinels_that_are_all_gone_are_a_word_of_their_own(open_client: OpenClient) -> None:
    client = open_client(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{MASTER}")
    assert await client.claim("a") == "sentinel"


# -- passwords ----------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_sentinels_have_a_password_of_their_own(
    start_redis: StartRedis, children: Children, open_client: OpenClient
) -> None:
    watched = await asyncio.to_thread(SentinelSetup, start_redis, children, password="s/cret")
    watched.notice_late()
    port = watched.sentinels[0].port
    assert await open_client(watched.url_of(port)).claim("a") == "auth"
    wrong = "?sentinel_password=s%2Fcre"
    assert await open_client(watched.url_of(port, query=wrong)).claim("a") == "auth"
    right = "?sentinel_password=s%2Fcret"
    assert await open_client(watched.url_of(port, query=right)).claim("a") == FRESH


async def test_login_and_database_of_the_url_are_for_the_master_alone(
    actor: Actor, redis_server: RedisServer, open_client: OpenClient
) -> None:
    redis_server.set_password("s/cret")
    actor.line = masters_reply(redis_server.port)
    url = (await url_of(actor)).replace("://", "://:s%2Fcret@") + "/3"
    assert await open_client(url).claim("a") == FRESH
    assert redis_server.cli("INFO", "keyspace").keys() == {"db3"}
    assert await open_client(url.replace("s%2Fcret", "wrong")).claim("a") == "auth"
