"""One suite over the bucket in memory and the one in a real Redis: told the same time, they answer alike.

With ``fixed`` in Redis the clock only goes forwards here: its windows are those of the caller's wall clock, wherever
that goes (the article's in-process counter does the same), while the twin stands still at its newest grant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.budget import Budget
from sidecar.budget.memory import MemoryBudget
from sidecar.budget.redis import RedisBudget
from sidecar.core.grants import Quota
from sidecar.core.words import Answer, Denied, Granted

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

S = 1_000_000
START_US = 1_700_000_400 * S  # begins a window of ten minutes
QUOTA = Quota(2, 600 * S)


@dataclass
class World:
    """One time for all: the twin's clock, the caller's wall clock, and the server's once it is told."""

    server: RedisServer | None = None
    now_us: int = START_US

    def go(self, now_us: int) -> None:
        self.now_us = now_us
        if self.server is not None:
            self.server.set_time(now_us / S)

    def local_time(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.now_us)

    def memory(self, strategy: str, quota: Quota) -> Budget:
        return MemoryBudget(strategy, quota, lambda: self.now_us)

    def redis(self, strategy: str, quota: Quota) -> Budget:
        assert self.server is not None
        return RedisBudget(
            self.server.url,
            strategy=strategy,
            quota=quota,
            prefix="{ha:default/app}",
            fixed_key="errorWatcher",
            timeout_s=5,
            local_time=self.local_time,
        )


def granted(used: int) -> Answer:
    return Granted(used, 2)


def replayed(used: int) -> Answer:
    return Granted(used, 2, replayed=True)


def denied(retry_after_s: float) -> Answer:
    return Denied("window", 2, 2, retry_after_s)


Row = tuple[float, str, Answer]
"""Seconds since the start, claim id, and the answer."""

LOG: dict[str, list[Row]] = {
    "two tokens, then none until the older one is more than a window old": [
        (0, "a", granted(1)),
        (100, "b", granted(2)),
        (200, "c", denied(400.000001)),
        (600, "c", denied(0.000001)),
        (600.000001, "c", granted(2)),
        (600.000001, "d", denied(100)),
    ],
    "a granted id is granted again and costs nothing": [
        (0, "a", granted(1)),
        (0, "a", replayed(1)),
        (0, "b", granted(2)),
        (1, "a", replayed(2)),
        (1, "c", denied(599.000001)),
    ],
    "a replay comes before any trimming, the last microsecond of the window included": [
        (0, "a", granted(1)),
        (600, "b", granted(2)),
        (600, "a", replayed(2)),
    ],
    "a grant that has left the window covers no cull any more": [
        (0, "a", granted(1)),
        (600.000001, "b", granted(1)),
        (600.000001, "c", granted(2)),
        (600.000001, "a", denied(600.000001)),
        (1200.000002, "a", granted(1)),
        (1200.000002, "a", replayed(1)),
    ],
    "a clock that steps back stands still at the newest grant": [
        (0, "a", granted(1)),
        (0, "b", granted(2)),
        (-3600, "c", denied(4200.000001)),
        (-3600, "a", replayed(2)),
        (600, "c", denied(0.000001)),
    ],
    "a grant while the clock is behind is dated by the newest": [
        (0, "a", granted(1)),
        (-300, "b", granted(2)),
        (599, "c", denied(1.000001)),
        (600.000001, "c", granted(1)),
    ],
}
PREVIOUS: dict[str, list[Row]] = {
    "the previous period counts by the share that still overlaps": [
        (599, "a", granted(1)),
        (599, "b", granted(2)),
        (599, "c", denied(301)),
        (600, "c", denied(300)),
        (899, "c", denied(1)),
        (900, "c", granted(2)),
        (900, "d", denied(300)),
        (1200, "d", granted(2)),
    ],
    "a replay costs nothing": [
        (0, "a", granted(1)),
        (0, "a", replayed(1)),
        (600, "a", replayed(1)),
        (750, "b", granted(2)),
    ],
    "a clock that steps back stands still at the newest grant": [
        (700, "a", granted(1)),
        (0, "b", granted(2)),
        (0, "c", denied(1500)),
    ],
}
FIXED: dict[str, list[Row]] = {
    "every window begins anew": [
        (599.999999, "a", granted(1)),
        (599.999999, "b", granted(2)),
        (599.999999, "c", denied(0.000001)),
        (600, "c", granted(1)),
        (600, "d", granted(2)),
        (600, "e", denied(600)),
        (600, "e", denied(600)),
    ],
    "a granted id is granted again, also in the next window, and costs nothing": [
        (599, "a", granted(1)),
        (599, "a", replayed(1)),
        (600, "a", replayed(0)),
        (600, "b", granted(1)),
        (601, "c", granted(2)),
        (601, "d", denied(599)),
        (601, "a", replayed(2)),
    ],
    "the counter that is used again an hour later is empty by then": [
        (0, "a", granted(1)),
        (599, "b", granted(2)),
        (599, "c", denied(1)),
        (3600, "d", granted(1)),
    ],
}
ROWS = [
    pytest.param(strategy, rows, id=f"{strategy}-{title}")
    for strategy, table in {"log": LOG, "previous": PREVIOUS, "fixed": FIXED}.items()
    for title, rows in table.items()
]


