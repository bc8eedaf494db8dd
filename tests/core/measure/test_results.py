"""The counts of good and bad requests against a list of them, and what silence may not do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.measure.results import RequestCounts, RequestResults

YEAR_S = 365 * 86_400

Operation = tuple[int, int] | int | None
"""Requests that went well and that failed, a turn by that many seconds, or None: clear."""


@dataclass
class Naive:
    """What is claimed: every message of results with its second, counted anew on each question."""

    seconds: int
    now_s: int
    results: list[tuple[int, int, int]] = field(default_factory=list)

    def apply(self, operation: Operation) -> None:
        match operation:
            case None:
                self.results = []
            case int():
                self._pass(operation)
            case 0, 0:
                pass
            case ok, failed:
                self.results.append((self.now_s, ok, failed))

    def _pass(self, seconds: int) -> None:
        self.now_s = max(self.now_s, self.now_s + seconds)
        if not self._since(self.now_s):
            self.results = []

    def _since(self, end_s: int) -> list[tuple[int, int]]:
        return [(ok, failed) for second, ok, failed in self.results if second > end_s - self.seconds]

    def counts(self) -> RequestCounts:
        counted = self._since(self.now_s)
        if not counted:
            return RequestCounts()
        ok, failed = (sum(numbers) for numbers in zip(*counted, strict=True))
        weighing = sum(well for well, _ in self._since(self.results[-1][0]))
        return RequestCounts(ok + failed, failed, self._in_a_row(), weighing - ok)

    def _in_a_row(self) -> int:
        row = 0
        for _, ok, failed in reversed(self.results):
            if ok:
                break
            row += failed
        return row


def operations(seconds: int) -> st.SearchStrategy[list[Operation]]:
    few = st.integers(0, 3)
    edges = st.sampled_from([0, 1, seconds - 1, seconds, seconds + 1, -1, -seconds, YEAR_S])
    turns = edges | st.integers(0, seconds)
    return st.lists(st.one_of(st.tuples(few, few), st.tuples(few, few), turns, turns, st.none()), max_size=40)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seconds=st.sampled_from([1, 2, 5, 60]), start=st.integers(0, 10**9))
def test_tally_agrees_with_a_list_of_results(data: st.DataObject, seconds: int, start: int) -> None:
    outcomes, naive = RequestResults(seconds, start), Naive(seconds, start)
    for operation in data.draw(operations(seconds)):
        match operation:
            case None:
                outcomes.clear()
            case int():
                outcomes.turn(naive.now_s + operation)
            case ok, failed:
                outcomes.record(ok, failed)
        naive.apply(operation)
        assert outcomes.counts() == naive.counts()


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
