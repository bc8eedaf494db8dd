"""When the planned end of a life is due, and whether a fleet can keep up with such ends.

Instants are seconds of one clock, ages and durations are seconds. The relations are those of Booking.com's "Writing
Advanced Daemons That Aren't Daemons", applied to containers: who replaces n of them, k at once and in d seconds each,
has to be through before the first is due again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.fleet.terms import Share
from sidecar.core.types import Load, Policy

NONE: Final = Share(0)
LOAD_KEPT_S: Final = 60.0
"""How long the last word of the load counts; who has said nothing for longer counts as idle."""

RESPITE: Final = 1 / 4
"""The part of its lifetime for which a life whose retirement came to nothing is left in peace."""


class Life(NamedTuple):
    """When a life began, where in the jitter it ends (``part`` from 0 to 1), and until when it is left in peace."""

    born: float
    part: float = 0.5
    respite_until: float = -inf


def due_at(life: Life, policy: Policy) -> float | None:
    """When the retirement of a life is due, unless it is busy then; None: never."""
    if policy.lifetime_s <= 0:
        return None
    return max(life.born + policy.lifetime_s * _factor(life.part, policy), life.respite_until)


def is_due(life: Life, load: Load | None, now: float, policy: Policy) -> bool:
    """Whether a life has to be retired now: it is old enough, and idle or too old to wait for that."""
    due = due_at(life, policy)
    if due is None or now < due:
        return False
    return now >= life.born + policy.lifetime_max_s * _factor(life.part, policy) or not is_busy(load, policy)


def is_busy(load: Load | None, policy: Policy) -> bool:
    """Whether the app said within the last minute that it is busier than the mark."""
    return load is not None and load.age_s <= LOAD_KEPT_S and load.value > policy.busy_load


def _factor(part: float, policy: Policy) -> float:
    return 1 + policy.lifetime_jitter * (2 * part - 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a fleet is to be renewed: each container after ``lifetime_s``, in ``each_s``, so many ``slots`` at once.

    ``min_healthy`` and ``never_last`` are the floor that a retirement has to keep, as in ``Terms``.
    """

    lifetime_s: float
    slots: Share
    each_s: float
    min_healthy: Share = NONE
    never_last: bool = False

    def shortfall(self, containers: int) -> str:
        """Why a fleet of so many cannot be renewed in time, with the numbers; empty if it can."""
        if self.lifetime_s <= 0 or containers <= 0:
            return ""
        stay, lifetime = self._stay(containers), reasons.span(self.lifetime_s)
        count = f"{containers} container{'s' * (containers > 1)}"
        if stay >= containers:
            return (
                f"nobody can be retired: there are {count}, and {stay} have to stay in service (ARBITER_MIN_HEALTHY), "
                f"so all outlive their lifetime of {lifetime}"
            )
        slots, room = max(1, self.slots.at_most(containers)), containers - stay
        at_once = min(slots, room)
        needed_s = containers * self.each_s / at_once
        if needed_s < self.lifetime_s:
            return ""
        floor = f" ({stay} have to stay in service)" if stay and room < slots else ""
        takes, their = ("take", "their") if containers > 1 else ("takes", "its")
        return (
            f"retirements cannot keep up: {count}, {at_once} at once{floor} and {reasons.span(self.each_s)} each "
            f"{takes} {reasons.span(needed_s)}, which is not less than {their} lifetime of {lifetime}"
        )

    def _stay(self, containers: int) -> int:
        """So many of them have to stay in service; one that has been alone for an hour may go."""
        return 0 if containers == 1 else max(self.min_healthy.at_least(containers), int(self.never_last))
