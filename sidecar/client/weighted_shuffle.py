"""A weighted shuffle: draws one item after the other, heavy items early.

After Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (Information Processing Letters 97, 2006):
give every item the key ``u ** (1 / weight)`` with ``u`` uniform in (0, 1), and sort. An item takes the first place with
the probability weight / sum of weights, the second place likewise among the other items, and so on.

This module takes the logarithm of the logarithm as the key, ``log(weight) - log(-log(u))``, which sorts the same. The
plain key underflows to 0 for a weight of 1e-3 (0.4 to the 1000th), and the order would not be random.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log, ulp
from typing import Final, Protocol, TypeVar

Item = TypeVar("Item")

SMALLEST: Final = ulp(0.0)


class Random(Protocol):
    """The part of ``random.Random`` that the shuffle needs."""

    def random(self) -> float:
        """Uniform within [0, 1)."""
        ...


def weighted_shuffle(weights: Mapping[Item, float], rng: Random) -> list[Item]:
    """Order the items of ``weights`` at random, heavy ones early.

    Weights are relative to one another, finite and not negative (else ValueError). Items of weight 0 come after all
    others, in uniform order. Takes one number from ``rng`` per item.
    """
    keys = {item: _key(weight, rng) for item, weight in weights.items()}
    return sorted(keys, key=keys.__getitem__, reverse=True)


def _key(weight: float, rng: Random) -> tuple[bool, float]:
    if not 0 <= weight < inf:
        raise ValueError(f"a weight is finite and not negative, unlike {weight}")
    chance = -log(-log(1.0 - rng.random()) or SMALLEST)  # 0.0 is a legal draw and has no logarithm
    return (True, log(weight) + chance) if weight else (False, chance)
