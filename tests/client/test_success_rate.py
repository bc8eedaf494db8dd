"""What is remembered of a node's calls, for how long, and what weight that gives."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.client.success_rate import BUCKET_S, BUCKETS, SuccessHistory

Ended = tuple[float, str]
"""(seconds, how the calls ended at that moment: ``+`` well, ``-`` badly)."""

YEAR_S = 365 * 86_400.0


def history_of(ended: Sequence[Ended]) -> SuccessHistory:
    history = SuccessHistory(0.0)
    for at_s, calls in ended:
        history.count(at_s, calls.count("+"), calls.count("-"))
    return history


# -- the table ----------------------------------------------------------------------------------------------

RATES = [
    # Nothing known: the best is assumed.
    ("a node nobody has called", 0, [], 1),
    # A newer bucket counts three times the one before.
    ("a failure after a success", 5, [(0, "+"), (5, "-")], Fraction(1, 4)),
    ("many old ones outweigh one new one", 5, [(0, "++++++"), (5, "-")], Fraction(6, 9)),
    # The ring is empty: the sticky bucket is the last one with data that left it.
    ("remembered from the sticky bucket", 30, [(0, "+-")], Fraction(1, 2)),
    ("an empty bucket does not overwrite it", 300, [(0, "+-"), (60, "+++-")], Fraction(3, 4)),
    # A clock that steps back stands still: the call counts in the newest bucket.
    ("a success from the past", 100, [(100, "-"), (40, "+")], Fraction(1, 2)),
    ("asked about the past", 3, [(100, "+-")], Fraction(1, 2)),
]


@pytest.mark.parametrize(("now_s", "ended", "rate"), [row[1:] for row in RATES], ids=[row[0] for row in RATES])
def test_rate(now_s: float, ended: list[Ended], rate: Fraction) -> None:
    assert history_of(ended).rate(now_s) == float(rate)


WEIGHTS = [
    ("nothing known", 0, "", 1.0),
    ("half of the calls failed", 0, "+-", 0.125),
    ("nothing but failures in the ring: the floor is out of play", 29.9, "-", 0.0),
    ("nothing but failures, and the ring is empty", 30, "-", 0.01),
    ("few successes, and the ring is empty", 30, "+" + "-" * 9, 0.01),
    ("many successes, and the ring is empty", 30, "+-", 0.125),
]


@pytest.mark.parametrize(("now_s", "calls", "weight"), [row[1:] for row in WEIGHTS], ids=[row[0] for row in WEIGHTS])
def test_weight_is_the_rate_cubed_with_a_floor(now_s: float, calls: str, weight: float) -> None:
    assert history_of([(0, calls)]).weight(now_s) == pytest.approx(weight)


# -- for a judge who must neither be late nor be moved by chance ----------------------------------------------

TEN, NINE = "+" * 10, "+" * 9
STEADY = [
    ("nothing known", 0, [], 1),
    ("few calls are mixed with the best that may be", 0, [(0, "-")], Fraction(9, 10)),
    ("half as many as are enough, half of it", 0, [(0, "-" * 5)], Fraction(1, 2)),
    ("few calls are mixed with what is remembered", 60, [(0, "-" * 10), (60, "+" * 5)], Fraction(1, 2)),
    ("remembered alone", 60, [(0, "+-")], Fraction(1, 2)),
    ("failing for two buckets is failing", 29, [(0, TEN * 9), (20, "-" * 5), (25, "-" * 5)], 0),
    ("failing for less is failing in part", 29, [(0, TEN * 9), (20, TEN), (25, "-" * 10)], Fraction(1, 4)),
    ("too few in them say nothing against the ring", 25, [(15, "-" + NINE), (25, NINE)], Fraction(90, 91)),
    ("well for two buckets is not yet well", 10, [(0, "-" * 9), (5, TEN), (10, TEN)], Fraction(120, 129)),
]


@pytest.mark.parametrize(("now_s", "ended", "rate"), [row[1:] for row in STEADY], ids=[row[0] for row in STEADY])
def test_steady_rate(now_s: float, ended: list[Ended], rate: Fraction) -> None:
    assert history_of(ended).steady_rate(now_s) == pytest.approx(float(rate))


def test_cleared_history_knows_nothing() -> None:
    history = history_of([(0, "-"), (31, "-")])
    history.clear()
    assert (history.rate(31), history.steady_rate(31), history.weight(31)) == (1, 1, 1)


# -- against a list of all calls ----------------------------------------------------------------------------

moments = st.one_of(st.integers(0, 12).map(lambda half: half * 2.5), st.floats(-40, 40), st.just(YEAR_S))
calls = st.lists(st.tuples(moments, st.text("+-", max_size=4)), max_size=25)


def naive_rate(ended: Sequence[tuple[int, bool]], period: int) -> Fraction:
    """The rule by its words, from every call that ever ended and the number of its five seconds."""
    ring = [(BUCKETS - (period - at), well) for at, well in ended if period - at < BUCKETS]
    if ring:
        return Fraction(sum(3**place for place, well in ring if well), sum(3**place for place, _ in ring))
    last = [well for at, well in ended if at == max(at for at, _ in ended)]
    return Fraction(sum(last), len(last)) if last else Fraction(1)


@settings(max_examples=100, deadline=None)
@given(steps=calls)
def test_history_agrees_with_a_list_of_all_calls(steps: list[Ended]) -> None:
    history, now_s, period = SuccessHistory(0.0), 0.0, 0
    ended: list[tuple[int, bool]] = []
    for step_s, results in steps:
        now_s += step_s
        period = max(period, int(now_s // BUCKET_S))
        history.count(now_s, results.count("+"), results.count("-"))
        ended += [(period, result == "+") for result in results]
        assert history.rate(now_s) == float(naive_rate(ended, period))
        assert 0 <= history.rate(now_s) <= 1
        assert 0 <= history.steady_rate(now_s) <= 1
        assert 0 <= history.weight(now_s) <= 1
