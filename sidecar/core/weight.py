"""How much of its usual load a container deserves: its success rate cubed, as the percent a balancer is told.

The cube is that of timmc's cascade (``success.py``): an app that fails half of its requests gets an eighth. What a
balancer hears must not flutter, least of all in a hundred containers at once: a target nearby changes nothing, and
nothing changes at once. It falls fast, for users feel every second of it; it rises slowly, so that a container that
has just healed is not flooded by all that was kept from it.

This room is handed rate and elapsed time. It must not know where requests come from, nor which balancer listens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FULL: Final = 100
FLOOR: Final = 10
"""Without any requests nobody would see that it is well again."""

FALL_PER_S: Final = 20.0
RISE_PER_S: Final = 5.0
BAND: Final = 0.1
"""The part of the present weight by which a target must differ to be set out for."""

LEAST_BAND: Final = 2


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
