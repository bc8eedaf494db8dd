"""The bucket in a real Redis: who gets a token, alone, at once, and beside the article's own code."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from harness.claims import ask
from sidecar.budget.redis import RedisBudget
from sidecar.core.terms import Share, Terms
from sidecar.core.words import Answer, Denied, Granted

if TYPE_CHECKING:
    from budget.conftest import OpenBudget
    from harness.redis_server import RedisServer

START_S = 1_700_000_400  # 22:20 UTC


def at(text: str) -> datetime:
    return datetime.strptime(text, "%H:%M:%S.%f").replace(tzinfo=UTC)


def words(answers: list[Answer]) -> Counter[str]:
    return Counter("replayed" if isinstance(a, Granted) and a.replayed else type(a).__name__ for a in answers)


async def claim_all(budgets: list[RedisBudget], ids: list[str]) -> list[Answer]:
    """All at the same time, dealt out over the budgets."""
    return await asyncio.gather(*(ask(budgets[n % len(budgets)], claim_id) for n, claim_id in enumerate(ids)))


async def count_as_the_article_does(url: str, key: str, limit: int = 10) -> bool:
    """What code in process does: MULTI, INCR, EXPIRE, EXEC, and down if the count is within the limit."""
    async with Redis.from_url(url, protocol=2) as client, client.pipeline(transaction=True) as pipe:
        pipe.incr(key)
        pipe.expire(key, 600)
        count, _ = await pipe.execute()
    return bool(count <= limit)


# -- many at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_of_200_claims_at_once_exactly_the_capacity_is_granted(
    strategy: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    noon = at("12:00:00.000000")
    budgets = [open_budget(redis_server.url, strategy=strategy, local_time=lambda: noon) for _ in range(8)]
    ids = [f"claim-{n}" for n in range(200)]
    first = await claim_all(budgets, ids)
    assert words(first) == {"Granted": 10, "Denied": 190}
    again = await claim_all(budgets, ids)
    assert words(again) == {"replayed": 10, "Denied": 190}
    assert [isinstance(a, Granted) for a in first] == [isinstance(a, Granted) for a in again]


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_one_id_claimed_from_everywhere_at_once_costs_one_token(
    strategy: str, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    noon = at("12:00:00.000000")
    budgets = [open_budget(redis_server.url, strategy=strategy, local_time=lambda: noon) for _ in range(8)]
    answers = await claim_all(budgets, ["same"] * 200)
    assert words(answers) == {"Granted": 1, "replayed": 199}
    assert {a.used for a in answers if isinstance(a, Granted)} == {1}


# -- the article --------------------------------------------------------------------------------------------


async def test_in_process_code_and_ours_share_one_bucket_of_ten(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    local = at("09:35:12.000000")
    budget = open_budget(redis_server.url, strategy="fixed", local_time=lambda: local)
    outcomes = []
    for n in range(8):
        outcomes.append(await count_as_the_article_does(redis_server.url, "errorWatcher:3"))
        outcomes.append(isinstance(await ask(budget, f"claim-{n}"), Granted))
    assert outcomes == [True] * 10 + [False] * 6
    assert redis_server.cli("GET", "errorWatcher:3") == "16"


async def _scenario(server: RedisServer, budget: RedisBudget, local: list[datetime]) -> list[int]:
    """Fifteen containers go bad in the last second of a ten-minute window, fifteen in the first of the next."""
    granted = []
    for second in (START_S - 1, START_S):
        server.set_time(second)
        local[0] = datetime.fromtimestamp(second, UTC)
        answers = [await ask(budget, f"{second}-{n}") for n in range(15)]
        granted.append(words(answers)["Granted"])
    return granted


@pytest.mark.parametrize(
    ("strategy", "granted"),
    [("fixed", [10, 10]), ("log", [10, 0]), ("previous", [10, 0])],
)
async def test_article_scenario_on_both_sides_of_a_boundary(
    strategy: str, granted: list[int], faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    local = [at("00:00:00.000000")]
    budget = open_budget(faketime_redis.url, strategy=strategy, local_time=lambda: local[0])
    assert await _scenario(faketime_redis, budget, local) == granted


@pytest.mark.parametrize(
    "row",
    [
        ("12:00:00.000000", 600, "errorWatcher:0", 600),
        ("12:09:59.999999", 600, "errorWatcher:0", 0.000001),
        ("12:10:00.000000", 600, "errorWatcher:1", 600),
        ("23:59:30.500000", 600, "errorWatcher:5", 29.5),
        ("12:29:00.000000", 1800, "errorWatcher:0", 60),
        ("12:59:00.000000", 60, "errorWatcher:59", 60),
    ],
)
async def test_fixed_window_is_numbered_within_the_local_hour(
    row: tuple[str, int, str, float], redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    local, window_s, key, retry_after_s = row
    numbers = {"capacity": Share(1), "window_us": window_s * 1_000_000}
    budget = open_budget(redis_server.url, strategy="fixed", **numbers, local_time=lambda: at(local))
    assert await ask(budget, "a") == Granted(1, 1)
    assert await ask(budget, "b") == Denied("window", 1, 1, retry_after_s)
    assert redis_server.cli("GET", key) == "2"
    assert window_s - 30 <= redis_server.cli("TTL", key) <= window_s


async def test_fixed_goes_by_the_local_clock_unless_told_otherwise(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    before = datetime.now().minute // 10  # noqa: DTZ005 - the local clock is the point
    await ask(open_budget(redis_server.url, strategy="fixed"), "a")
    after = datetime.now().minute // 10  # noqa: DTZ005 - as above
    assert redis_server.cli("EXISTS", f"errorWatcher:{before}", f"errorWatcher:{after}") >= 1


@pytest.mark.parametrize("window_s", [0.5, 7, 420, 3600, 7200])
def test_fixed_window_whose_counter_would_be_used_too_early_is_refused(window_s: float) -> None:
    with pytest.raises(ValueError, match="divide the hour"):
        RedisBudget(
            "redis://127.0.0.1",
            terms=Terms(strategy="fixed", window_us=round(window_s * 1_000_000)),
            prefix="{x}",
            fixed_key="x",
            timeout_s=1,
        )
