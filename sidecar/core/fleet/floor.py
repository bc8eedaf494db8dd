"""The gate of the floor: enough containers stay in service."""

from __future__ import annotations

from sidecar.core.fleet.draft import HOUR_US, Draft
from sidecar.core.fleet.refusal import GateRefusal


def refusal(draft: Draft, instance: str) -> GateRefusal | None:
    """Refuse to leave too few containers in service. A service that had a single one for an hour may lose it."""
    cull, is_counted = draft.culls.get(instance), is_available(draft, instance)
    is_missing = cull is not None and cull.phase == "out"
    fleet = draft.fleet + (not is_counted and not is_missing)  # the requester is there even if it has not beaten
    if fleet == 1 and single_us(draft) >= HOUR_US:
        return None
    after = draft.available - is_counted
    if after >= draft.limits_of(fleet).floor:
        return None
    return GateRefusal("floor" if after else "last", draft.terms.beat_us)


def is_available(draft: Draft, instance: str) -> bool:
    """Whether the requester is among the available."""
    view = draft.view
    is_alive = bool(view.seen_us) and draft.now_us - view.seen_us <= draft.limits.expiry_us
    return is_alive and not draft.is_out(instance, view.life)


def single_us(draft: Draft) -> int:
    """For how long the fleet has had a single member, as far as the store knows."""
    return draft.now_us - max(draft.several_us, draft.epoch.born_us)
