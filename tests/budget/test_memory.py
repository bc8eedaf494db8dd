from __future__ import annotations

import pytest

from harness.claims import beat, claim
from sidecar.budget.memory import MemoryBudget
from sidecar.core.grants import Quota
from sidecar.core.words import Denied, Fleet, Granted, Presence, Unknown

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
        (Presence.WELL, Fleet(alive=1)),
        (Presence.WANTS, Fleet(alive=1, wanting=1)),
        (Presence.DOWN, Fleet(alive=1, down=1)),
    ],
)
async def test_fleet_of_one_process_is_that_one(presence: Presence, fleet: Fleet) -> None:
    assert await MemoryBudget("log", QUOTA, lambda: 0).beat(beat("a", presence)) == fleet


async def test_there_is_nobody_to_hold_or_to_show() -> None:
    budget = MemoryBudget("log", QUOTA, lambda: 0)
    answers = [await budget.hold("", "ops", "a deploy", 60), await budget.release(""), await budget.roll()]
    assert answers == [Unknown("alone")] * 3
    await budget.aclose()


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(KeyError, match="lottery"):
        MemoryBudget("lottery", QUOTA, lambda: 0)
