"""Times without a window that reaches the limit are not played: nobody could be a suspect then."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.backtest.busy_times import ALL_TIMES, busy_times, least_errors
from sidecar.backtest.past import Past
from sidecar.core.types import Policy

HOUR = 3600


def past(errors: dict[int, int], step_s: float = 1.0, until: int = 10 * HOUR) -> Past:
    found = Past("made", step_s)
    one = found.container("a")
    one.see(1, until)
    for step, count in errors.items():
        found.errors(one, "db").add(step, count)
    found.errors(one, "http").add(until, 1)
    found.finish()
    return found


@pytest.mark.parametrize(
    ("errors", "runs"),
    [
        ({5 * HOUR: 4}, []),
        ({5 * HOUR: 4, 5 * HOUR + 100: 4}, []),
        ({5 * HOUR: 5}, [(4 * HOUR - 60, 5 * HOUR + 660)]),
        ({5 * HOUR: 2, 5 * HOUR + 59: 3}, [(4 * HOUR - 1, 5 * HOUR + 719)]),
        ({5 * HOUR: 9, 6 * HOUR: 9}, [(4 * HOUR - 60, 6 * HOUR + 660)]),
        ({HOUR: 9, 9 * HOUR: 9}, [(-60, HOUR + 660), (8 * HOUR - 60, 9 * HOUR + 660)]),
    ],
)
def test_time_around_a_full_window_is_busy(errors: dict[int, int], runs: list[tuple[int, int]]) -> None:
    found = busy_times(past(errors), 5, 60.0)
    assert found.runs == runs
    for begin, end in runs:
        assert [found.has(step) for step in (begin - 1, begin, end, end + 1)] == [False, True, True, False]
        assert found.touches(end, end + 9)
        assert not found.touches(end + 1, end + 9)


def test_steps_longer_than_a_second_make_no_window_too_short() -> None:
    """An error may have been at any second of its step: a window may have those of one step more."""
    found = busy_times(past({100: 2, 104: 3}, step_s=15.0, until=4000), 5, 60.0)
    assert found.runs == [(104 - 244, 104 + 44)]


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        ({"error_limit": 8}, 8),
        ({"error_limit": 8, "kind_limits": (("db", 3), ("a", 0))}, 3),
        ({"error_limit": 0}, None),
    ],
)
def test_least_errors_of_a_suspect_are_those_of_the_least_limit(policy: dict[str, Any], least: int | None) -> None:
    assert least_errors(Policy(**policy)) == least
    assert ALL_TIMES.has(7)
    assert ALL_TIMES.touches(1, 2)
