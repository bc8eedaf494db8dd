"""The slots: only as many containers retire at once."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.claims import LeaseRequest
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.records import Slot
from sidecar.core.types import US_PER_S


def used(draft: Draft) -> int:
    """Slots in use."""
    return sum(slot.left_us(draft.now_us) > 0 for slot in draft.leases.values())


def capacity(draft: Draft, lease: LeaseRequest) -> int:
    """Number of slots for the present fleet."""
    return Share.load(lease.slots).at_most(draft.fleet)


def holder_of(draft: Draft, instance: str) -> str:
    """The holder of the slot under this name; empty if there is none."""
    slot = draft.leases.get(instance)
    return slot.holder if slot else ""


def grant(draft: Draft, lease: LeaseRequest) -> Slot:
    """Take a slot."""
    slot = Slot(lease.holder, lease.incarnation, draft.now_us, round(lease.timeout_s * US_PER_S))
    draft.leases[lease.instance] = slot
    return slot


def arrived(draft: Draft, place: str, instance: str) -> None:
    """Keep the slot for this replacement until it is well."""
    slot = draft.leases.pop(place, None)
    if slot is not None:
        draft.leases[instance] = replace(slot, arrived=True)


def is_well(draft: Draft, instance: str, incarnation: str) -> None:
    """Free the slot of a container whose replacement is well."""
    slot = draft.leases.get(instance)
    if slot is not None and (slot.arrived or slot.incarnation != incarnation):
        del draft.leases[instance]


def give_back(draft: Draft, instance: str, holder: str) -> bool:
    """Give a slot back; return whether it was this holder's."""
    if holder_of(draft, instance) != holder:
        return False
    return draft.leases.pop(instance, None) is not None


def expire(draft: Draft) -> None:
    """Free the slots that are over."""
    draft.leases = {name: slot for name, slot in draft.leases.items() if slot.left_us(draft.now_us)}
