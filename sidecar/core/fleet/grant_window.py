"""The grants of the window: the tokens in use, and the bounds that the store enforces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.terms import OFF
from sidecar.core.fleet.tokens import RULES, Quota, Usage


class Bounds(NamedTuple):
    """The bounds of the store: ``capacity`` tokens a window, and with refunds ``most`` grants; 0: no bound."""

    capacity: int
    most: int


def is_granted(draft: Draft, claim_id: str) -> bool:
    """Whether this claim was granted within the window."""
    oldest_us = draft.now_us - draft.limits.window_us
    return draft.view.grants.get(claim_id, oldest_us - 1) >= oldest_us


def used(draft: Draft) -> int:
    """Tokens in use."""
    return usage(draft).used


def bounds(draft: Draft) -> Bounds:
    """The bounds that the store itself enforces for a grant, as in ``store.Changes``."""
    rules = draft.limits
    if rules.strategy == "fixed":
        return Bounds(0, 0)
    if rules.strategy == "previous":
        return Bounds(max(1, 2 * rules.capacity - 1), 0)
    return Bounds(rules.capacity, rules.capacity if rules.refund_max == OFF else rules.refund_max)


def usage(draft: Draft) -> Usage:
    """The tokens in use, and the time until one more would fit."""
    rules = draft.limits
    return RULES[rules.strategy](_unrefunded(draft), draft.now_us, Quota(max(1, rules.capacity), rules.window_us))


def _unrefunded(draft: Draft) -> list[int]:
    """When each token in use was granted; with refunds the tokens of culls that helped are not in use."""
    refunded = draft.view.refunded if draft.limits.refund_max != OFF else frozenset[str]()
    return times(draft, (at for claim, at in draft.view.grants.items() if claim not in refunded))


def times(draft: Draft, grants: Iterable[int]) -> list[int]:
    """Grants in ascending order; after a clock has stepped back, grants of the future count as of now."""
    return sorted(min(at, draft.now_us) for at in grants)
