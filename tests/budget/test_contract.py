"""One suite over all buckets, in memory and in a real Redis: told the same time, they answer alike.

Here is what the window alone decides, which the bucket of one process knows as well. With ``fixed`` in Redis the clock
only goes forwards: its windows are those of the caller's wall clock, wherever that goes (the article's in-process
counter does the same), while the twins stand still at their newest grant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.claims import WINDOW_ONLY, S, bare, claim
from harness.twins import START_US, World
from sidecar.budget import Budget
from sidecar.budget.memory import MemoryBudget
from sidecar.core.grants import Quota
from sidecar.core.terms import Share, Terms
from sidecar.core.words import Answer, Denied, Granted

TWO: Final = replace(WINDOW_ONLY, capacity=Share(2))


def in_memory(world: World, terms: Terms) -> MemoryBudget:
    quota = Quota(terms.capacity.amount, terms.window_us)
    return MemoryBudget(terms.strategy, quota, lambda: world.now_us, terms.spacing_us)


def granted(used: int) -> Answer:
    return Granted(used, 2)


def replayed(used: int) -> Answer:
    return Granted(used, 2, replayed=True)


def denied(retry_after_s: float, reason: str = "window", used: int = 2) -> Answer:
    return Denied(reason, used, 2, retry_after_s)


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
SPACED: dict[str, list[Row]] = {
    "between two grants lies the spacing, to the microsecond, and a replay asks for none": [
        (0, "a", granted(1)),
        (0, "b", denied(30, "spacing", 1)),
        (29.999999, "b", denied(0.000001, "spacing", 1)),
        (29.999999, "a", replayed(1)),
        (59.999998, "b", denied(0.000001, "spacing", 1)),
        (59.999999, "b", granted(2)),
        (60, "c", denied(29.999999, "spacing")),
        (89.999999, "c", denied(540.000001)),
    ],
}
ROWS = [
    pytest.param(replace(TWO, strategy=strategy, spacing_us=spacing_s * S), rows, id=f"{strategy}-{title}")
    for strategy, spacing_s, table in (
        ("log", 0, LOG),
        ("log", 30, SPACED),
        ("previous", 0, PREVIOUS),
        ("fixed", 0, FIXED),
    )
    for title, rows in table.items()
]


async def _answers(budget: Budget, world: World, rows: list[Row]) -> list[Row]:
    answers: list[Row] = []
    for at_s, name, _ in rows:
        world.go(START_US + round(at_s * S))
        answers.append((at_s, name, bare(await budget.claim(claim(name)))))
    await budget.aclose()
    return answers


@pytest.mark.parametrize(("terms", "rows"), ROWS)
async def test_rows_in_one_process(terms: Terms, rows: list[Row]) -> None:
    world = World()
    assert await _answers(in_memory(world, terms), world, rows) == rows


@pytest.mark.parametrize(("terms", "rows"), ROWS)
async def test_rows_of_the_twin(terms: Terms, rows: list[Row]) -> None:
    world = World()
    assert await _answers(world.twin(terms), world, rows) == rows


@pytest.mark.parametrize(("terms", "rows"), ROWS)
async def test_rows_in_redis(terms: Terms, rows: list[Row], world: World) -> None:
    assert await _answers(world.redis(terms), world, rows) == rows


WINDOWS_US = {"log": [600 * S, 7 * S + 3, 1], "previous": [600 * S, 7 * S + 3, 2], "fixed": [600 * S, 60 * S, S]}


@st.composite
def schedules(draw: st.DrawFn, strategy: str) -> tuple[Terms, list[tuple[int, str]]]:
    """Terms, and steps of (microseconds to move the clock by, name of a container)."""
    window_us = draw(st.sampled_from(WINDOWS_US[strategy]))
    terms = replace(WINDOW_ONLY, strategy=strategy, capacity=Share(draw(st.integers(1, 4))), window_us=window_us)
    edges = [0, 0, 0, 1, window_us - 1, window_us, window_us + 1, window_us // 2, 2 * window_us, 2 * window_us + 1]
    forwards = st.one_of(st.sampled_from(edges), st.integers(0, window_us // 3), st.integers(0, 5 * window_us // 2))
    steps = forwards if strategy == "fixed" else st.one_of(forwards, forwards, forwards.map(lambda step: -step))
    names = st.sampled_from("abcdefghi")
    return terms, draw(st.lists(st.tuples(steps, names), min_size=1, max_size=25))


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
@given(data=st.data())
@settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_any_schedule_is_answered_alike(strategy: str, world: World, data: Any) -> None:
    terms, steps = data.draw(schedules(strategy))
    world.forget()
    world.go(START_US)
    memory, twin, redis = in_memory(world, terms), world.twin(terms), world.redis(terms)
    for step_us, name in steps:
        world.go(world.now_us + step_us)
        in_redis, in_twin = await redis.claim(claim(name)), await twin.claim(claim(name))
        assert in_redis == in_twin
        assert bare(in_redis) == await memory.claim(claim(name))
    await redis.aclose()
