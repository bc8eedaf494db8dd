"""A cause recurs from its third day of culls within seven, until seven days have passed without one."""

from __future__ import annotations

from typing import Final

import pytest

from harness.rule_fleet import RuleFleet, fleet_of_size, names, word
from sidecar.core.beats import Fleet
from sidecar.core.claims import MANUAL, Granted, Presence
from sidecar.core.fleet.records import Recurrence
from sidecar.core.fleet.recurrence import DAY_US, MOST_CAUSES, culled, recurring, replaced
from sidecar.core.types import US_PER_S

NOON_US: Final = 20_000 * DAY_US + DAY_US // 2
HOUR: Final = 1 / 24


def series(*days: float, cause: str = "redis") -> dict[str, Recurrence]:
    """The rows after a cull at each of these days, counted from a noon in UTC."""
    rows: dict[str, Recurrence] = {}
    for day in days:
        rows = dict(culled(rows, cause, at(day)))
    return rows


def at(day: float) -> int:
    return NOON_US + round(day * DAY_US)


@pytest.mark.parametrize(
    ("days", "now", "expected"),
    [
        pytest.param((), 0, None, id="no cull"),
        pytest.param((0, 0, 0, 0), 0, None, id="many culls of one day"),
        pytest.param((0, 1), 1, None, id="two days"),
        pytest.param((0, 11 * HOUR, 12 * HOUR, 35 * HOUR), 2, None, id="two days across midnight"),
        pytest.param((0, 12 * HOUR, 36 * HOUR), 2, (3, 3, 1.5), id="three days in UTC, 36 hours apart"),
        pytest.param((0, 1, 2), 2, (3, 3, 2), id="three days"),
        pytest.param((0, 0, 3, 6), 6, (4, 3, 6), id="first and last of seven days"),
        pytest.param((0, 3, 7), 7, None, id="the third is a week after the first"),
        pytest.param((0, 3, 7, 8), 8, (4, 4, 8), id="any seven days, not the first"),
        pytest.param((0, 1, 2), 8.4, (3, 3, 2), id="still after six days without a cull"),
        pytest.param((0, 1, 2), 9, None, id="over after seven days without one"),
        pytest.param((0, 1, 2, 9), 9, None, id="another series has to come back first"),
        pytest.param((0, 1, 2, 9, 10, 11), 11, (3, 3, 11), id="it came back"),
        pytest.param((0, 3, 6, 9, 12), 12, (5, 5, 6), id="every third day is one series"),
        pytest.param((0, 6, 12, 18), 18, None, id="once a week or so is none"),
        pytest.param((0, 1, 2, 1), 2, (4, 3, 2), id="a clock that has stepped back"),
    ],
)
def test_cause_recurs(days: tuple[float, ...], now: float, expected: tuple[int, int, float] | None) -> None:
    """Expected: culls, days with culls, and the day from which on it recurs."""
    causes = recurring(series(*days), at(now))
    assert [(cause.culls, cause.days, cause.recurs) for cause in causes] == (
        [] if expected is None else [(*expected[:2], at(expected[2]) / US_PER_S)]
    )


def test_series_has_its_first_and_last_cull() -> None:
    (cause,) = recurring(series(0, 1, 2, 5), at(6))
    assert (cause.cause, cause.since, cause.last) == ("redis", at(0) / US_PER_S, at(5) / US_PER_S)


def test_replacements_add_up_to_the_time_out_of_service() -> None:
    rows = replaced(replaced(series(0, 1, 2), "redis", 30 * US_PER_S), "redis", 12 * US_PER_S)
    assert recurring(rows, at(2))[0].out_s == 42.0
    assert replaced(rows, "db", US_PER_S) == rows


def test_culls_by_order_are_no_bug() -> None:
    assert series(0, 1, 2, cause=MANUAL) == {}


def test_causes_are_bounded_and_the_longest_quiet_one_goes() -> None:
    rows = series(0, 1, 2)
    for number in range(MOST_CAUSES):
        rows = dict(culled(rows, f"cause-{number}", at(3)))
    assert len(rows) == MOST_CAUSES
    assert "redis" not in rows


def test_rows_that_are_over_make_room() -> None:
    assert [*culled(series(0), "db", at(7))] == ["db"]


def test_fleet_tells_of_a_cause_that_is_culled_on_three_days() -> None:
    it = fleet_of_size(4)
    told = [culled_once(it, name) for name in ("c00", "c01", "c02")]
    assert [[(cause.culls, cause.days) for cause in fleet.recurring] for fleet in told] == [[], [], [(3, 3)]]
    (cause,) = it.beat("c03").recurring
    assert cause.out_s == 3 * 40.0
    it.advance(7 * DAY_US // US_PER_S)
    assert it.beat("c03").recurring == ()


def test_claim_that_is_asked_again_is_one_cull() -> None:
    it = fleet_of_size(4)
    it.beat("c00", Presence.SUSPECT)
    assert [word(it.claim("c00")) for _ in range(3)] == ["granted"] * 3
    assert it.state.recurrences["redis"].culls == 1


def culled_once(it: RuleFleet, name: str) -> Fleet:
    """The answer to the beat of a container that goes down; it is replaced 40 s later, and then a day goes by."""
    it.advance_beating(60, *names(4))  # the store asks the fleet first, which was silent for a day
    it.beat(name, Presence.SUSPECT)
    assert isinstance(it.claim(name), Granted)
    told = it.beat(name, Presence.DOWN)
    it.advance(40)
    it.replaced(name)
    it.advance(DAY_US // US_PER_S - 100)
    return told
