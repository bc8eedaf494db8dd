"""The usual errors: of the fleet, of the app itself, and which of them an app's errors are compared with."""

from __future__ import annotations

import pytest

from harness.cases import cases
from sidecar.core.claims import Fleet
from sidecar.core.measure.outlier import effective_limit
from sidecar.core.measure.usual import (
    KEPT_MIN,
    MINUTE_S,
    NO_BASELINE,
    Baseline,
    FleetUsual,
    OwnUsual,
    Rates,
    Usual,
)
from sidecar.core.types import Evidence, Policy

# -- what the fleet usually has ---------------------------------------------------------------------------------

LIMIT = 5


def fleet(errors: int | None, ratio: float | None = None, *, suspect: int = 0) -> Fleet:
    return Fleet(10, suspect, median_errors=errors, median_ratio=ratio)


def after(*beats: tuple[float, Fleet]) -> FleetUsual:
    usual = FleetUsual()
    for at, told in beats:
        usual = usual.updated(told, at, LIMIT)
    return usual


def test_first_median_is_taken_as_it_is_and_later_ones_by_the_time_that_has_passed() -> None:
    assert after((100, fleet(4, 0.01))) == FleetUsual(4, 0.01, 4, 0.01, 100, 100)
    usual = after((100, fleet(0, 0.0)), (700, fleet(0, 0.0)), (1_300, fleet(4, 0.01)))
    assert (usual.errors, usual.ratio) == (4, 0.01)
    assert usual.smooth_errors == pytest.approx(4 - 4 / 2.718281828)
    assert usual.smooth_ratio == pytest.approx(0.01 - 0.01 / 2.718281828)


def test_fleet_that_starts_with_errors_learns_within_two_minutes_that_they_are_usual() -> None:
    """Its windows fill in the first minute: after the usual ten minutes alone 0.7 would be smoothed, and 7 too many."""
    filling = [(float(second), fleet(min(4, second // 15))) for second in range(0, 121, 5)]
    assert (after(*filling).smooth_errors or 0) > 2.5


@pytest.mark.parametrize("median", [LIMIT, 300])
def test_median_at_or_over_the_limit_is_compared_and_never_becomes_usual(median: int) -> None:
    usual = after((0, fleet(1)), *((count * 10, fleet(median)) for count in range(1, 360)))
    assert (usual.errors, usual.smooth_errors) == (median, 1)
    usual = usual.updated(fleet(0), 3_600, LIMIT)
    assert 0.98 < (usual.smooth_errors or 0) <= 1


@cases(
    "beats, limit",
    {
        "the others are well": ([(0.0, fleet(5, suspect=4))], 21),
        "half of the others are suspect": ([(0.0, fleet(5, suspect=5))], LIMIT),
        "it has seen the time before": ([(0.0, fleet(1)), (10.0, fleet(17, suspect=0))], LIMIT),
    },
)
def test_sidecar_that_has_just_started_believes_the_others_whether_the_errors_are_usual(
    beats: list[tuple[float, Fleet]], limit: int
) -> None:
    baseline = Baseline(after(*beats))
    assert effective_limit(LIMIT, holding(9), Policy(), baseline).limit == limit


# -- what the app itself usually has ----------------------------------------------------------------------------


def holding(errors: int, requests: int = 0, failed: int = 0) -> Evidence:
    return Evidence(60, errors, {"redis": errors}, requests=requests, failed=failed)


def sampled(errors: int, seconds: float, usual: OwnUsual | None = None, begin: float = 0.0) -> OwnUsual:
    usual = usual or OwnUsual(60)
    for check in range(int(seconds / 10)):
        usual.sample(holding(errors, 600), begin + 10 * check)
    return usual


def test_own_usual_is_the_mean_of_the_hour_before_the_window() -> None:
    assert OwnUsual(60).rates(0.0) == Rates()
    usual = sampled(4, 1_800)
    assert usual.rates(1_860) == pytest.approx((4.0, 4 / 600))
    sampled(0, 1_800, usual, 1_800)
    assert usual.rates(3_660) == pytest.approx((2.0, 2 / 600))
    assert usual.rates(5_399)[0] > 0 == usual.rates(5_460)[0]
    assert usual.rates(7_360) == (0.0, 0.0)


@pytest.mark.parametrize("window", [10, 60, 90, 600])
def test_errors_of_the_window_that_is_judged_are_not_usual(window: int) -> None:
    usual = sampled(4, window, OwnUsual(window), begin=600)
    assert usual.rates(600 + window) == (0.0, 0.0)
    assert usual.rates(600 + 2 * window + 2 * MINUTE_S)[0] == 4.0


def test_own_usual_is_bounded_and_forgets_with_the_life() -> None:
    usual = sampled(3, 86_400)
    assert len(usual._minutes) <= KEPT_MIN + 2
    usual.clear()
    assert usual.rates(86_400) == (0.0, 0.0)


# -- what errors are compared with ------------------------------------------------------------------------------

USUAL = FleetUsual(1, 0.002, 2.0, 0.001)


@cases(
    "baseline, evidence, usual",
    {
        "nothing known": (NO_BASELINE, holding(9), Usual(0.0, is_own=False)),
        "smoothed median": (Baseline(USUAL), holding(9), Usual(2.0, is_own=False)),
        "median now": (Baseline(USUAL._replace(errors=3)), holding(9), Usual(3, is_own=False)),
        "own past": (Baseline(USUAL, Rates(2.5, 0.0)), holding(9), Usual(2.5, is_own=True)),
        "own past of one without a fleet": (
            Baseline(FleetUsual(), Rates(2.5, 0.01)),
            holding(9, 100, 9),
            Usual(2.5, is_own=True),
        ),
        "its part of the requests": (
            Baseline(USUAL, Rates(2.5, 0.001)),
            holding(9, 6_000, 9),
            Usual(12.0, is_own=False),
        ),
        "of few requests few": (
            Baseline(USUAL._replace(smooth_ratio=0.003), Rates(9.0, 0.0)),
            holding(9, 100, 9),
            Usual(0.3, is_own=False),
        ),
        "its own ratio": (Baseline(USUAL, Rates(9.0, 0.01)), holding(9, 6_000, 9), Usual(60.0, is_own=True)),
        "requests that the errors were not counted among": (
            Baseline(USUAL),
            holding(9, 6_000, 0),
            Usual(2.0, is_own=False),
        ),
    },
)
def test_errors_are_compared_with_the_most_that_is_usual(baseline: Baseline, evidence: Evidence, usual: Usual) -> None:
    found = baseline.usual(evidence)
    assert found.errors == pytest.approx(usual.errors)
    assert found.is_own is usual.is_own
