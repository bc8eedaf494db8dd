"""Sixty counts, one a minute, from a number that only grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.explain.hour_counts import MINUTES, Hour


def _hour(*turns: tuple[int, int]) -> Hour:
    """One that began in minute 100 with a count of 1000, and was turned so."""
    hour = Hour(100, 1000)
    for minute, ever in turns:
        hour.turn(minute, ever)
    return hour


@pytest.mark.parametrize(
    ("turns", "ever", "newest"),
    [
        ([], 1000, [0, 0]),
        ([], 1004, [0, 4]),
        ([(101, 1004)], 1004, [0, 4, 0]),
        ([(101, 1004), (102, 1010)], 1011, [4, 6, 1]),
        ([(103, 1004)], 1005, [4, 0, 0, 1]),
        ([(101, 1004), (101, 1009)], 1009, [4, 5]),
        ([(101, 1004), (99, 1009)], 1009, [4, 5]),
        ([(101, 990)], 990, [0, 0]),
    ],
    ids=[
        "nothing came",
        "of the minute that runs",
        "a minute is over",
        "two are",
        "nobody turned for three minutes: all is of the first",
        "turned twice within a minute",
        "the clock steps back",
        "the count was taken back",
    ],
)
def test_counts_are_of_their_minute(turns: list[tuple[int, int]], ever: int, newest: list[int]) -> None:
    counts = _hour(*turns).counts(ever)
    assert len(counts) == MINUTES
    assert counts[-len(newest) :] == newest
    assert sum(counts[: -len(newest)]) == 0


def test_after_an_hour_a_minute_is_forgotten() -> None:
    hour = _hour((101, 1004))
    hour.turn(159, 1004)
    assert hour.counts(1004)[0] == 4
    hour.turn(160, 1004)
    assert sum(hour.counts(1004)) == 0


def test_after_a_long_sleep_nothing_is_left() -> None:
    hour = _hour((101, 1004))
    hour.turn(10**9, 2000)
    assert hour.counts(2001) == [0] * (MINUTES - 1) + [1]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=59))
def test_hour_holds_all_that_came_within_it(came: list[int]) -> None:
    hour, ever = Hour(0, 7), 7
    for minute, count in enumerate(came, start=1):
        ever += count
        hour.turn(minute, ever)
    assert hour.counts(ever)[-len(came) - 1 : -1] == came
    assert sum(hour.counts(ever)) == sum(came)


@pytest.mark.parametrize(
    ("counts", "ever", "now", "newest"),
    [
        ([*range(MINUTES)], 500, 500, [57, 58, 59]),
        ([*range(MINUTES)], 500, 502, [57, 58, 61]),
        ([4, 5, 6], 500, 500, [0, 4, 5, 6]),
        ([6], 2, 2, [0, 6]),
        ([*range(3 * MINUTES)], 500, 500, [178, 179]),
    ],
    ids=["as it was", "more came", "of a younger one", "count began anew", "of a longer one"],
)
def test_hour_goes_on_where_another_ended(counts: list[int], ever: int, now: int, newest: list[int]) -> None:
    hour = _hour((130, 1004))
    hour.restore(200, counts, ever)
    shown = hour.counts(now)
    assert (len(shown), shown[-len(newest) :]) == (MINUTES, newest)
    hour.turn(201, now)
    assert hour.counts(now)[-2:] == [newest[-1], 0]
