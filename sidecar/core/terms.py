"""The terms of the shared bucket: what a sidecar brings to every claim and beat.

All numbers are whole, so that the Lua of the shared bucket reckons the same: times in microseconds, parts in
thousandths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.core.words import US_PER_S

WHOLE: Final = 1000
BEATS_TO_LIVE: Final = 3
STRATEGIES: Final = ("log", "previous", "fixed")


class Share(NamedTuple):
    """A count, or with ``is_part`` so many thousandths of the fleet."""

    amount: int
    is_part: bool = False

    def __str__(self) -> str:
        """As the scripts read it: ``10`` or ``500p``."""
        return f"{self.amount}p" if self.is_part else str(self.amount)

    @classmethod
    def read(cls, text: str) -> Share:
        """The share that is written so. Raises ValueError for other text."""
        return cls(int(text.removesuffix("p")), is_part=text.endswith("p"))

    def at_least(self, fleet: int) -> int:
        """So many of ``fleet``, a part rounded up: for what has to stay."""
        return -(-fleet * self.amount // WHOLE) if self.is_part else self.amount

    def at_most(self, fleet: int) -> int:
        """So many of ``fleet``, a part rounded down, but one at least and never all of several: for what may go."""
        if not self.is_part:
            return self.amount
        return max(1, min(fleet - 1, fleet * self.amount // WHOLE))


TEN: Final = Share(10)
HALF: Final = Share(500, is_part=True)


@dataclass(frozen=True, slots=True)
class Terms:
    """What one sidecar asks by. ``0`` turns ``spacing_us``, ``brake`` and ``useless_after`` off.

    ``brake`` in thousandths of the alive. ``earn_max``: -1 is off, 0 is three times the capacity, else a count.
    ``lost_is_empty``: after a loss of memory nobody gets a token for a window. The server is number ``index`` of
    ``servers``, and has its share of everything that is a number of culls.
    """

    strategy: str = "log"
    capacity: Share = TEN
    window_us: int = 600 * US_PER_S
    min_healthy: Share = HALF
    never_last: bool = True
    spacing_us: int = 0
    brake: int = 500
    probation_us: int = 60 * US_PER_S
    useless_after: int = 3
    earn_max: int = -1
    lost_is_empty: bool = True
    beat_us: int = 10 * US_PER_S
    index: int = 0
    servers: int = 1

    def __str__(self) -> str:
        """As the scripts read it; terms that differ in anything differ here."""
        flags = f"{int(self.never_last)}{int(self.lost_is_empty)}"
        numbers = (self.window_us, self.spacing_us, self.brake, self.probation_us, self.useless_after, self.earn_max)
        rest = (self.beat_us, self.index, self.servers)
        return "|".join(map(str, (self.strategy, self.capacity, self.min_healthy, flags, *numbers, *rest)))

    @property
    def expiry_us(self) -> int:
        """How long a member that is not heard of stays one."""
        return BEATS_TO_LIVE * self.beat_us
