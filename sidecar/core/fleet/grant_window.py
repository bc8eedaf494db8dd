"""The gates of pace: the spacing between two grants, and the tokens of the window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.refusal import GateRefusal
from sidecar.core.fleet.terms import OFF
from sidecar.core.fleet.tokens import RULES, Quota, Usage


class Bounds(NamedTuple):
    """The bounds of the store: ``capacity`` tokens a window, and with refunds ``most`` grants; 0: no bound."""

    capacity: int
    most: int


def spacing(draft: Draft) -> GateRefusal | None:
    """Refuse a grant too soon after the last one, also after one that only the rows of culls show."""
    if not draft.limits.spacing_us:
        return None
    culls = (cull.at_us for cull in draft.culls.values() if not cull.is_lease)
    times = _times(draft, (*culls, *draft.view.grants.values()))
    wait_us = times[-1] + draft.limits.spacing_us - draft.now_us if times else 0
    return GateRefusal("spacing", wait_us) if wait_us > 0 else None


def refusal(draft: Draft) -> GateRefusal | None:
    """Refuse a grant while the window has no token left."""
    rules = draft.limits
    if rules.capacity < 1:  # by the settings of another sidecar
        return GateRefusal("window", rules.window_us)
    if rules.strategy == "fixed":
        return None  # the article's counter decides, and the view does not have it
    if wait_us := _usage(draft).wait_us:
        return GateRefusal("window", wait_us)
    if rules.refund_max == OFF:
        return None
    every = _times(draft, draft.view.grants.values())
    wait_us = RULES["log"](every, draft.now_us, Quota(max(1, rules.refund_max), rules.window_us)).wait_us
    return GateRefusal("refund_max", wait_us) if wait_us else None


def is_granted(draft: Draft, claim_id: str) -> bool:
    """Whether this claim was granted within the window."""
    oldest_us = draft.now_us - draft.limits.window_us
    return draft.view.grants.get(claim_id, oldest_us - 1) >= oldest_us


def used(draft: Draft) -> int:
    """Tokens in use."""
    return _usage(draft).used


def bounds(draft: Draft) -> Bounds:
    """The bounds that the store itself enforces for a grant, as in ``store.Changes``."""
    rules = draft.limits
    if rules.strategy == "fixed":
        return Bounds(0, 0)
    if rules.strategy == "previous":
        return Bounds(max(1, 2 * rules.capacity - 1), 0)
    return Bounds(rules.capacity, rules.capacity if rules.refund_max == OFF else rules.refund_max)


def _usage(draft: Draft) -> Usage:
    rules = draft.limits
    return RULES[rules.strategy](_unrefunded(draft), draft.now_us, Quota(max(1, rules.capacity), rules.window_us))


def _unrefunded(draft: Draft) -> list[int]:
    """When each token in use was granted; with refunds the tokens of culls that helped are not in use."""
    refunded = draft.view.refunded if draft.limits.refund_max != OFF else frozenset[str]()
    return _times(draft, (at for claim, at in draft.view.grants.items() if claim not in refunded))


def _times(draft: Draft, grants: Iterable[int]) -> list[int]:
    """Grants in ascending order; after a clock has stepped back, grants of the future count as of now."""
    return sorted(min(at, draft.now_us) for at in grants)
