"""The leases of planned ends: so many containers of a fleet may be away for their age at a time.

A lease has its slot from the grant on: until its container is replaced and the replacement is well, until its holder
gives it back, or until its time is over, whatever became of the container. Times as in ``roster``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Slot:
    """One lease, under the word of its holder. ``has_arrived``: the container is replaced, and that may still start."""

    holder: str
    incarnation: str
    until_us: int
    has_arrived: bool = False


class Leases:
    """The leases of one fleet, by the instance that has to be well for the lease to end; one of each at most."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.newest_us = 0

    def used(self, now_us: int) -> int:
        """How many slots are taken."""
        return sum(slot.until_us > now_us for slot in self.slots.values())

    def holder(self, instance: str) -> str:
        """Who has the slot of this instance; ``""`` when there is none."""
        slot = self.slots.get(instance)
        return slot.holder if slot else ""

    def granted(self, instance: str, slot: Slot, now_us: int) -> None:
        """Note a grant."""
        self.slots[instance] = slot
        self.newest_us = now_us

    def down(self, instance: str, slot: Slot) -> None:
        """Hear of a lease that was forgotten. The container has one slot, and no longer than it had it already."""
        former = self.slots.get(instance)
        if former is not None:
            slot.until_us = former.until_us
        self.slots[instance] = slot

    def arrived(self, place: str, instance: str) -> None:
        """Wait from now on for this replacement to be well."""
        slot = self.slots.pop(place, None)
        if slot is not None:
            slot.has_arrived = True
            self.slots[instance] = slot

    def is_well(self, instance: str, incarnation: str) -> None:
        """See that a container is well: who was to be replaced by it is."""
        slot = self.slots.get(instance)
        if slot is not None and (slot.has_arrived or slot.incarnation != incarnation):
            del self.slots[instance]

    def resigned(self, instance: str, holder: str) -> bool:
        """Give a slot back; whether it was this holder's."""
        if self.holder(instance) != holder:
            return False
        return self.slots.pop(instance, None) is not None

    def expire(self, now_us: int) -> None:
        """Free the slots whose time is over."""
        self.slots = {one: slot for one, slot in self.slots.items() if slot.until_us > now_us}
