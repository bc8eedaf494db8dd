"""What a real Redis refuses: one word each, and once it is set right the same id gets its answer."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from redis.asyncio import Redis

from harness.claims import ask, claim, warm
from harness.waiting import eventually
from sidecar.budget.redis import RedisBudget
from sidecar.core.terms import Share
from sidecar.core.words import Denied, Fleet, Granted, Hold, Roll, Unknown

if TYPE_CHECKING:
    from budget.conftest import OpenBudget
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis

FRESH = Granted(1, 10)
REPLAYED = Granted(1, 10, replayed=True)
SECRET = "s3cret/pass?word"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def assert_refused_with(budget: RedisBudget, word: str) -> None:
    assert await ask(budget, "a") == Unknown(word)
    assert await ask(budget, "a") == Unknown(word)


def logins(server: RedisServer) -> dict[str, str]:
    secret, wrong = quote(SECRET, safe=""), quote(f"{SECRET}x", safe="")
    return {
        "wrong": f"redis://:{wrong}@127.0.0.1:{server.port}",
        "none": f"redis://127.0.0.1:{server.port}",
        "unknown user": f"redis://nobody:{secret}@127.0.0.1:{server.port}",
        "wrong over a unix socket": f"unix://:{wrong}@{server.unix_socket}",
    }


# -- who may ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["wrong", "none", "unknown user", "wrong over a unix socket"])
async def test_login_that_the_server_refuses_is_auth_and_tells_no_secret(
    login: str, start_redis: StartRedis, open_budget: OpenBudget, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = start_redis(password=SECRET)
    budget = open_budget(logins(server)[login])
    await assert_refused_with(budget, "auth")
    assert await warm(budget) == Unknown("auth")
    assert "s3cret" not in caplog.text + repr(budget) + repr(vars(budget))


async def test_login_that_was_set_right_on_the_server_works_with_the_same_budget(
    start_redis: StartRedis, open_budget: OpenBudget
) -> None:
    server = start_redis(password="old")
    budget = open_budget(f"redis://:new@127.0.0.1:{server.port}")
    await assert_refused_with(budget, "auth")
    server.cli("CONFIG", "SET", "requirepass", "new")
    assert await ask(budget, "a") == FRESH


async def test_right_login_works_over_tcp_and_unix_socket(start_redis: StartRedis, open_budget: OpenBudget) -> None:
    server = start_redis(password=SECRET)
    assert await ask(open_budget(server.url), "a") == FRESH
    over_socket = open_budget(f"unix://:{quote(SECRET, safe='')}@{server.unix_socket}?db=0")
    assert await ask(over_socket, "a") == REPLAYED


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/1", "unix://{path}?db=1"])
async def test_database_of_the_url_is_the_one_written_to(
    url: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(url.format(port=redis_server.port, path=redis_server.unix_socket))
    assert await ask(budget, "a") == FRESH
    assert redis_server.cli("INFO", "keyspace").keys() == {"db1"}


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/99", "unix://{path}?db=99"])
async def test_database_that_is_not_there_is_never_mistaken_for_another(
    url: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(url.format(port=redis_server.port, path=redis_server.unix_socket))
    await assert_refused_with(budget, "response")
    assert redis_server.cli("INFO", "keyspace") == {}


@pytest.mark.parametrize("missing", ["-eval -evalsha", "-zadd", "-time", "resetkeys ~other:*"])
async def test_user_who_may_not_is_a_permission_and_may_later(
    missing: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    redis_server.cli("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", *missing.split())
    budget = open_budget(f"redis://app:pw@127.0.0.1:{redis_server.port}")
    await assert_refused_with(budget, "permission")
    redis_server.cli("ACL", "SETUSER", "app", "~*", "+@all")
    assert await ask(budget, "a") == FRESH


# -- what may not be written --------------------------------------------------------------------------------


async def test_read_only_replica_is_readonly_until_it_is_promoted(
    start_redis: StartRedis, open_budget: OpenBudget
) -> None:
    server = start_redis(read_only=True)
    budget = open_budget(server.url)
    await assert_refused_with(budget, "readonly")
    assert await warm(budget) == Unknown("readonly")
    assert await budget.roll() == Roll(Fleet(0, policies=0, capacity=10), 0)
    server.cli("REPLICAOF", "NO", "ONE")
    assert await ask(budget, "a") == FRESH


@pytest.mark.parametrize("strategy", ["log", "fixed"])
async def test_full_memory_is_oom_and_charges_nothing(
    strategy: str, start_redis: StartRedis, open_budget: OpenBudget
) -> None:
    server = start_redis(maxmemory=1)
    budget = open_budget(server.url, strategy=strategy)
    await assert_refused_with(budget, "oom")
    server.cli("CONFIG", "SET", "maxmemory", "0")
    assert await ask(budget, "a") == FRESH


async def test_full_memory_hides_neither_a_token_that_is_ours_nor_that_there_is_none(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget, other = open_budget(redis_server.url), open_budget(redis_server.url, capacity=Share(1))
    assert await ask(budget, "a") == FRESH
    assert await warm(other) is None
    redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    assert await ask(budget, "a") == Granted(1, 1, replayed=True)
    assert isinstance(await ask(budget, "b"), Denied)
    redis_server.cli("ZREM", "{ha:default/app}:policy", str(other._terms))
    assert await ask(budget, "b") == Unknown("oom")
    assert await warm(budget) == Unknown("oom")


async def test_full_memory_takes_no_hold_and_lets_one_be_released(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert isinstance(await budget.hold("", "ops", "a deploy", 60), Hold)
    redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    assert await budget.hold("a", "ops", "a deploy", 60) == Unknown("oom")
    refused = await budget.claim(claim("a"))
    assert isinstance(refused, Denied)
    assert refused.reason == "hold"
    assert isinstance(await budget.roll(), Roll)
    assert await budget.release("") is True
    assert await budget.claim(claim("a")) == Unknown("oom")


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_key_of_another_kind_is_an_error_and_left_alone(
    strategy: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    redis_server.cli("SET", "{ha:default/app}:grants", "something")
    budget = open_budget(redis_server.url, strategy=strategy)
    await assert_refused_with(budget, "response")
    assert redis_server.cli("GET", "{ha:default/app}:grants") == "something"
    redis_server.cli("DEL", "{ha:default/app}:grants")
    assert await ask(budget, "a") == FRESH


# -- busy ---------------------------------------------------------------------------------------------------


async def test_busy_server_is_busy_and_then_answers(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    assert await warm(budget) is None
    redis_server.cli("CONFIG", "SET", "busy-reply-threshold", "20")
    async with Redis.from_url(redis_server.url, socket_timeout=30) as other:
        spinning = asyncio.create_task(_spin(other))
        await eventually(lambda: _is_busy(budget), timeout_s=20, what="busy")
        assert await warm(budget) == Unknown("busy")
        redis_server.cli("SCRIPT", "KILL")
        await spinning
    assert await ask(budget, "a") == FRESH


async def _spin(client: Redis) -> None:
    with pytest.raises(Exception, match="killed by user"):
        await client.eval("while true do end", 0)


async def _is_busy(budget: RedisBudget) -> bool:
    return await warm(budget) == Unknown("busy")


# -- the script ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_flushed_script_is_sent_again(strategy: str, redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url, strategy=strategy, local_time=lambda: NOON)
    assert await warm(budget) is None
    redis_server.cli("SCRIPT", "FLUSH")
    assert await ask(budget, "a") == FRESH
    redis_server.cli("SCRIPT", "FLUSH")
    assert await warm(budget) is None
    assert await ask(budget, "a") == REPLAYED
