"""How often errors reach a limit by chance alone, and the least limit that they hardly ever reach.

Errors of a healthy container come independently at a steady rate, so that their number in a window has a Poisson
distribution with the mean ``usual``. An error that comes sees the window as it is at any time (R. W. Wolff, "Poisson
Arrivals See Time Averages", 1982). So errors reach the limit k as often as they come while k - 1 are in the window.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt
from typing import Final

MONTH_S: Final = 30 * 86_400.0

_LARGEST: Final = 100_000
"""Limits above it are not tried."""


_SURE: Final = 1.645
"""Standard deviations below which a normal distribution has 95 %."""

_NONE_SEEN: Final = 3.0
"""The bound if nothing was seen (J. A. Hanley, "If Nothing Goes Wrong, Is Everything All Right?", 1983)."""


def most_errors(seen: int) -> float:
    """How many errors are to be expected at most, with 95 % confidence, in a time like one in which ``seen`` came."""
    return seen + _SURE * sqrt(seen) + _NONE_SEEN


def reaches_per_month(usual: float, limit: int, window_s: float, containers: int) -> float:
    """How often in 30 days healthy containers reach ``limit`` errors in ``window_s`` seconds.

    ``usual``: errors of one healthy container in a window, on average.
    """
    if usual <= 0 or limit < 1:
        return 0.0 if limit >= 1 else float("inf")
    before = limit - 1
    log_chance = before * log(usual) - usual - lgamma(before + 1)
    return containers * MONTH_S * usual / window_s * exp(log_chance)


def least_limit(usual: float, window_s: float, containers: int, *, per_month: float = 1.0) -> int:
    """The least limit above ``usual`` that healthy containers reach less often than ``per_month`` in 30 days."""
    limit = max(1, int(usual) + 1)
    while limit < _LARGEST and reaches_per_month(usual, limit, window_s, containers) >= per_month:
        limit += 1
    return limit


def share_of_windows(usual: float, limit: int) -> float:
    """The part of all windows, from 0 to 1, in which a healthy container has at least ``limit`` errors."""
    if usual <= 0 or limit < 1:
        return 0.0 if limit >= 1 else 1.0
    below = sum(exp(k * log(usual) - usual - lgamma(k + 1)) for k in range(limit))
    return max(0.0, 1.0 - below)
