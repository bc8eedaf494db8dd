"""The counts of good and bad requests against a list of them, and what silence may not do."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from sidecar.core.measure.window import RequestResults

Step = tuple[int, int, int]
"""Second, requests that went well, requests that failed."""


class RequestCounts(NamedTuple):
    """What a window says."""

    requests: int = 0
    failed: int = 0
    consecutive: int = 0
    kept: int = 0


def counts(results: RequestResults) -> RequestCounts:
    return RequestCounts(results.requests, results.failed, results.consecutive, results.kept)


def told(*steps: Step, at: int) -> RequestCounts:
    outcomes = RequestResults(60, 0)
    for now_s, ok, failed in steps:
        outcomes.turn(now_s)
        outcomes.record(ok, failed)
    outcomes.turn(at)
    return counts(outcomes)


@pytest.mark.parametrize(
    ("steps", "at", "tally"),
    [
        pytest.param([], 0, RequestCounts(), id="nothing yet"),
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
    ],
)
def test_requests_are_tallied(steps: list[Step], at: int, tally: RequestCounts) -> None:
    assert told(*steps, at=at) == tally


def test_cleared_outcomes_begin_anew() -> None:
    outcomes = RequestResults(60, 0)
    outcomes.record(3, 2)
    outcomes.turn(10)
    outcomes.clear()
    assert counts(outcomes) == RequestCounts()
    outcomes.record(0, 1)
    assert counts(outcomes) == RequestCounts(1, 1, 1)


def test_clock_that_steps_back_loses_no_request_and_keeps_none_too_long() -> None:
    outcomes = RequestResults(60, 100)
    outcomes.record(0, 2)
    outcomes.turn(40)
    outcomes.record(0, 1)
    outcomes.turn(159)
    assert counts(outcomes) == RequestCounts(3, 3, 3)
    outcomes.turn(160)
    assert counts(outcomes) == RequestCounts()
