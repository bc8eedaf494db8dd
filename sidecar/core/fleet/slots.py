"""The gates of a retirement: culls come first, and as many containers as there are slots are away for their age."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.records import Slot
from sidecar.core.fleet.refusal import Refusal
from sidecar.core.fleet.terms import Share
from sidecar.core.types import US_PER_S, Lease


def culls_pending(draft: Draft) -> Refusal | None:
    """Refuse a retirement while there are suspects that may be culled. For a paused cause nobody has to wait."""
    causes = (cause for cause, count in draft.view.causes.items() if count > 0)
    is_pending = any(not draft.trial(cause).pause_left_us(draft.now_us) for cause in causes)
    return Refusal("culls", draft.terms.beat_us) if is_pending else None


def refusal(draft: Draft, lease: Lease) -> Refusal | None:
    """Refuse a retirement without a free slot. A slot that its own sidecar has not heard of may still be its own."""
    holder = holder_of(draft, lease.instance)
    others = used(draft) - bool(holder)
    is_free = others < capacity(draft, lease) and holder in ("", lease.holder)
    return None if is_free else Refusal("slots", draft.terms.beat_us)


def used(draft: Draft) -> int:
    """Slots in use."""
    return sum(slot.left_us(draft.now_us) > 0 for slot in draft.leases.values())


def capacity(draft: Draft, lease: Lease) -> int:
    """Slots that there are, for the fleet as it is."""
    return Share.read(lease.slots).at_most(draft.fleet)


def holder_of(draft: Draft, instance: str) -> str:
    """The holder word of the slot under this name; ``""``: there is none."""
    slot = draft.leases.get(instance)
    return slot.holder if slot else ""


def grant(draft: Draft, lease: Lease) -> Slot:
    """Take a slot."""
    slot = Slot(lease.holder, lease.incarnation, draft.now_us, round(lease.timeout_s * US_PER_S))
    draft.leases[lease.instance] = slot
    return slot


def arrived(draft: Draft, place: str, instance: str) -> None:
    """Wait from now on for this replacement to be well."""
    slot = draft.leases.pop(place, None)
    if slot is not None:
        draft.leases[instance] = replace(slot, arrived=True)


def is_well(draft: Draft, instance: str, life: str) -> None:
    """Free the slot of a container that was replaced, now that its replacement is well."""
    slot = draft.leases.get(instance)
    if slot is not None and (slot.arrived or slot.life != life):
        del draft.leases[instance]


def resign(draft: Draft, instance: str, holder: str) -> bool:
    """Give a slot back; whether it was this holder's."""
    if holder_of(draft, instance) != holder:
        return False
    return draft.leases.pop(instance, None) is not None


def expire(draft: Draft) -> None:
    """Free the slots whose time is over."""
    draft.leases = {name: slot for name, slot in draft.leases.items() if slot.left_us(draft.now_us)}
