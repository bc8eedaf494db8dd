"""A server that evicts one key loses its memory as one that is flushed does: nobody goes before it can be known again.

Of what has no twin: the bucket in memory forgets all or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from harness.claims import S, beat, claim, lease
from sidecar.core.terms import HALF, Share
from sidecar.core.words import Answer, Claim, Denied, Fleet, Granted, Lease, Presence

if TYPE_CHECKING:
    from budget.conftest import OpenBudget
    from harness.redis_server import RedisServer
    from sidecar.budget.redis import RedisBudget

START_S: Final = 1_700_000_400
PREFIX: Final = "{ha:default/app}"
CAREFUL: Final = {"lost_is_empty": True, "beat_us": 2 * 10**9, "min_healthy": HALF, "earn_max": 0, "probation_us": S}


async def asks(budget: RedisBudget, what: Claim | Lease) -> Answer:
    return await (budget.claim(what) if isinstance(what, Claim) else budget.retire(what))


async def losses(budget: RedisBudget) -> int:
    fleet = await budget.beat(beat("f"))
    assert isinstance(fleet, Fleet)
    return fleet.losses


@pytest.fixture
async def busy(faketime_redis: RedisServer, open_budget: OpenBudget) -> RedisBudget:
    """A bucket of an old fleet of six: one was culled, one is on leave, one is held."""
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, **CAREFUL)
    for name in "abcdef":
        await budget.beat(beat(name))
    faketime_redis.advance(3600)
    assert isinstance(await budget.retire(lease("b", timeout_s=7200)), Granted)
    assert isinstance(await budget.claim(claim("a")), Granted)
    await budget.hold("e", "ops", "look at it", 7200)
    faketime_redis.advance(1)
    return budget


@pytest.mark.parametrize("key", ["grants", "missing", "down", "culls", "leases", "holders", "hold"])
@pytest.mark.parametrize("asked", [claim("c"), lease("c", slots="3")], ids=["claim", "retirement"])
async def test_key_that_is_gone_is_a_loss_of_memory(
    asked: Claim | Lease, key: str, busy: RedisBudget, faketime_redis: RedisServer
) -> None:
    assert faketime_redis.cli("DEL", f"{PREFIX}:{key}") == 1
    answers = [await asks(busy, asked), await asks(busy, asked)]
    assert [(answer.reason, answer.retry_after_s) for answer in answers if isinstance(answer, Denied)] == [
        ("lost_memory", 600.000001)
    ] * 2
    assert await losses(busy) == 1


async def test_grants_that_were_given_back_are_missed_too(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, **CAREFUL)
    for name in "abcdef":
        await budget.beat(beat(name))
    faketime_redis.advance(3600)
    assert isinstance(await budget.claim(claim("a")), Granted)
    await budget.beat(beat("a", life="2"))
    faketime_redis.advance(1)
    await budget.beat(beat("a", life="2"))
    assert faketime_redis.cli("DEL", f"{PREFIX}:earned") == 1
    assert isinstance(answer := await budget.claim(claim("c")), Denied)
    assert answer.reason == "lost_memory"


async def test_key_that_half_came_back_does_not_hide_the_loss(busy: RedisBudget, faketime_redis: RedisServer) -> None:
    faketime_redis.cli("DEL", f"{PREFIX}:missing")
    await busy.beat(beat("b", Presence.DOWN, lease="b's"))
    assert isinstance(answer := await busy.claim(claim("c")), Denied)
    assert answer.reason == "lost_memory"
    await busy.beat(beat("a", Presence.DOWN, claim_id="a"))
    assert isinstance(fleet := await busy.beat(beat("b", Presence.DOWN, lease="b's")), Fleet)
    assert (fleet.down, fleet.losses) == (2, 1)


async def test_nothing_is_lost_where_all_is_in_order(busy: RedisBudget, faketime_redis: RedisServer) -> None:
    assert isinstance(await busy.claim(claim("c")), Granted)
    await busy.release("e")
    await busy.resign("b", "b's")
    faketime_redis.advance(599)
    await busy.beat(beat("a", life="2"))
    assert isinstance(await busy.retire(lease("d")), Granted)
    faketime_redis.advance(9000)
    assert isinstance(await busy.claim(claim("e", life="2")), Granted | Denied)
    assert await losses(busy) == 0


async def test_replay_of_a_grant_that_was_evicted_is_none(busy: RedisBudget, faketime_redis: RedisServer) -> None:
    faketime_redis.cli("DEL", f"{PREFIX}:grants")
    assert isinstance(answer := await busy.claim(claim("a")), Denied)
    assert answer.reason == "lost_memory"


async def test_evicted_grants_let_nobody_pass_twice(faketime_redis: RedisServer, open_budget: OpenBudget) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, lost_is_empty=True, beat_us=2 * 10**9, capacity=Share(2))
    for number in range(20):
        await budget.beat(beat(f"c{number}"))
    faketime_redis.advance(3600)
    granted = 0
    for number in range(20):
        granted += isinstance(await budget.claim(claim(f"c{number}")), Granted)
        faketime_redis.cli("DEL", f"{PREFIX}:grants")
        faketime_redis.advance(1)
    assert granted == 1
