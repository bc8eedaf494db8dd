"""How often chance alone reaches a limit: against counted arrivals, and the numbers that the documents name."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from sidecar.core.measure.noise import MONTH_S, least_limit, most_errors, reaches_per_month, share_of_windows
from sidecar.core.measure.outlier import quantile


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


def test_least_limit_is_near_to_the_one_that_the_sidecars_use() -> None:
    assert abs(least_limit(3.0, 60, 50) - quantile(3.0)) <= 1


@pytest.mark.parametrize(("usual", "limit", "part"), [(0.0, 1, 0.0), (3.0, 0, 1.0), (3.0, 5, 0.1847), (3.0, 1, 0.9502)])
def test_share_of_windows(usual: float, limit: int, part: float) -> None:
    assert share_of_windows(usual, limit) == pytest.approx(part, abs=1e-4)


@pytest.mark.parametrize("seen", [0, 1, 2, 10, 100, 1000])
def test_bound_of_what_was_seen_is_one_of_95_percent_and_no_looser_than_it_has_to_be(seen: int) -> None:
    """If the bound were the mean, as few as these would come with a chance of less than 5 %, but not much less."""
    assert 0.02 < 1 - share_of_windows(most_errors(seen), seen + 1) < 0.051
