"""Whether a fleet can keep up with its retirements.

The relations are those of Booking.com's "Writing Advanced Daemons That Aren't Daemons", applied to containers: to
replace n of them, k at once and in d seconds each, has to take less than the lifetime of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_settings import Share

NONE: Final = Share(0)


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """How a fleet is replaced by age: each container after ``lifetime_s``, in ``each_s`` seconds, ``slots`` at once.

    ``min_healthy`` is the floor that a retirement has to keep, as in ``FleetSettings``.
    """

    lifetime_s: float
    slots: Share
    each_s: float
    min_healthy: Share = NONE

    def shortfall(self, containers: int) -> str:
        """Why a fleet of this size cannot be replaced in time, with the numbers; empty if it can."""
        if self.lifetime_s <= 0 or containers <= 0:
            return ""
        stay, lifetime = self._stay(containers), reasons.span(self.lifetime_s)
        count = f"{containers} container{'s' * (containers > 1)}"
        if stay >= containers:
            return (
                f"no container can be retired: there are {count}, and {stay} have to stay in service "
                f"(ARBITER_MIN_HEALTHY), so all outlive their lifetime of {lifetime}"
            )
        slots, removable = max(1, self.slots.at_most(containers)), containers - stay
        at_once = min(slots, removable)
        needed_s = containers * self.each_s / at_once
        if needed_s < self.lifetime_s:
            return ""
        floor = f" ({stay} have to stay in service)" if stay and removable < slots else ""
        takes, their = ("take", "their") if containers > 1 else ("takes", "its")
        return (
            f"retirements cannot keep up: {count}, {at_once} at once{floor} and {reasons.span(self.each_s)} each "
            f"{takes} {reasons.span(needed_s)}, which is not less than {their} lifetime of {lifetime}"
        )

    def _stay(self, containers: int) -> int:
        """How many have to stay in service; the only container of a fleet may be retired."""
        return 0 if containers == 1 else self.min_healthy.at_least(containers)
