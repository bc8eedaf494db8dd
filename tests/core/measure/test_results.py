"""The counts of good and bad requests against a list of them, and what silence may not do."""

from __future__ import annotations

import pytest

from sidecar.core.measure.results import RequestCounts, RequestResults

YEAR_S = 365 * 86_400

Operation = tuple[int, int] | int | None
"""Requests that went well and that failed, a turn by that many seconds, or None: clear."""


Step = tuple[int, int, int]
"""Second, requests that went well, requests that failed."""


def told(*steps: Step, at: int, seconds: int = 60) -> RequestCounts:
    outcomes = RequestResults(seconds, 0)
    for now_s, ok, failed in steps:
        outcomes.turn(now_s)
        outcomes.record(ok, failed)
    outcomes.turn(at)
    return outcomes.counts()


@pytest.mark.parametrize(
    ("steps", "at", "tally"),
    [
        pytest.param([], 0, RequestCounts(), id="nothing yet"),
        pytest.param([(0, 0, 0)], 0, RequestCounts(), id="a record of nothing"),
        pytest.param([(0, 3, 2)], 0, RequestCounts(5, 2, 0), id="good and bad"),
        pytest.param([(0, 3, 2)], 59, RequestCounts(5, 2, 0), id="to the end of the window"),
        pytest.param([(0, 3, 2)], 60, RequestCounts(), id="and no longer"),
        pytest.param([(0, 0, 2), (30, 0, 3)], 30, RequestCounts(5, 5, 5), id="failures in a row"),
        pytest.param([(0, 0, 2), (5, 1, 0), (9, 0, 3)], 9, RequestCounts(6, 5, 3), id="a success ends the row"),
        pytest.param([(0, 0, 2), (5, 1, 9)], 5, RequestCounts(12, 11, 0), id="a success in the same message ends it"),
        pytest.param([(0, 0, 2), (50, 0, 1)], 60, RequestCounts(1, 1, 3), id="a row reaches back beyond the window"),
        pytest.param([(0, 0, 2), (60, 0, 1)], 60, RequestCounts(1, 1, 1), id="unless the window was empty between"),
        pytest.param([(0, 30, 0), (9, 0, 20)], 59, RequestCounts(50, 20, 20), id="both within the window"),
        pytest.param(
            [(0, 30, 0), (9, 0, 20)], 60, RequestCounts(20, 20, 20, kept=30), id="silence does not forget successes"
        ),
        pytest.param(
            [(0, 30, 0), (9, 0, 20)], 68, RequestCounts(20, 20, 20, kept=30), id="as long as there are failures"
        ),
        pytest.param([(0, 30, 0), (9, 0, 20)], 69, RequestCounts(), id="and then all is over"),
        pytest.param(
            [(0, 30, 0), (9, 0, 20), (60, 0, 1)], 60, RequestCounts(21, 21, 21), id="a request does forget them"
        ),
        pytest.param([(0, 30, 0), (9, 0, 20), (60, 1, 0)], 60, RequestCounts(21, 20, 0), id="a good one too"),
        pytest.param(
            [(0, 30, 0), (9, 0, 20), (60, 0, 0)], 60, RequestCounts(20, 20, 20, 30), id="a record of nothing does not"
        ),
    ],
)
def test_requests_are_tallied(steps: list[Step], at: int, tally: RequestCounts) -> None:
    assert told(*steps, at=at) == tally


def test_cleared_outcomes_begin_anew_and_go_on_counting_ever() -> None:
    outcomes = RequestResults(60, 0)
    outcomes.record(3, 2)
    outcomes.turn(10)
    outcomes.clear()
    assert outcomes.counts() == RequestCounts()
    outcomes.record(0, 1)
    assert outcomes.counts() == RequestCounts(1, 1, 1)
    assert outcomes.ever() == {"ok": 3, "failed": 3}


def test_clock_that_steps_back_loses_no_request_and_keeps_none_too_long() -> None:
    outcomes = RequestResults(60, 100)
    outcomes.record(0, 2)
    outcomes.turn(40)
    outcomes.record(0, 1)
    outcomes.turn(159)
    assert outcomes.counts() == RequestCounts(3, 3, 3)
    outcomes.turn(160)
    assert outcomes.counts() == RequestCounts()
