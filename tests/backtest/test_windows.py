"""Which limit is set, and how often each would have been reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from sidecar.backtest import windows
from sidecar.backtest.windows import ErrorCounts, LimitFindings, PastError, judge, usual_errors
from sidecar.core.measure.noise import quantile

BEGIN = 1_700_000_040
"""The beginning of a window of 60 s."""

QUIET_S = 3600


def past(errors: Mapping[str, Sequence[tuple[float, int]]], for_s: float = QUIET_S) -> ErrorCounts:
    """Containers that were there for ``for_s`` seconds, with errors at these seconds."""
    counts = ErrorCounts("a log", 60.0)
    for instance, rows in errors.items():
        for at_s, number in [(0.0, 0), (for_s - 1, 0), *rows]:
            counts.add(instance, BEGIN + at_s, number)
    return counts


def reached(findings: LimitFindings, limit: int) -> tuple[int, int, int]:
    """How often this limit was reached, by how many containers, and how often by most of the fleet together."""
    reaches = findings.reaches[limit]
    return len(reaches), len({reach.container for reach in reaches}), sum(reach.fleet_wide for reach in reaches)


@pytest.mark.parametrize(
    ("rows", "limit", "times"),
    [
        ([(0, 4)], 5, 0),
        ([(0, 5)], 5, 1),
        ([(0, 3), (45, 2)], 5, 1),
        ([(0, 3), (60, 2)], 5, 0),
        ([(0, 5), (60, 5), (120, 5)], 5, 1),
        ([(0, 5), (75, 5)], 5, 2),
        ([(at, 1) for at in range(0, 600, 10)], 5, 1),
        ([(600, 5), (0, 5)], 5, 2),
    ],
    ids=[
        *("below", "at once", "across parts", "in two windows", "again within a window", "again after a window"),
        *("all the time", "log out of order"),
    ],
)
def test_limit_is_reached_once_until_a_window_has_passed(
    rows: Sequence[tuple[float, int]], limit: int, times: int
) -> None:
    assert reached(judge(past({"a": rows, "b": [], "c": []})), limit) == (times, min(1, times), 0)


def test_errors_of_most_of_the_fleet_are_told_apart() -> None:
    """At 600 s three of four fail; at 1800 s one does."""
    rows = {name: [(600.0, 10)] for name in "abc"} | {"d": [(1800.0, 10)]}
    findings = judge(past(rows))
    assert reached(findings, 10) == (4, 4, 3)
    assert reached(judge(past({"a": [(600.0, 10)]})), 10) == (1, 1, 0), "of one container nobody knows"


def test_containers_that_were_not_there_do_not_make_it_the_fault_of_one() -> None:
    counts = past({"a": [(600.0, 10)], "b": []}, for_s=900)
    for name in "cdef":  # they replaced the others
        counts.add(name, BEGIN + 7200, 0)
    assert reached(judge(counts), 10) == (1, 1, 1)


def test_set_limit_is_above_what_healthy_containers_have_and_below_a_sick_one() -> None:
    rng = Random(3)
    rows = {name: [(second, 1) for second in range(7200) if rng.random() < 0.04] for name in "abcdefgh"}
    rows["c"] += [(second, 1) for second in range(3600, 4800, 2)]
    findings = judge(past(rows, for_s=7200))
    usual = findings.usual
    assert 2.4 < usual.mean < 2.7, "2.4 errors a window, with the error of the estimate"
    assert usual.most < findings.suggested < 30
    assert reached(findings, findings.suggested) == (1, 1, 0)
    (reach,) = findings.reaches[findings.suggested]
    assert (reach.container, reach.errors > 25) == ("c", True)
    assert reached(findings, 5)[0] > 100


def test_short_record_without_errors_does_not_mean_that_there_are_none() -> None:
    short, long = (judge(past(dict.fromkeys("ab", ()), for_s=minutes * 60)) for minutes in (15, 6000))
    assert short.usual.mean == pytest.approx(3 / 30)
    assert long.usual.mean == pytest.approx(3 / 12_000)
    assert long.suggested < short.suggested


@pytest.mark.parametrize(
    ("rows", "for_s", "usual"),
    [
        ({"a": [(at, 10) for at in range(0, 600, 10)], "b": [], "c": []}, QUIET_S, (170, 180, 0)),
        ({"a": [(60, 20), (120, 20)]}, 180, (3, 3, 20)),
        ({"a": [(60, quantile(1.0))], "b": [(60, quantile(1.0) - 1)]}, QUIET_S, (119, 120, quantile(1.0) - 1)),
    ],
    ids=["an incident is not", "what most windows have is", "the least that is not"],
)
def test_windows_with_more_errors_than_chance_gives_are_not_usual(
    rows: Mapping[str, Sequence[tuple[float, int]]], for_s: float, usual: tuple[int, int, int]
) -> None:
    found = usual_errors(past(rows, for_s))
    assert (found.windows, found.of, found.most) == usual


def test_past_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_PARTS", 3)
    monkeypatch.setattr(windows, "MOST_CONTAINERS", 2)
    counts = ErrorCounts("a log", 60.0)
    for day in range(3):
        counts.add("a", BEGIN + day * 86_400, 1)
    counts.add("a", BEGIN, 1)
    with pytest.raises(PastError, match="a log: does not fit into memory: set a later --since or a longer --window"):
        counts.add("a", BEGIN + 9 * 86_400, 1)
    counts.add("b", BEGIN, 0)
    with pytest.raises(PastError, match="a log: more than 2 containers, such as 'c'"):
        counts.add("c", BEGIN, 0)
