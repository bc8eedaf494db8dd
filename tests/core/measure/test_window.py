"""The one-second buckets against a list of timestamps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import cases
from sidecar.core.measure.window import OTHER, RequestResults, RollingCounts

YEAR_S = 365 * 86_400

Record = tuple[str, int]
Operation = Record | int | None
"""A record of (key, count), a turn by that many seconds, or None: clear."""


@dataclass
class Naive:
    """What the window claims to be: every event with its second, counted anew on each question."""

    seconds: int
    now_s: int
    max_keys: int
    names: set[str] = field(default_factory=set)
    all: Counter[str] = field(default_factory=Counter)
    events: list[tuple[int, str, int]] = field(default_factory=list)

    def record(self, key: str, count: int) -> None:
        if key not in self.names and len(self.names) >= self.max_keys:
            key = OTHER
        self.names.add(key)
        self.all[key] += count
        self.events.append((self.now_s, key, count))

    def turn(self, now_s: int) -> None:
        self.now_s = max(self.now_s, now_s)
        self.events = [event for event in self.events if event[0] > self.now_s - self.seconds]

    def clear(self) -> None:
        self.events = []

    def by_key(self) -> dict[str, int]:
        counts = Counter[str]()
        for _, key, count in self.events:
            counts[key] += count
        return dict(counts)

    def ages(self) -> list[int]:
        return sorted(self.now_s - second for second, _, _ in self.events)


def turns(seconds: int) -> st.SearchStrategy[int]:
    edges = st.sampled_from([0, 1, seconds - 1, seconds, seconds + 1, -1, -seconds, -YEAR_S, YEAR_S])
    return edges | st.integers(0, 3) | st.integers(-2 * seconds, 2 * seconds)


def operations(seconds: int) -> st.SearchStrategy[list[Operation]]:
    record = st.tuples(st.sampled_from(["redis", "http", "disk", "unknown", OTHER]), st.integers(1, 5))
    return st.lists(st.one_of(record, record, turns(seconds), turns(seconds), st.none()), max_size=40)


def apply(operation: Operation, window: RollingCounts | Naive, clock_s: int) -> int:
    match operation:
        case None:
            window.clear()
        case int():
            clock_s += operation
            window.turn(clock_s)
        case key, count:
            window.record(key, count)
    return clock_s


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seconds=st.sampled_from([1, 2, 3, 60]), max_keys=st.integers(0, 6), start=st.integers(-5, 10**9))
def test_window_agrees_with_a_list_of_timestamps(data: st.DataObject, seconds: int, max_keys: int, start: int) -> None:
    window, naive = RollingCounts(seconds, start, max_keys), Naive(seconds, start, max_keys)
    clock_s, ever = start, 0
    for operation in data.draw(operations(seconds)):
        apply(operation, window, clock_s)
        clock_s = apply(operation, naive, clock_s)
        ages = naive.ages()
        assert window.by_key() == naive.by_key()
        assert window.total == sum(window.by_key().values())
        assert window.newest_age_s() == (ages[0] if ages else None)
        assert window.ever() == naive.all
        assert sum(window.ever().values()) >= ever
        ever = sum(window.ever().values())


def entries(window: RollingCounts) -> int:
    buckets = [one.counts for one in window._past]
    return sum(map(len, [*buckets, window.current, window._closed, window._ever]))


def test_flood_of_made_up_kinds_ends_in_other() -> None:
    window = RollingCounts(10, 0, max_keys=32)
    window.record("redis", 7)
    for made_up in range(20_000):
        window.record(f"kind-{made_up}")
        window.turn(made_up // 500)
    assert entries(window) <= (10 + 2) * (32 + 1)
    assert len(window.ever()) == 33
    assert window.ever()["redis"] == 7
    assert window.ever()[OTHER] == 20_000 - 31
    assert sum(window.ever().values()) == 20_007


@pytest.mark.parametrize("seconds", [0, -1])
def test_window_without_a_second_is_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="at least one second"):
        RollingCounts(seconds, 0)


@pytest.mark.parametrize(
    ("limit", "leaving"),
    [(10, (0, 0)), (9, (2, 50)), (8, (2, 50)), (7, (7, 57)), (3, (7, 57)), (2, (9, 60)), (1, (9, 60))],
)
def test_so_many_leave_in_so_many_seconds_until_the_window_is_below_a_limit(
    limit: int, leaving: tuple[int, int]
) -> None:
    counts = RollingCounts(60, 100)
    for second, errors in ((100, 2), (107, 5), (110, 2)):
        counts.turn(second)
        counts.record("a", errors)
    assert counts.leaving(limit) == leaving
    counts.turn(110 + leaving[1])
    assert counts.total < limit


# -- the counts of good and bad requests against a list of them, and what silence may not do -------------------------


Ended = tuple[int, int, int]
"""Second, requests that went well, requests that failed."""


class RequestCounts(NamedTuple):
    """What a window says."""

    requests: int = 0
    failed: int = 0
    kept: int = 0


def counts(results: RequestResults) -> RequestCounts:
    return RequestCounts(results.requests, results.failed, results.kept)


def told(*steps: Ended, at: int) -> RequestCounts:
    outcomes = RequestResults(60, 0)
    for now_s, ok, failed in steps:
        outcomes.turn(now_s)
        outcomes.record(ok, failed)
    outcomes.turn(at)
    return counts(outcomes)


@cases(
    "steps, at, tally",
    {
        "nothing yet": ([], 0, RequestCounts()),
        "good and bad": ([(0, 3, 2)], 0, RequestCounts(5, 2)),
        "to the end of the window": ([(0, 3, 2)], 59, RequestCounts(5, 2)),
        "and no longer": ([(0, 3, 2)], 60, RequestCounts()),
        "both within the window": ([(0, 30, 0), (9, 0, 20)], 59, RequestCounts(50, 20)),
        "silence does not forget successes": ([(0, 30, 0), (9, 0, 20)], 60, RequestCounts(20, 20, kept=30)),
        "as long as there are failures": ([(0, 30, 0), (9, 0, 20)], 68, RequestCounts(20, 20, kept=30)),
        "and then all is over": ([(0, 30, 0), (9, 0, 20)], 69, RequestCounts()),
        "a request does forget them": ([(0, 30, 0), (9, 0, 20), (60, 0, 1)], 60, RequestCounts(21, 21)),
        "a good one too": ([(0, 30, 0), (9, 0, 20), (60, 1, 0)], 60, RequestCounts(21, 20)),
    },
)
def test_requests_are_tallied(steps: list[Ended], at: int, tally: RequestCounts) -> None:
    assert told(*steps, at=at) == tally


def test_cleared_outcomes_begin_anew() -> None:
    outcomes = RequestResults(60, 0)
    outcomes.record(3, 2)
    outcomes.turn(10)
    outcomes.clear()
    assert counts(outcomes) == RequestCounts()
    outcomes.record(0, 1)
    assert counts(outcomes) == RequestCounts(1, 1)


def test_clock_that_steps_back_loses_no_request_and_keeps_none_too_long() -> None:
    outcomes = RequestResults(60, 100)
    outcomes.record(0, 2)
    outcomes.turn(40)
    outcomes.record(0, 1)
    outcomes.turn(159)
    assert counts(outcomes) == RequestCounts(3, 3)
    outcomes.turn(160)
    assert counts(outcomes) == RequestCounts()
