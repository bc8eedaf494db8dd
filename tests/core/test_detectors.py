"""Evidence in, verdict out: a table, and what must hold for every number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.detectors import DETECTORS, judge
from sidecar.core.words import Evidence, Judgement, Policy

FINE, EXCESSIVE = Judgement.FINE, Judgement.EXCESSIVE


def holding(kinds: dict[str, int], window_s: int = 60, levels: dict[str, int] | None = None) -> Evidence:
    age_s = 0 if kinds else None
    return Evidence(window_s, sum(kinds.values()), kinds, levels or {}, age_s, age_s)


@pytest.mark.parametrize(
    ("errors", "limit", "judgement"),
    [
        (0, 1, FINE),
        (0, 5, FINE),
        (1, 1, EXCESSIVE),
        (1, 2, FINE),
        (4, 5, FINE),
        (5, 5, EXCESSIVE),
        (6, 5, EXCESSIVE),
        (1_000_000, 5, EXCESSIVE),
        (999_999, 1_000_000, FINE),
    ],
)
def test_errors_are_excessive_from_the_limit_on(errors: int, limit: int, judgement: Judgement) -> None:
    verdict = judge(holding({"redis": errors} if errors else {}), Policy(error_limit=limit))
    assert verdict.judgement is judgement
    assert bool(verdict.reasons) is (judgement is EXCESSIVE)


def test_default_limit_is_the_seed_articles_five() -> None:
    assert judge(holding({"unknown": 4}), Policy()).judgement is FINE
    assert judge(holding({"unknown": 5}), Policy()).judgement is EXCESSIVE


def test_other_levels_do_not_count() -> None:
    loud = {"client_error": 1_000, "investigation": 1_000, "recovered": 1_000}
    assert judge(holding({"redis": 4}, levels=loud), Policy(error_limit=5)).judgement is FINE


def test_empty_window_is_fine() -> None:
    assert judge(holding({}), Policy()).judgement is FINE


# -- what must hold for every number --------------------------------------------------------------------------

kinds_of_errors = st.dictionaries(st.sampled_from(["redis", "http", "unknown", "other"]), st.integers(1, 20))
limits = st.integers(1, 50).map(lambda limit: Policy(error_limit=limit))


def is_excessive(kinds: dict[str, int], policy: Policy) -> bool:
    return judge(holding(kinds), policy).judgement is EXCESSIVE


@given(kinds_of_errors, st.sampled_from(["redis", "new"]), limits)
def test_one_more_error_never_makes_the_verdict_better(kinds: dict[str, int], kind: str, policy: Policy) -> None:
    more = {**kinds, kind: kinds.get(kind, 0) + 1}
    assert is_excessive(more, policy) >= is_excessive(kinds, policy)


@given(kinds_of_errors, st.data(), limits)
def test_forgetting_never_makes_the_verdict_worse(kinds: dict[str, int], data: st.DataObject, policy: Policy) -> None:
    left = {kind: data.draw(st.integers(0, count)) for kind, count in kinds.items()}
    assert is_excessive(left, policy) <= is_excessive(kinds, policy)


@given(kinds_of_errors, limits)
def test_raising_the_limit_never_makes_the_verdict_worse(kinds: dict[str, int], policy: Policy) -> None:
    laxer = replace(policy, error_limit=policy.error_limit + 1)
    assert is_excessive(kinds, laxer) <= is_excessive(kinds, policy)


@given(kinds_of_errors, limits)
def test_excessive_comes_with_reasons_and_fine_without(kinds: dict[str, int], policy: Policy) -> None:
    verdict = judge(holding(kinds), policy)
    assert bool(verdict.reasons) is (verdict.judgement is EXCESSIVE)
    assert len(verdict.reasons) <= len(DETECTORS)


# -- the sentence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "window_s", "limit", "sentence"),
    [
        ({"redis": 7}, 60, 5, "7 server errors in 60 s (7 of them redis), the limit is 5"),
        ({"http": 2, "redis": 4}, 60, 5, "6 server errors in 60 s (4 of them redis), the limit is 5"),
        ({"redis": 4, "http": 2}, 60, 5, "6 server errors in 60 s (4 of them redis), the limit is 5"),
        ({"unknown": 5, "redis": 1}, 30, 6, "6 server errors in 30 s, the limit is 6"),
        ({"unknown": 5}, 60, 5, "5 server errors in 60 s, the limit is 5"),
    ],
    ids=["one kind", "top kind last", "top kind first", "top kind unknown", "only unknown"],
)
def test_sentence_names_number_limit_and_top_kind(
    kinds: dict[str, int], window_s: int, limit: int, sentence: str
) -> None:
    (reason,) = judge(holding(kinds, window_s), Policy(error_limit=limit)).reasons
    assert reason.sentence == sentence
    assert (reason.rule, reason.value, reason.limit) == ("errors", sum(kinds.values()), limit)


def test_sentence_does_not_depend_on_the_order_in_which_kinds_arrived() -> None:
    """Two kinds with the same count: otherwise the reason flips while nothing has changed."""
    (one,) = judge(holding({"redis": 3, "http": 3}), Policy()).reasons
    (two,) = judge(holding({"http": 3, "redis": 3}), Policy()).reasons
    assert one.sentence == two.sentence
