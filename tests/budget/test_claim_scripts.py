"""What the scripts leave in a real Redis, for how long, and what a claim sends."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.core.grants import Quota
from sidecar.core.words import Denied, Granted

if TYPE_CHECKING:
    from budget.conftest import OpenBudget, Proxy
    from harness.redis_server import RedisServer

GRANTS = "{ha:default/app}:grants"
START_S = 1_700_000_400
DAY_MS = 86_400_000


def at(text: str) -> datetime:
    return datetime.strptime(text, "%H:%M:%S").replace(tzinfo=UTC)


def everything(server: RedisServer) -> dict[str, tuple[Any, int]]:
    """Each key with its value and the Unix time in milliseconds at which it expires."""
    return {key: (_value(server, key), server.cli("PEXPIRETIME", key)) for key in server.cli("KEYS", "*")}


def _value(server: RedisServer, key: str) -> Any:
    if server.cli("TYPE", key) != "zset":
        return server.cli("GET", key)
    return {claim_id: int(float(server.cli("ZSCORE", key, claim_id))) for claim_id in server.cli("ZRANGE", key, 0, -1)}


@pytest.mark.parametrize("strategy", ["log", "previous"])
async def test_grants_are_one_set_that_outlives_two_windows_by_a_day(
    strategy: str, faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url, strategy=strategy)
    faketime_redis.set_time(START_S + 0.123456)
    await budget.claim("app/one/-")
    gone_at_ms = START_S * 1000 + 123 + 1_200_000 + DAY_MS
    grants = {"app/one/-": START_S * 1_000_000 + 123_456}
    assert everything(faketime_redis) == {GRANTS: (grants, gone_at_ms)}


async def test_grants_of_a_clock_that_was_ahead_live_by_that_clock(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url)
    faketime_redis.set_time(START_S)
    await budget.claim("a")
    faketime_redis.set_time(START_S - 7200)
    await budget.claim("b")
    grants = {"a": START_S * 1_000_000, "b": START_S * 1_000_000}
    assert everything(faketime_redis) == {GRANTS: (grants, START_S * 1000 + 1_200_000 + DAY_MS)}


async def test_grants_older_than_two_windows_leave_with_the_next_one(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url)
    for claim_id, at_s in (("a", 0), ("b", 0.000001), ("c", 1200.000001)):
        faketime_redis.set_time(START_S + at_s)
        await budget.claim(claim_id)
    assert faketime_redis.cli("ZRANGE", GRANTS, 0, -1) == ["b", "c"]


@pytest.mark.parametrize("strategy", ["log", "previous"])
async def test_denied_claim_writes_nothing_and_a_replay_only_its_own_time(
    strategy: str, faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url, strategy=strategy, quota=Quota(1, 600_000_000))
    await budget.claim("a")
    before = everything(faketime_redis)
    granted_at = faketime_redis.cli("ZSCORE", GRANTS, "a")
    faketime_redis.advance(1)
    assert isinstance(await budget.claim("b"), Denied)
    assert everything(faketime_redis) == before
    assert await budget.claim("a") == Granted(1, 1, replayed=True)
    assert everything(faketime_redis).keys() == before.keys()
    assert faketime_redis.cli("ZSCORE", GRANTS, "a") == granted_at + 1_000_000


async def test_fixed_writes_the_counter_of_the_article_and_the_grants(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url, strategy="fixed", local_time=lambda: at("12:34:56"))
    faketime_redis.set_time(START_S)
    await budget.claim("a")
    assert everything(faketime_redis) == {
        "errorWatcher:3": ("1", START_S * 1000 + 600_000),
        GRANTS: ({"a": START_S * 1_000_000}, START_S * 1000 + 1_200_000 + DAY_MS),
    }


async def test_fixed_denied_claim_counts_and_leaves_no_grant(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    noon = at("12:00:00")
    budget = open_budget(redis_server.url, strategy="fixed", quota=Quota(1, 600_000_000), local_time=lambda: noon)
    assert [type(await budget.claim(claim_id)) for claim_id in "abc"] == [Granted, Denied, Denied]
    assert redis_server.cli("GET", "errorWatcher:0") == "3"
    assert redis_server.cli("ZRANGE", GRANTS, 0, -1) == ["a"]


async def test_shadow_and_enforce_do_not_share_tokens(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    one = {"quota": Quota(1, 600_000_000), "local_time": lambda: at("12:00:00")}
    for strategy, key in (("log", "log"), ("fixed", "fixed")):
        real = open_budget(redis_server.url, strategy=strategy, prefix=f"{{{key}}}", **one)
        shadow = {"prefix": f"{{{key}}}:shadow", "fixed_key": "errorWatcher:shadow"}
        would = open_budget(redis_server.url, strategy=strategy, **one, **shadow)
        assert await would.claim("a") == Granted(1, 1)
        assert await real.claim("b") == Granted(1, 1)


# -- cost ---------------------------------------------------------------------------------------------------


def _calls(server: RedisServer) -> dict[str, int]:
    stats = server.cli("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()}


@pytest.mark.parametrize(("warm_ups", "commands"), [(0, ["EVALSHA", "EVAL"]), (1, ["SCRIPT", "SCRIPT", "EVALSHA"])])
async def test_first_claim_sends_nothing_but_what_it_needs(
    warm_ups: int, commands: list[str], redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    for _ in range(warm_ups):
        assert await budget.warm() is None
    assert await budget.claim("a") == Granted(1, 10)
    assert proxy.commands == commands


async def test_warm_sends_the_script_only_when_the_server_lacks_it(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    redis_server.cli("CONFIG", "RESETSTAT")
    for _ in range(3):
        assert await budget.warm() is None
    calls = _calls(redis_server)
    assert calls["script|load"] == 1
    assert calls["script|exists"] == 3


async def test_claims_and_warm_ups_share_one_connection(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    redis_server.cli("CONFIG", "RESETSTAT")
    await asyncio.gather(*(budget.claim(f"claim-{n}") for n in range(5)), *(budget.warm() for _ in range(5)))
    # Ours, and the one that asks.
    assert redis_server.cli("INFO", "stats")["total_connections_received"] == 2
