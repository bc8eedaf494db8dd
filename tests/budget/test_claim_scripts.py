"""What the scripts leave in a real Redis, for how long, and what claims and beats send."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from harness.claims import ask, beat, claim, lease, warm
from sidecar.core.terms import Share
from sidecar.core.words import Beat, Claim, Denied, Granted, Hold, Lease, Presence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from budget.conftest import OpenBudget, Proxy
    from harness.redis_server import RedisServer
    from sidecar.budget.redis import RedisBudget

GRANTS = "{ha:default/app}:grants"
START_S = 1_700_000_400
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
KEPT_MS = 2 * 600_000 + DAY_MS
KEYS = (
    *("grants", "earned", "policy", "state", "alive", "kinds", "causes", "departed"),
    *("missing", "down", "culls", "trials", "replaced", "useless", "hold", "leases", "holders"),
)


def at(text: str) -> datetime:
    return datetime.strptime(text, "%H:%M:%S").replace(tzinfo=UTC)


def lives(server: RedisServer) -> dict[str, int]:
    """Each key that is there, and the Unix time in milliseconds at which it expires."""
    keys = server.cli("KEYS", "*")
    return {key.removeprefix("{ha:default/app}:"): server.cli("PEXPIRETIME", key) for key in keys}


def grants(server: RedisServer) -> dict[str, int]:
    return {
        claim_id: int(float(server.cli("ZSCORE", GRANTS, claim_id))) for claim_id in server.cli("ZRANGE", GRANTS, 0, -1)
    }


# -- what is left, and for how long -------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_grants_are_one_set_that_outlives_two_windows_by_a_day(
    strategy: str, faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url, strategy=strategy)
    faketime_redis.set_time(START_S + 0.123456)
    await ask(budget, "app/one/-")
    assert grants(faketime_redis) == {"app/one/-": START_S * 1_000_000 + 123_456}
    assert lives(faketime_redis)["grants"] >= START_S * 1000 + 123 + KEPT_MS


async def test_grants_of_a_clock_that_was_ahead_live_by_that_clock(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url)
    faketime_redis.set_time(START_S)
    await ask(budget, "a")
    faketime_redis.set_time(START_S - 7200)
    await ask(budget, "b")
    assert grants(faketime_redis) == {"a": START_S * 1_000_000, "b": START_S * 1_000_000}
    assert lives(faketime_redis)["grants"] >= START_S * 1000 + KEPT_MS


async def _live(budget: RedisBudget, server: RedisServer) -> AsyncIterator[None]:
    """A life of a fleet in which every key comes into being; stops after each call."""
    wants = Presence.WANTS
    replaced = [beat("a", Presence.DOWN, claim_id="a"), beat("a", Presence.GONE), beat("n", first=True)]
    proven = [beat("b", life="2"), 60, beat("b", life="2")]
    failed = [beat("c", life="2"), beat("c", wants, life="2"), beat("c", wants, life="2", kind="disk")]
    for step in [
        *map(beat, "abcdef"),
        lease("f", timeout_s=7200),
        *[claim("a"), claim("b"), claim("c"), *replaced, *proven, *failed],
        *[20, beat("d"), 1800, *map(beat, "abcdef"), 1799, beat("a"), 7200, beat("b"), claim("b"), claim("d")],
    ]:
        match step:
            case int():
                server.advance(step)
                continue
            case Claim():
                await budget.claim(step)
            case Beat():
                await budget.beat(step)
            case Lease():
                assert isinstance(await budget.retire(step), Granted)
        yield


async def test_no_key_lives_for_ever_and_none_too_short(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, earn_max=0, useless_after=2, beat_us=600_000_000)
    seen: set[str] = set()
    async for _ in _live(budget, faketime_redis):
        now_ms = int(faketime_redis.cli("TIME")[0]) * 1000
        ends = lives(faketime_redis)
        ends.pop("events", None)  # the ledger stays longer: see test_contract_told.py
        late = {key: end - now_ms for key, end in ends.items() if not KEPT_MS <= end - now_ms <= KEPT_MS + HOUR_MS}
        assert late == {}
        seen |= ends.keys()
    assert seen == {key for key in KEYS if key != "hold"}


async def test_hold_outlives_a_fleet_that_is_not_heard_of(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(faketime_redis.url)
    faketime_redis.set_time(START_S)
    await budget.hold("", "ops", "a freeze", 30 * 86_400)
    await warm(budget)
    assert lives(faketime_redis)["hold"] == START_S * 1000 + 30 * DAY_MS
    faketime_redis.advance(30 * 86_400 - 1)
    refused = await budget.claim(claim("a"))
    assert isinstance(refused, Denied)
    assert refused.hold == Hold("ops", "a freeze", START_S + 30 * 86_400)


async def test_grants_older_than_two_windows_leave_with_the_next_one(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(faketime_redis.url)
    for claim_id, at_s in (("a", 0), ("b", 0.000001), ("c", 1200.000001)):
        faketime_redis.set_time(START_S + at_s)
        await ask(budget, claim_id)
    assert faketime_redis.cli("ZRANGE", GRANTS, 0, -1) == ["b", "c"]


@pytest.mark.parametrize("strategy", ["log", "previous"])
async def test_denied_claim_leaves_no_grant_and_a_replay_only_its_own_time(
    strategy: str, faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, strategy=strategy, capacity=Share(1))
    await ask(budget, "a")
    faketime_redis.advance(1)
    assert isinstance(await ask(budget, "b"), Denied)
    assert grants(faketime_redis) == {"a": START_S * 1_000_000}
    assert await ask(budget, "a") == Granted(1, 1, replayed=True)
    assert grants(faketime_redis) == {"a": START_S * 1_000_000 + 1_000_000}


async def test_fixed_writes_the_counter_of_the_article(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(faketime_redis.url, strategy="fixed", local_time=lambda: at("12:34:56"))
    faketime_redis.set_time(START_S)
    await ask(budget, "a")
    assert faketime_redis.cli("GET", "errorWatcher:3") == "1"
    assert lives(faketime_redis)["errorWatcher:3"] == START_S * 1000 + 600_000


async def test_fixed_denied_claim_counts_and_leaves_no_grant(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    noon = at("12:00:00")
    budget = open_budget(redis_server.url, strategy="fixed", capacity=Share(1), local_time=lambda: noon)
    assert [type(await ask(budget, claim_id)) for claim_id in "abc"] == [Granted, Denied, Denied]
    assert redis_server.cli("GET", "errorWatcher:0") == "3"
    assert redis_server.cli("ZRANGE", GRANTS, 0, -1) == ["a"]


async def test_shadow_and_enforce_do_not_share_tokens(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    one = {"capacity": Share(1), "local_time": lambda: at("12:00:00")}
    for strategy, key in (("log", "log"), ("fixed", "fixed")):
        real = open_budget(redis_server.url, strategy=strategy, prefix=f"{{{key}}}", **one)
        shadow = {"prefix": f"{{{key}}}:shadow", "fixed_key": "errorWatcher:shadow"}
        would = open_budget(redis_server.url, strategy=strategy, **one, **shadow)
        assert await ask(would, "a") == Granted(1, 1)
        assert await ask(real, "b") == Granted(1, 1)


# -- cost ---------------------------------------------------------------------------------------------------


def _calls(server: RedisServer) -> dict[str, int]:
    stats = server.cli("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()}


@pytest.mark.parametrize(
    ("beats", "commands"),
    [
        (0, ["EVALSHA", "EVAL"]),
        (1, ["EVALSHA", "EVAL", "SCRIPT", "SCRIPT", "EVALSHA"]),
        (2, ["EVALSHA", "EVAL", "SCRIPT", "SCRIPT", "EVALSHA", "EVALSHA"]),
    ],
)
async def test_claim_is_one_command_once_a_beat_was_answered(
    beats: int, commands: list[str], redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    for _ in range(beats):
        assert await warm(budget) is None
    assert await ask(budget, "a") == Granted(1, 10)
    assert proxy.commands == commands


async def test_scripts_are_sent_only_to_a_server_that_lacks_them(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    assert await warm(open_budget(redis_server.url)) is None
    redis_server.cli("CONFIG", "RESETSTAT")
    budget = open_budget(redis_server.url)
    for _ in range(3):
        assert await warm(budget) is None
    calls = _calls(redis_server)
    assert (calls["evalsha"], calls["script|exists"], calls.get("script|load", 0)) == (3, 1, 0)


async def test_life_of_the_keys_is_renewed_once_an_hour(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(faketime_redis.url, beat_us=2 * HOUR_MS * 1000)
    renewals = []
    for _ in range(8):
        assert await warm(budget) is None
        renewals.append(_calls(faketime_redis).get("pexpireat", 0))
        faketime_redis.cli("CONFIG", "RESETSTAT")
        faketime_redis.advance(1200)
    assert [count > 0 for count in renewals] == [True, False, False, False, True, False, False, False]


async def test_beat_after_a_restart_of_the_server_brings_the_claim_there_too(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert await warm(budget) is None
    redis_server.cli("SCRIPT", "FLUSH")
    assert await warm(budget) is None
    redis_server.cli("CONFIG", "RESETSTAT")
    assert await ask(budget, "a") == Granted(1, 10)
    assert _calls(redis_server)["evalsha"] == 1
    assert "eval" not in _calls(redis_server)


async def test_claims_and_warm_ups_share_one_connection(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    redis_server.cli("CONFIG", "RESETSTAT")
    await asyncio.gather(*(ask(budget, f"claim-{n}") for n in range(5)), *(warm(budget) for _ in range(5)))
    # Ours, and the one that asks.
    assert redis_server.cli("INFO", "stats")["total_connections_received"] == 2
