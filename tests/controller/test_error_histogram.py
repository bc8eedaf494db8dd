"""Sixty counts, one a minute, from a number that only grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.controller.error_histogram import MINUTE_S, MINUTES, ErrorHistogram


class Counted:
    """A histogram that began in minute ``minute``, when the count stood at ``total``."""

    def __init__(self, minute: int = 100, total: int = 1000) -> None:
        self.minute = minute
        self.total = total
        self.histogram = ErrorHistogram(lambda: self.total, lambda: self.minute * MINUTE_S)

    def at(self, minute: int, total: int) -> list[int]:
        """The counts of this minute; the count is read then."""
        self.minute, self.total = minute, total
        return self.histogram.counts()


@pytest.mark.parametrize(
    ("reads", "newest"),
    [
        ([(100, 1000)], [0, 0]),
        ([(100, 1004)], [0, 4]),
        ([(101, 1004)], [0, 4, 0]),
        ([(101, 1004), (102, 1010), (102, 1011)], [4, 6, 1]),
        ([(103, 1004), (103, 1005)], [4, 0, 0, 1]),
        ([(101, 1004), (101, 1009)], [4, 5]),
        ([(101, 1004), (99, 1009)], [4, 5]),
        ([(101, 990)], [0, 0]),
    ],
    ids=[
        "no error",
        "an error of the current minute",
        "one minute is over",
        "two minutes are over",
        "not read for three minutes: all is of the first",
        "read twice within a minute",
        "the clock steps back",
        "the count steps back",
    ],
)
def test_errors_count_for_their_minute(reads: list[tuple[int, int]], newest: list[int]) -> None:
    counted = Counted()
    counts = [counted.at(*read) for read in reads][-1]
    assert len(counts) == MINUTES
    assert counts[-len(newest) :] == newest
    assert sum(counts[: -len(newest)]) == 0


def test_after_an_hour_a_minute_is_forgotten() -> None:
    counted = Counted()
    counted.at(101, 1004)
    assert counted.at(159, 1004)[0] == 4
    assert sum(counted.at(160, 1004)) == 0


def test_after_a_long_sleep_nothing_is_left() -> None:
    counted = Counted()
    counted.at(101, 1004)
    counted.at(10**9, 2000)
    assert counted.at(10**9, 2001) == [0] * (MINUTES - 1) + [1]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=59))
def test_histogram_holds_all_errors_of_the_hour(errors: list[int]) -> None:
    counted = Counted(0, 7)
    for minute, count in enumerate(errors, start=1):
        counts = counted.at(minute, counted.total + count)
    assert counts[-len(errors) - 1 : -1] == errors
    assert sum(counts) == sum(errors)
