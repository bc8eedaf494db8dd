"""The gate of the floor: enough containers stay in service."""

from __future__ import annotations

from sidecar.core.fleet.draft import HOUR_US, Draft
from sidecar.core.fleet.refusal import Refusal


def refusal(draft: Draft, instance: str) -> Refusal | None:
    """Refuse what would leave too few containers in service; a service that had one for an hour may lose it."""
    cull, is_heard = draft.culls.get(instance), is_available(draft, instance)
    is_missing = cull is not None and cull.phase == "out"
    fleet = draft.fleet + (not is_heard and not is_missing)  # a requester that is not heard is there all the same
    if fleet == 1 and single_us(draft) >= HOUR_US:
        return None
    after = draft.available - is_heard
    if after >= draft.limits_of(fleet).floor:
        return None
    return Refusal("floor" if after else "last", draft.terms.beat_us)


def is_available(draft: Draft, instance: str) -> bool:
    """Whether the requester is among the available."""
    view = draft.view
    is_heard = bool(view.seen_us) and draft.now_us - view.seen_us <= draft.limits.expiry_us
    return is_heard and not draft.is_out(instance, view.life)


def single_us(draft: Draft) -> int:
    """For how long the fleet has had one member only, as far as its servers remember."""
    born_us = max(epoch.born_us for epoch in draft.epochs)
    return draft.now_us - max(draft.several_us, born_us)
