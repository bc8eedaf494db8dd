"""The weight of a container at the load balancer in percent: its success rate cubed, or a soft drain.

The cube is that of timmc's cascade (``client/success_rate``): an app that fails half of its requests gets an eighth. A
weight must not flutter, least of all in a hundred containers at once: a target nearby changes nothing, and every change
takes time. It falls fast, because users notice every second; it rises slowly, so that a container that has just
recovered is not flooded.

Where no requests are known, because the app reports only errors, a suspect is drained softly: its weight is lowered at
once, without a token, and rises again when it recovers. It is lowered only as far as the other containers can make up
for it: the more containers are suspect, the less each of them is spared.

This module must not know where requests come from, nor which balancer reads the weight.
"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from sidecar.core.claims import Fleet, Presence
from sidecar.core.types import Policy

FULL: Final = 100
FLOOR: Final = 10
"""Least weight: without requests nothing would show that the container is well again."""

FALL_PER_S: Final = 20.0
RISE_PER_S: Final = 5.0
BAND: Final = 0.1
"""The weight changes only for a target that differs by this part of it."""

LEAST_BAND: Final = 2

SMALLEST_FLEET: Final = 3
"""In a smaller fleet a drained container leaves at most one to carry its load."""

HEADROOM: Final = 1.25
"""No container gets more than this many times its usual load because suspects are spared."""


def soft_drain(
    presence: Presence, success_rate: float | None, fleet: Fleet | None, policy: Policy, *, is_announced: bool
) -> int:
    """Percent of its weight that a suspect keeps: as little as the other containers can make up for.

    Of n containers s are suspect, so n - s + s * w have to carry the load of n, with ``HEADROOM``. ``fleet``: the last
    known, None if it is unknown. ``is_announced``: this suspect is one of its ``suspect``. ``FULL`` is no soft drain.
    There is none while no container is well, because requests have no better place to go, and none while the fleet's
    median has reached the limit, because then chance makes suspects of half the fleet.
    """
    if presence is not Presence.SUSPECT or success_rate is not None:
        return FULL
    if fleet is None or fleet.alive < SMALLEST_FLEET:
        return FULL
    if 0 < policy.error_limit <= (fleet.median_errors or 0):
        return FULL
    suspect = max(1, fleet.suspect + (not is_announced))
    well = fleet.alive - suspect
    if well <= 0:
        return FULL
    needed = (fleet.alive + fleet.down) / HEADROOM - well
    return min(FULL, max(0, ceil(FULL * needed / suspect)))


def share_of_window(before: float, percent: int, elapsed_s: float, window_s: int) -> float:
    """The part of its usual load, within [0, 1], that a softly drained container had over the whole error window.

    ``before``: the part ``elapsed_s`` seconds ago, 1 when the drain begins; ``percent``: the weight now. The window
    still holds errors from before the drain, so the part falls with the window and not at once.
    """
    return max(percent / FULL, before - elapsed_s / window_s)


class Weight(NamedTuple):
    """The weight of one container in percent."""

    percent: int = FULL
    floor: int = FLOOR  # the least; a floor of 100 switches weights off
    moving: bool = False  # whether it is on its way to a target

    def step(self, rate: float | None, elapsed_s: float) -> Weight:
        """The weight ``elapsed_s`` seconds after the last step, at a success rate within [0, 1], None if unknown.

        It starts to move for a target outside of its band, or at either end, and then moves all the way.
        """
        target = self._target(rate)
        gap = target - self.percent
        if not self.moving and target not in (self.floor, FULL) and abs(gap) < max(LEAST_BAND, BAND * self.percent):
            return self
        move = min(max(gap, -int(FALL_PER_S * elapsed_s)), int(RISE_PER_S * elapsed_s))
        return self._replace(percent=self.percent + move, moving=move != gap)

    def at(self, percent: int) -> Weight:
        """This weight at once, or the floor if that is more."""
        return self._replace(percent=max(self.floor, percent), moving=False)

    def _target(self, rate: float | None) -> int:
        return FULL if rate is None else max(self.floor, round(FULL * rate**3))
