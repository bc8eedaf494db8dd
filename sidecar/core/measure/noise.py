"""What chance explains: how many errors a healthy container has, and how often it reaches a limit.

Errors of a healthy container come independently at a steady rate, so that their number in a window has a Poisson
distribution (1837) with the mean ``usual``. An error that comes sees the window as it is at any time (R. W. Wolff,
"Poisson Arrivals See Time Averages", 1982). So errors reach the limit k as often as they come while k - 1 are in the
window.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, lgamma, log, sqrt
from typing import Final

CHANCE: Final = 1e-7
"""A container is an outlier if a healthy one has as many errors in a window with a chance below this: fifty containers
that are checked every ten seconds have 158 million checks in a year."""

_DEVIATIONS: Final = 5.199337582290661
"""Standard deviations above its mean at which a normal distribution leaves ``CHANCE``."""

LARGEST_MEAN: Final = 1e6
"""Above it the approximation of Cornish and Fisher (1938) is good to one in a million and costs nothing."""

MONTH_S: Final = 30 * 86_400.0

_LARGEST: Final = 100_000
"""Limits above it are not tried."""

_SURE: Final = 1.645
"""Standard deviations below which a normal distribution has 95 %."""

_NONE_SEEN: Final = 3.0
"""The bound if nothing was seen (J. A. Hanley, "If Nothing Goes Wrong, Is Everything All Right?", 1983)."""


@lru_cache(maxsize=64)
def quantile(mean: float) -> int:
    """The least k that a Poisson distribution of this mean reaches or exceeds with a chance below ``CHANCE``."""
    if mean <= 0:
        return 1
    guess = max(1, ceil(mean + _DEVIATIONS * sqrt(mean) + (_DEVIATIONS**2 - 1) / 6))
    if mean > LARGEST_MEAN:
        return guess
    k, tail = guess, _tail(mean, guess)
    while tail >= CHANCE:
        tail -= _chance(mean, k)
        k += 1
    while k > 1 and (wider := tail + _chance(mean, k - 1)) < CHANCE:
        k, tail = k - 1, wider
    return k


def _chance(mean: float, k: int) -> float:
    """The chance of exactly ``k``, by its logarithm: neither the power nor the factorial would fit a float."""
    return exp(k * log(mean) - mean - lgamma(k + 1)) if mean > 0 else float(k == 0)


def _tail(mean: float, k: int) -> float:
    """The chance of ``k`` or more, for a ``k`` above the mean: a series of falling terms, all of one sign."""
    term = total = 1.0
    further = k
    while term > total * 1e-15:
        further += 1
        term *= mean / further
        total += term
    return total * _chance(mean, k)


def most_errors(counted: int) -> float:
    """Maximum number of errors to expect, with 95 % confidence, in as long a time as that of the ``counted`` ones."""
    return counted + _SURE * sqrt(counted) + _NONE_SEEN


def reaches_per_month(usual: float, limit: int, window_s: float, containers: int) -> float:
    """How often in 30 days healthy containers reach ``limit`` errors, at least one, in ``window_s`` seconds.

    ``usual``: errors of one healthy container in a window, on average.
    """
    return containers * MONTH_S * usual / window_s * _chance(usual, limit - 1)


def least_limit(usual: float, window_s: float, containers: int) -> int:
    """The least limit above ``usual`` that healthy containers reach less often than once in 30 days."""
    limit = max(1, int(usual) + 1)
    while limit < _LARGEST and reaches_per_month(usual, limit, window_s, containers) >= 1:
        limit += 1
    return limit


def share_of_windows(usual: float, limit: int) -> float:
    """The part of all windows, from 0 to 1, in which a healthy container has at least ``limit`` errors."""
    return max(0.0, 1.0 - sum(_chance(usual, k) for k in range(limit)))
