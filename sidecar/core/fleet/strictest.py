"""The strictest of several terms, because sidecars of one service may run with different settings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from sidecar.core.fleet.terms import OFF, STRATEGIES, Share, Terms

REFUND_FACTOR: Final = 3


class Limits(NamedTuple):
    """The strictest of all terms in force, for a fleet of one size.

    ``capacity``: tokens a window. ``floor``: containers that have to stay available. ``refund_max``: grants a window
    at most, the refunded included; -1: no token is refunded. ``error_limit``: the lowest limit of errors; 0: none.
    """

    strategy: str
    capacity: int
    floor: int
    refund_max: int
    window_us: int
    spacing_us: int
    trial: bool
    probation_us: int
    expiry_us: int
    after_loss_wait: bool
    error_limit: int


def limits(terms: Iterable[Terms], fleet: int) -> Limits:
    """Resolve all terms for ``fleet`` containers, available or not, and take the strictest of each."""
    return _strictest(tuple(dict.fromkeys(terms)), fleet)


@lru_cache(maxsize=16)  # the terms hardly ever change, and every decision asks
def _strictest(every: tuple[Terms, ...], fleet: int) -> Limits:
    return Limits(
        max((one.strategy for one in every), key=STRATEGIES.index),
        min(Share.read(one.capacity).at_most(fleet) for one in every),
        max(Share.read(one.min_healthy).at_least(fleet) for one in every),
        min(_refund_max(one, fleet) for one in every),
        max(one.window_us for one in every),
        max(one.spacing_us for one in every),
        any(one.trial for one in every),
        max(one.probation_us for one in every),
        max(one.expiry_us for one in every),
        any(one.after_loss_wait for one in every),
        min((one.error_limit for one in every if one.error_limit > 0), default=0),
    )


def _refund_max(terms: Terms, fleet: int) -> int:
    if terms.refund_max == OFF or terms.strategy != "log":
        return OFF
    return terms.refund_max or REFUND_FACTOR * Share.read(terms.capacity).at_most(fleet)
