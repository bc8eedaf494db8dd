"""Whether retirements keep up with the age of a fleet; an operator is told if they do not."""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_settings import Share

NO_FLOOR: Final = Share(0)


class RotationPlan(NamedTuple):
    """How a fleet is replaced by age: each container after ``lifetime_s``, in ``each_s`` seconds, ``slots`` at once.

    ``min_healthy`` is the floor that a retirement has to keep, as in ``FleetSettings``. The relations are those of
    Booking.com's "Writing Advanced Daemons That Aren't Daemons", applied to containers: to replace n of them, k at once
    and in d seconds each, has to take less than the lifetime of the first.
    """

    lifetime_s: float
    slots: Share
    each_s: float
    min_healthy: Share = NO_FLOOR

    def shortfall(self, containers: int) -> str:
        """Why a fleet of this size cannot be replaced in time, with the numbers; empty if it can."""
        if self.lifetime_s <= 0 or containers <= 0:
            return ""
        stay = 0 if containers == 1 else self.min_healthy.at_least(containers)  # a single container may be retired
        fleet, lifetime = f"a fleet of {containers}", reasons.span(self.lifetime_s)
        if stay >= containers:
            return (
                f"no container can be retired: {stay} of {fleet} have to stay in service (ARBITER_MIN_HEALTHY), "
                f"so all outlive their lifetime of {lifetime}"
            )
        slots, removable = max(1, self.slots.at_most(containers)), containers - stay
        at_once = min(slots, removable)
        needed_s = containers * self.each_s / at_once
        if needed_s < self.lifetime_s:
            return ""
        floor = f" ({stay} have to stay in service)" if stay and removable < slots else ""
        return (
            f"retirements cannot keep up: to replace {fleet}, {at_once} at once{floor} and {reasons.span(self.each_s)} "
            f"each, takes {reasons.span(needed_s)}, which is not less than the lifetime of {lifetime}"
        )