async def _answers(budget: Budget, world: World, rows: list[Row]) -> list[Row]:
    answers: list[Row] = []
    for at_s, claim_id, _ in rows:
        world.go(START_US + round(at_s * S))
        answers.append((at_s, claim_id, await budget.claim(claim_id)))
    await budget.aclose()
    return answers


def _rounded(rows: list[Row]) -> list[Row]:
    return [(at_s, claim_id, _to_the_microsecond(answer)) for at_s, claim_id, answer in rows]


def _to_the_microsecond(answer: Answer) -> Answer:
    if isinstance(answer, Denied):
        return Denied(answer.reason, answer.used, answer.capacity, round(answer.retry_after_s, 6))
    return answer


@pytest.mark.parametrize(("strategy", "rows"), ROWS)
async def test_rows_in_memory(strategy: str, rows: list[Row]) -> None:
    world = World()
    answers = await _answers(world.memory(strategy, QUOTA), world, rows)
    assert _rounded(answers) == _rounded(rows)


@pytest.mark.parametrize(("strategy", "rows"), ROWS)
async def test_rows_in_redis(strategy: str, rows: list[Row], faketime_redis: RedisServer) -> None:
    world = World(faketime_redis)
    answers = await _answers(world.redis(strategy, QUOTA), world, rows)
    assert _rounded(answers) == _rounded(rows)


@pytest.fixture
def world(faketime_redis: RedisServer) -> World:
    return World(faketime_redis)


WINDOWS_US = {"log": [600 * S, 7 * S + 3, 1], "previous": [600 * S, 7 * S + 3, 2], "fixed": [600 * S, 60 * S, S]}


@st.composite
def schedules(draw: st.DrawFn, strategy: str) -> tuple[Quota, list[tuple[int, str]]]:
    """A quota, and steps of (microseconds to move the clock by, claim id)."""
    window_us = draw(st.sampled_from(WINDOWS_US[strategy]))
    quota = Quota(draw(st.integers(1, 4)), window_us)
    edges = [0, 0, 0, 1, window_us - 1, window_us, window_us + 1, window_us // 2, 2 * window_us, 2 * window_us + 1]
    forwards = st.one_of(st.sampled_from(edges), st.integers(0, window_us // 3), st.integers(0, 5 * window_us // 2))
    steps = forwards if strategy == "fixed" else st.one_of(forwards, forwards, forwards.map(lambda step: -step))
    ids = st.sampled_from("abcdefghi")
    return quota, draw(st.lists(st.tuples(steps, ids), min_size=1, max_size=25))


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
@given(data=st.data())
@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_twins_answer_any_schedule_alike(strategy: str, world: World, data: Any) -> None:
    quota, steps = data.draw(schedules(strategy))
    assert world.server is not None
    world.server.cli("FLUSHALL")
    world.go(START_US)
    memory, redis = world.memory(strategy, quota), world.redis(strategy, quota)
    for step_us, claim_id in steps:
        world.go(world.now_us + step_us)
        in_memory, in_redis = await memory.claim(claim_id), await redis.claim(claim_id)
        assert _to_the_microsecond(in_redis) == _to_the_microsecond(in_memory)
    await redis.aclose()
