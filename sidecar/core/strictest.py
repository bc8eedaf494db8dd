"""Which of several terms are strictest: sidecars of one service may run with different numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from sidecar.core.terms import Terms

EARN_FACTOR: Final = 3


class Limits(NamedTuple):
    """The strictest of all terms in force, for a fleet of one size.

    ``capacity``, ``gone`` (containers that may be missing by this server's grants) and ``earned`` (grants a window at
    most, -1: off) are this server's share; ``floor``: so many have to stay available.
    """

    capacity: int
    gone: int
    floor: int
    earned: int
    window_us: int
    spacing_us: int
    brake: int
    probation_us: int
    useless_after: int
    expiry_us: int
    lost_is_empty: bool


def split(total: int, index: int, servers: int) -> int:
    """Share of server ``index`` in ``total``: 10 over 3 are 4, 3 and 3."""
    return total // servers + (index < total % servers)


def limits(terms: Iterable[Terms], fleet: int) -> Limits:
    """Resolve all terms for ``fleet`` containers, available or not, and take the strictest of each.

    A brake or a number of useless culls of 0 is off, and counts only when it is so for everybody.
    """
    return _strictest(tuple(terms), fleet)


@lru_cache(maxsize=16)  # asked twice in every call on the bucket, for terms that hardly ever change
def _strictest(every: tuple[Terms, ...], fleet: int) -> Limits:
    return Limits(
        min(_capacity(one, fleet) for one in every),
        min(split(max(0, fleet - _floor(one, fleet)), one.index, one.servers) for one in every),
        max(_floor(one, fleet) for one in every),
        min(_earned(one, fleet) for one in every),
        max(one.window_us for one in every),
        max(one.spacing_us * one.servers for one in every),
        min((one.brake for one in every if one.brake), default=0),
        max(one.probation_us for one in every),
        min((one.useless_after for one in every if one.useless_after), default=0),
        max(one.expiry_us for one in every),
        any(one.lost_is_empty for one in every),
    )


def _capacity(terms: Terms, fleet: int) -> int:
    return split(terms.capacity.at_most(fleet), terms.index, terms.servers)


def _floor(terms: Terms, fleet: int) -> int:
    return max(terms.min_healthy.at_least(fleet), int(terms.never_last))


def _earned(terms: Terms, fleet: int) -> int:
    if terms.earn_max < 0 or terms.strategy != "log":
        return -1
    most = terms.earn_max or EARN_FACTOR * terms.capacity.at_most(fleet)
    return split(most, terms.index, terms.servers)
