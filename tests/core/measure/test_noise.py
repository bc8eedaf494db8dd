"""How often chance alone reaches a limit: against counted arrivals, and the numbers that the documents name."""

from __future__ import annotations

from collections import deque
from decimal import Decimal, getcontext, localcontext
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.measure.noise import (
    CHANCE,
    MONTH_S,
    least_limit,
    most_errors,
    quantile,
    reaches_per_month,
    share_of_windows,
)

# -- the quantile ---------------------------------------------------------------------------------------------

TABLE = {
    0.0: 1,
    5e-324: 1,
    9.9e-8: 1,
    1.1e-7: 2,
    0.001: 3,
    0.01: 4,
    0.1: 5,
    0.25: 7,
    0.5: 8,
    1.0: 11,
    1.2: 11,
    2.0: 14,
    3.0: 17,
    5.0: 21,
    10.0: 31,
    50.0: 92,
    100.0: 157,
    1_000.0: 1_170,
    10_000.0: 10_525,
    100_000.0: 101_650,
    1_000_000.0: 1_005_205,
}
"""Summed term by term with 60 digits."""


@pytest.mark.parametrize(("mean", "least"), TABLE.items(), ids=str)
def test_quantile_is_the_least_number_that_chance_does_not_give(mean: float, least: int) -> None:
    assert quantile(mean) == least


def exactly(mean: float) -> int:
    with localcontext(getcontext()) as context:
        context.prec = 50
        term, below, k = (-Decimal(mean)).exp(), Decimal(0), 0
        while 1 - below >= Decimal(repr(CHANCE)):
            below, k = below + term, k + 1
            term = term * Decimal(mean) / k
        return k


@given(st.floats(-9, 2.7).map(lambda power: 10.0**power))
def test_quantile_is_that_of_the_sum(mean: float) -> None:
    assert quantile(mean) == exactly(mean)


# -- how often chance reaches a limit --------------------------------------------------------------------------


def counted(usual: float, limit: int, window_s: float, for_s: float) -> int:
    """How often errors that come at random reach the limit, counted one by one."""
    rng, recent, at, reached = Random(7), deque[float](), 0.0, 0
    while (at := at + rng.expovariate(usual / window_s)) < for_s:
        while recent and recent[0] <= at - window_s:
            recent.popleft()
        recent.append(at)
        reached += len(recent) == limit
    return reached


@pytest.mark.parametrize(("usual", "limit"), [(0.5, 3), (3.0, 5), (3.0, 9), (8.0, 14)])
def test_limit_is_reached_as_often_as_counted(usual: float, limit: int) -> None:
    for_s = 2_000_000
    expected = reaches_per_month(usual, limit, 60, 1) * for_s / MONTH_S
    assert counted(usual, limit, 60, for_s) == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize(
    ("usual", "containers", "least"), [(0.0, 50, 1), (0.2, 50, 6), (3.0, 50, 17), (3.0, 200, 18), (300.0, 200, 410)]
)
def test_least_limit_is_reached_less_than_once_a_month(usual: float, containers: int, least: int) -> None:
    assert least_limit(usual, 60, containers) == least
    assert reaches_per_month(usual, least, 60, containers) < 1
    if usual:
        assert reaches_per_month(usual, least - 1, 60, containers) >= 1


@pytest.mark.parametrize(("usual", "limit", "part"), [(0.0, 1, 0.0), (3.0, 0, 1.0), (3.0, 5, 0.1847), (3.0, 1, 0.9502)])
def test_share_of_windows(usual: float, limit: int, part: float) -> None:
    assert share_of_windows(usual, limit) == pytest.approx(part, abs=1e-4)


@pytest.mark.parametrize("seen", [0, 1, 2, 10, 100, 1000])
def test_bound_of_what_was_seen_is_one_of_95_percent_and_no_looser_than_it_has_to_be(seen: int) -> None:
    """If the bound were the mean, as few as these would come with a chance of less than 5 %, but not much less."""
    assert 0.02 < 1 - share_of_windows(most_errors(seen), seen + 1) < 0.051
