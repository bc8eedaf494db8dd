"""The bucket of a sidecar without Redis: the rules of ``core.grants``, for one process that knows no fleet."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.grants import RULES, Bucket, Quota
from sidecar.core.words import Answer, Beat, Claim, Fleet, Hold, Presence, Roll, Unknown

ALONE = Unknown("alone")


class MemoryBudget:
    """A bucket that is always there and ends with its process. ``clock_us`` gives its time in microseconds."""

    def __init__(self, strategy: str, quota: Quota, clock_us: Callable[[], int], spacing_us: int = 0) -> None:
        self._bucket = Bucket(RULES[strategy], quota, spacing_us)
        self._clock_us = clock_us

    async def claim(self, claim: Claim) -> Answer:
        """Granted or denied; never unknown."""
        return self._bucket.claim(claim.claim_id, self._clock_us())

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """A fleet of one."""
        return Fleet(alive=1, wanting=int(beat.presence is Presence.WANTS), down=int(beat.presence is Presence.DOWN))

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:  # noqa: ARG002
        """Unknown("alone"): there is nobody to tell."""
        return ALONE

    async def release(self, instance: str) -> bool | Unknown:  # noqa: ARG002 - as in hold
        """Unknown("alone")."""
        return ALONE

    async def roll(self) -> Roll | Unknown:
        """Unknown("alone")."""
        return ALONE

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""
