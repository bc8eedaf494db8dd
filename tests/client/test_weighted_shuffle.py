"""The weighted shuffle against the probabilities worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.weighted_shuffle import weighted_shuffle

DRAWS = 20_000

PROPORTIONS = {
    "equal": {"a": 1.0, "b": 1.0, "c": 1.0},
    "apart": {"a": 0.5, "b": 0.3, "c": 0.2},
    "of any scale": {"a": 5e6, "b": 3e6, "c": 2e6},
    "tiny": {"a": 5e-300, "b": 3e-300, "c": 2e-300},
    "tiny beside great": {"a": 1e-12, "b": 3e-12, "c": 1.0},
    "the smallest there are": {"a": 5e-324, "b": 5e-324, "c": 5e-324},
}


class Draws:
    """A source of chance with given numbers."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def probability(order: tuple[str, ...], weights: Mapping[str, float]) -> float:
    """Draw by draw without replacement: each place falls to one of those left by its share of their weight."""
    chance, left = 1.0, dict(weights)
    for item in order:
        chance *= left[item] / sum(left.values())
        del left[item]
    return chance


def frequencies(weights: Mapping[str, float], places: int) -> Counter[tuple[str, ...]]:
    rng = Random(2006)
    return Counter(tuple(weighted_shuffle(weights, rng)[:places]) for _ in range(DRAWS))


@pytest.mark.parametrize("places", [1, 2], ids=["first place", "first two places"])
@pytest.mark.parametrize("weights", PROPORTIONS.values(), ids=PROPORTIONS)
def test_places_fall_by_their_exact_probabilities(weights: dict[str, float], places: int) -> None:
    counts = frequencies(weights, places)
    for order in permutations(weights, places):
        chance = probability(order, weights)
        four_deviations = 4 * (chance * (1 - chance) / DRAWS) ** 0.5
        assert counts[order] / DRAWS == pytest.approx(chance, abs=four_deviations + 1e-9), order


def test_weightless_ones_come_last_in_any_order() -> None:
    counts = frequencies({"none": 0.0, "tiny": 5e-324, "nothing": 0.0}, 3)
    assert {order[0] for order in counts} == {"tiny"}
    assert counts["tiny", "none", "nothing"] / DRAWS == pytest.approx(0.5, abs=0.02)


def test_lowest_legal_draw_wins_and_is_no_error() -> None:
    assert weighted_shuffle({"a": 1.0, "b": 1.0}, Draws(0.5, 0.0)) == ["b", "a"]


@pytest.mark.parametrize("weight", [-1e-9, float("inf"), float("nan")])
def test_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        weighted_shuffle({"a": 1.0, "b": weight}, Random(0))


@given(weights=st.dictionaries(st.text(), st.floats(0, allow_infinity=False)), seed=st.integers())
def test_order_is_a_permutation_with_the_weightless_behind(weights: dict[str, float], seed: int) -> None:
    order = weighted_shuffle(weights, Random(seed))
    assert sorted(order) == sorted(weights)
    assert [weights[item] > 0 for item in order] == sorted((weight > 0 for weight in weights.values()), reverse=True)
