"""The settings of the fleet: what each sidecar sends with its requests and beats, and the strictest of several.

Sidecars of one service may run with different settings. All numbers are whole: times in microseconds, parts in
thousandths.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Self

from sidecar.core.fleet.records import StoredRecord
from sidecar.core.types import US_PER_S

WHOLE: Final = 1000
BEATS_TO_LIVE: Final = 3
STRATEGIES: Final = ("fixed", "previous", "log")
"""From the loosest to the strictest."""

OFF: Final = -1


class Share(NamedTuple):
    """A count, or with ``is_part`` a number of thousandths of the fleet."""

    amount: int
    is_part: bool = False

    def __str__(self) -> str:
        """As it is stored: ``10`` or ``500p``."""
        return f"{self.amount}p" if self.is_part else str(self.amount)

    @classmethod
    def load(cls, text: str) -> Self:
        """The share that is written so. Raises ValueError for other text."""
        return cls(int(text.removesuffix("p")), is_part=text.endswith("p"))

    def at_least(self, fleet: int) -> int:
        """This share of ``fleet``, a part rounded up: for what has to stay."""
        return -(-fleet * self.amount // WHOLE) if self.is_part else self.amount

    def at_most(self, fleet: int) -> int:
        """This share of ``fleet``, a part rounded down, but at least one and never all of several: for what may go."""
        if not self.is_part:
            return self.amount
        return max(1, min(fleet - 1, fleet * self.amount // WHOLE))


@dataclass(frozen=True, slots=True)
class FleetSettings(StoredRecord):
    """The settings that one sidecar sends with its requests. Both shares are texts (``10``, ``500p``)."""

    strategy: str = "log"
    """The rule that counts the tokens, one of ``STRATEGIES``."""
    capacity: str = "10"
    """Share: tokens in a window."""
    window_us: int = 600 * US_PER_S
    min_healthy: str = "500p"
    """Share: containers that have to stay available."""
    spacing_us: int = 0
    """Least time between two grants; 0: off."""
    trial: bool = True
    """Culls for one cause are limited until their outcome is known."""
    probation_us: int = 60 * US_PER_S
    refund_max: int = OFF
    """Most grants in a window if culls that helped give back tokens; -1: they do not, 0: three times the capacity."""
    after_loss_wait: bool = True
    """No grants for a window after a data loss."""
    beat_us: int = 10 * US_PER_S
    servers: str = ""
    """A digest of the store's address."""
    error_limit: int = 0
    """Errors in the window at which a container is sick; 0: not known."""

    @property
    def expiry_us(self) -> int:
        """How long a member that no longer beats stays listed."""
        return BEATS_TO_LIVE * self.beat_us

    def checked(self) -> Self:
        """The settings themselves. Raises ValueError for an unknown strategy or a text that is no share."""
        StoredRecord.checked(self)
        Share.load(self.capacity)
        Share.load(self.min_healthy)
        if self.strategy not in STRATEGIES or self.window_us < 1:
            raise ValueError("not valid settings")
        return self


REFUND_FACTOR: Final = 3


class Limits(NamedTuple):
    """The strictest of all settings in force, for a fleet of one size."""

    strategy: str
    capacity: int
    """Tokens a window."""
    floor: int
    """Containers that have to stay available."""
    refund_max: int
    """Grants a window at most, the refunded included; -1: no token is refunded."""
    window_us: int
    spacing_us: int
    trial: bool
    probation_us: int
    expiry_us: int
    after_loss_wait: bool
    error_limit: int
    """The lowest; 0: none is known."""


def limits(every: Iterable[FleetSettings], fleet: int) -> Limits:
    """Resolve all settings for ``fleet`` containers, available or not, and take the strictest of each."""
    return _strictest(tuple(dict.fromkeys(every)), fleet)


@lru_cache(maxsize=16)  # the settings hardly ever change, and every decision asks
def _strictest(every: tuple[FleetSettings, ...], fleet: int) -> Limits:
    return Limits(
        strategy=max((sent.strategy for sent in every), key=STRATEGIES.index),
        capacity=min(Share.load(sent.capacity).at_most(fleet) for sent in every),
        floor=max(Share.load(sent.min_healthy).at_least(fleet) for sent in every),
        refund_max=min(_refund_max(sent, fleet) for sent in every),
        window_us=max(sent.window_us for sent in every),
        spacing_us=max(sent.spacing_us for sent in every),
        trial=any(sent.trial for sent in every),
        probation_us=max(sent.probation_us for sent in every),
        expiry_us=max(sent.expiry_us for sent in every),
        after_loss_wait=any(sent.after_loss_wait for sent in every),
        error_limit=min((sent.error_limit for sent in every if sent.error_limit > 0), default=0),
    )


def _refund_max(settings: FleetSettings, fleet: int) -> int:
    if settings.refund_max == OFF or settings.strategy != "log":
        return OFF
    return settings.refund_max or REFUND_FACTOR * Share.load(settings.capacity).at_most(fleet)
