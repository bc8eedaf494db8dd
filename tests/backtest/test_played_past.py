"""A past as the engine plays it: lives and counts in the order of time, from second 0."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sidecar.backtest.busy_times import BusyTimes
from sidecar.backtest.past import Past
from sidecar.backtest.played_past import PlayedPast
from sidecar.simulation.recording import Began, Counted, Departed

FIRST = 1_000


def past(step_s: float = 15.0) -> Past:
    """Container ``a`` for 100 steps with a restart at step 50, and ``b`` from step 40 to 60."""
    found = Past("made", step_s, offset_s=3.0)
    for name, first, last in (("a", 0, 99), ("b", 40, 60)):
        found.container(name).see(FIRST + first, FIRST + last)
    found.container("a").restarts.add(FIRST + 50)
    return found


def test_lives_begin_and_end_at_the_edges_of_their_steps() -> None:
    made = past()
    made.finish()
    played = PlayedPast(made)
    assert [*played] == [
        Began(0.0, "a", 3600.0),
        Began(40 * 15.0, "b", 0.0),
        Began(50 * 15.0, "a", 0.0),
        Departed(61 * 15.0, "b"),
    ]
    assert (played.for_s, played.most_containers) == (1500.0, 2)
    assert played.start_unix == 3.0 + (FIRST - 1) * 15.0
    assert [*played] == [*played], "a new iterator each time"


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (2, 2), (3, 3), (40, 3), (4_000_000_000, 3)])
def test_errors_of_a_step_are_spread_over_it(count: int, rows: int) -> None:
    made = past()
    made.errors(made.container("a"), "db").add(FIRST + 2, count)
    made.finish()
    counted = [row for row in PlayedPast(made) if isinstance(row, Counted)]
    assert sum(row.errors for row in counted) == count
    assert len(counted) == rows
    assert all(2 * 15 < row.at_s < 3 * 15 for row in counted)
    assert max(row.errors for row in counted) - min(row.errors for row in counted) <= 1
    assert {(row.instance, row.kind, row.requests) for row in counted} == {("a", "db", None)}


def test_rows_of_all_containers_ascend_and_requests_are_added_where_they_are_needed() -> None:
    made = past()
    for step in range(45, 55):
        made.errors(made.container("a"), "db").add(FIRST + step, 3)
        made.errors(made.container("b"), "http").add(FIRST + step, 1)
        made.container("a").requests.add(FIRST + step, 30)
    made.finish()
    rows = [*PlayedPast(made, with_requests=True)]
    assert all(one.at_s <= other.at_s for one, other in pairwise(rows))
    counted = [row for row in rows if isinstance(row, Counted)]
    assert sum(row.requests or 0 for row in counted) == 300
    assert sum(row.errors for row in counted) == 40
    assert all(row.requests == 10 for row in counted if row.requests is not None)


def test_requests_of_a_time_are_those_of_its_steps_and_parts_of_steps() -> None:
    """Ten requests in each step of 15 s: container ``a`` all the time, ``b`` from second 600 on."""
    made = past()
    for name, steps in (("a", range(100)), ("b", range(40, 61))):
        for step in steps:
            made.container(name).requests.add(FIRST + step, 10)
    made.finish()
    played = PlayedPast(made)
    assert played.requests_in([(0.0, 1500.0)]) == 1000 + 210
    assert played.requests_in([(30.0, 45.0)]) == 10
    assert played.requests_in([(33.0, 36.0), (36.0, 48.0)]) == 10
    assert played.requests_in([(592.5, 607.5)]) == 5 + 10
    assert played.requests_in([]) == 0


def test_only_busy_times_have_counts() -> None:
    made = past(step_s=1.0)
    errors = made.errors(made.container("a"), "db")
    for step in range(100):
        errors.add(FIRST + step, 1)
    made.finish()
    played = PlayedPast(made, busy=BusyTimes([(FIRST + 10, FIRST + 12), (FIRST + 30, FIRST + 30)]))
    assert [row.at_s for row in played if isinstance(row, Counted)] == [10.5, 11.5, 12.5, 30.5]
    assert sum(isinstance(row, Began) for row in played) == 3
