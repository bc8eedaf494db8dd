"""How much of its usual load a container deserves: its success rate cubed, as the percent a balancer is told.

The cube is that of timmc's cascade (``success.py``): an app that fails half of its requests gets an eighth. What a
balancer hears must not flutter, least of all in a hundred containers at once: a target nearby changes nothing, and
nothing changes at once. It falls fast, for users feel every second of it; it rises slowly, so that a container that
has just healed is not flooded by all that was kept from it.

Where no requests are known, as of an app that reports only errors, a suspect is drained softly: its weight is lowered
at once, without a token, and rises again when it recovers. It is lowered only as far as the others can make up for: the
more containers suffer, the less each of them is spared.

This room is handed rate and elapsed time. It must not know where requests come from, nor which balancer listens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from sidecar.core.types import Fleet, Policy, Presence

FULL: Final = 100
FLOOR: Final = 10
"""Without any requests nobody would see that it is well again."""

FALL_PER_S: Final = 20.0
RISE_PER_S: Final = 5.0
BAND: Final = 0.1
"""The part of the present weight by which a target must differ to be set out for."""

LEAST_BAND: Final = 2

SMALLEST_FLEET: Final = 3
"""Of fewer, one that is drained leaves at most one to carry its load."""

HEADROOM: Final = 1.25
"""No container is sent more than this many times its usual load by what the suspects are spared."""


def soft_drain(
    presence: Presence, success_rate: float | None, fleet: Fleet | None, policy: Policy, *, is_heard: bool
) -> int:
    """Percent of its weight that a container keeps because it is suspect: as little as the others can make up for.

    Of n containers s are suspect, so n - s + s * w have to carry the load of n, with ``HEADROOM``. ``fleet`` is as it
    was last heard of, None if that is unknown; ``is_heard``: this suspect is one of its ``suspect``. ``FULL`` where
    there is no soft drain, also where no container is well: there is no better place for a request to go. Nor is there
    one while the fleet's median has reached the limit: then chance makes suspects, and half of the fleet would be
    spared.
    """
    if not policy.soft_drain or not policy.enforce or presence is not Presence.SUSPECT or success_rate is not None:
        return FULL
    if fleet is None or fleet.alive < SMALLEST_FLEET:
        return FULL
    if 0 < policy.error_limit <= (fleet.median_errors or 0):
        return FULL
    suspect = max(1, fleet.suspect + (not is_heard))
    well = fleet.alive - suspect
    if well <= 0:
        return FULL
    needed = (fleet.alive + fleet.down) / HEADROOM - well
    return min(FULL, max(0, ceil(FULL * needed / suspect)))


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one container in percent, never below ``floor``; a floor of 100 turns weighing off.

    ``moving``: it has left a target behind and has not reached the next.
    """

    percent: int = FULL
    floor: int = FLOOR
    moving: bool = False

    def step(self, rate: float | None, elapsed_s: float) -> Weight:
        """The weight ``elapsed_s`` seconds after the last step, at a success rate within [0, 1]; None: nothing known.

        It sets out for a target outside of its band, or at either end, and then goes all the way.
        """
        target = self._target(rate)
        gap = target - self.percent
        if not self.moving and target not in (self.floor, FULL) and abs(gap) < max(LEAST_BAND, BAND * self.percent):
            return self
        move = min(max(gap, -int(FALL_PER_S * elapsed_s)), int(RISE_PER_S * elapsed_s))
        return replace(self, percent=self.percent + move, moving=move != gap)

    def lowered(self, percent: int) -> Weight:
        """The weight of a container that is drained softly to this percent, as far as the floor allows."""
        return replace(self, percent=max(self.floor, percent), moving=False)

    def fresh(self) -> Weight:
        """The weight of a container of which nothing is known."""
        return replace(self, percent=FULL, moving=False)

    def thaw(self, percent: int, *, moving: bool) -> Weight:
        """This weight, where another one stood, as far as the floor allows; ValueError for what no weight can be."""
        if not 1 <= percent <= FULL:
            raise ValueError(f"{percent} is not a weight")
        return replace(self, percent=max(self.floor, percent), moving=moving)

    def _target(self, rate: float | None) -> int:
        return FULL if rate is None else max(self.floor, round(FULL * rate**3))
