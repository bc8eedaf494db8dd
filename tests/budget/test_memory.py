from __future__ import annotations

import pytest

from harness.claims import beat, claim, lease
from harness.ledgers import read
from sidecar.budget.memory import MemoryBudget
from sidecar.core.grants import Quota
from sidecar.core.words import US_PER_S, Beat, Denied, Fleet, Granted, Presence, Unknown

QUOTA = Quota(1, 600_000_000)


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_second_claim_of_one_token_is_denied_and_the_first_replays(strategy: str) -> None:
    budget = MemoryBudget(strategy, QUOTA, lambda: 1_700_000_400_000_000)
    assert await budget.claim(claim("a")) == Granted(1, 1)
    assert isinstance(await budget.claim(claim("b")), Denied)
    assert await budget.claim(claim("a")) == Granted(1, 1, replayed=True)


async def test_time_is_asked_for_at_each_claim() -> None:
    times = iter([0, 600_000_000, 600_000_001])
    budget = MemoryBudget("log", QUOTA, lambda: next(times))
    assert await budget.claim(claim("a")) == Granted(1, 1)
    assert await budget.claim(claim("b")) == Denied("window", 1, 1, 0.000001)
    assert await budget.claim(claim("b")) == Granted(1, 1)


@pytest.mark.parametrize(
    ("presence", "fleet"),
    [
        (Presence.WELL, Fleet(alive=1, capacity=1)),
        (Presence.WANTS, Fleet(alive=1, wanting=1, capacity=1)),
        (Presence.DOWN, Fleet(alive=1, down=1, capacity=1)),
    ],
)
async def test_fleet_of_one_process_is_that_one(presence: Presence, fleet: Fleet) -> None:
    assert await MemoryBudget("log", QUOTA, lambda: 0).beat(beat("a", presence)) == fleet


async def test_nobody_goes_for_its_age_where_nobody_could_take_over() -> None:
    budget = MemoryBudget("log", QUOTA, lambda: 0)
    assert [await budget.retire(lease("a")), await budget.resign("a", "a's")] == [Unknown("alone")] * 2


async def test_there_is_nobody_to_hold_or_to_show() -> None:
    budget = MemoryBudget("log", QUOTA, lambda: 0)
    answers = [await budget.hold("", "ops", "a deploy", 60), await budget.release(""), await budget.roll()]
    assert answers == [Unknown("alone")] * 3
    await budget.aclose()


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(KeyError, match="lottery"):
        MemoryBudget("lottery", QUOTA, lambda: 0)


async def test_tokens_in_use_are_told_with_every_beat() -> None:
    budget = MemoryBudget("log", Quota(2, 600 * US_PER_S), lambda: 10**15)
    await budget.claim(claim("a"))
    fleet = await budget.beat(beat("a"))
    assert isinstance(fleet, Fleet)
    assert (fleet.used, fleet.capacity) == (1, 2)


@pytest.mark.parametrize(
    ("beats", "told"),
    [
        ([beat("a", Presence.DOWN, kind="redis"), beat("a", life="2")], [("a", "redis", 30.0)]),
        ([beat("a", Presence.DOWN, lease="h"), beat("a", life="2")], [("a", "", 30.0)]),
        ([*[beat("a", Presence.DOWN)] * 2, *[beat("a", Presence.STARTING, life="2")] * 2], [("a", "unknown", 60.0)]),
        ([beat("a", Presence.DOWN), beat("a"), beat("a", life="2")], []),
        ([beat("a", Presence.DOWN), beat("a", Presence.GONE)], []),
        ([beat("a"), beat("a", life="2")], []),
    ],
    ids=["culled", "retired", "told once", "up again", "gone", "restarted"],
)
async def test_replacement_goes_into_the_ledger(beats: list[Beat], told: list[tuple[str, str, float]]) -> None:
    now_s = 1_700_000_000
    budget = MemoryBudget("log", QUOTA, lambda: now_s * US_PER_S)
    for one in beats:
        await budget.beat(one)
        now_s += 30
    assert [(one.instance, one.kind, one.seconds) for one in await read(budget)] == told
