"""The course of a run: bounded however long it is, with its peaks kept."""

from __future__ import annotations

import pickle

import pytest

from sidecar.simulation.timeline import FIRST_BIN_S, MOST_BINS, MOST_MOVES, Timeline, tokens

DAY_S = 86_400.0


def errors_of(timeline: Timeline) -> list[list[int]]:
    (one,) = timeline.containers(["web-1"])
    found: list[list[int]] = one["errors"]
    return found


def test_errors_of_a_short_run_are_counted_in_short_bins() -> None:
    timeline = Timeline()
    for at_s in (0.0, 7.4, 7.6, 100.0):
        timeline.reported(0, at_s, 2)
    assert (timeline.bin_s, errors_of(timeline)) == (FIRST_BIN_S, [[0, 4], [1, 2], [13, 2]])


def test_bins_of_a_day_are_minutes_with_their_sums() -> None:
    timeline = Timeline()
    for at_s in (1.0, 10.0, 59.0, 61.0, DAY_S - 1):
        timeline.reported(0, at_s, 1)
    assert (timeline.bin_s, errors_of(timeline)) == (60.0, [[0, 3], [1, 1], [MOST_BINS - 1, 1]])


def test_longer_bins_have_the_minute_with_most_errors() -> None:
    timeline = Timeline()
    for at_s, errors in ((0.0, 1), (70.0, 9), (80.0, 9), (30 * DAY_S - 1, 3), (30 * DAY_S - 0.5, 4)):
        timeline.reported(0, at_s, errors)
    assert (timeline.bin_s, errors_of(timeline)) == (1920.0, [[0, 18], [1349, 7]])


@pytest.mark.parametrize(
    ("later_s", "steps"),
    [(75.0, [[0.0, 0], [7.5, 80], [82.5, 100]]), (12 * DAY_S, [[0.0, 0], [960.0, 80], [1_037_760.0, 100]])],
    ids=["short bins", "long bins"],
)
def test_weight_of_a_bin_is_its_lowest_and_then_its_last(later_s: float, steps: list[list[float]]) -> None:
    timeline = Timeline()
    for at_s, percent in ((1.0, 50), (2.0, 0), (3.0, 80), (later_s, 100)):
        timeline.weighed(0, at_s, percent)
    (one,) = timeline.containers([])
    assert one["weight"] == [[0.0, 100], *steps]


@pytest.mark.site
def test_timeline_of_a_large_fleet_for_a_month_is_small() -> None:
    timeline = Timeline()
    for place in range(200):
        for hour in range(0, 30 * 24, 8):
            timeline.reported(place, hour * 3600.0, 1)
            timeline.weighed(place, hour * 3600.0, hour % 100)
        for number in range(2 * MOST_MOVES):
            timeline.moved(place, float(number), "up")
    assert len(timeline.containers([])[0]["state"]) == MOST_MOVES + 1
    assert len(pickle.dumps(timeline)) < 6_000_000


def test_tokens_are_in_use_for_a_window() -> None:
    used = [[0.0, 0.0], [5.0, 1], [10.0, 3], [25.0, 2], [30.0, 0], [100.0, 1], [120.0, 0]]
    assert tokens([5.0, 10.0, 10.0, 100.0], 20.0) == used
    assert tokens([], 20.0) == [[0.0, 0.0]]
