"""The bucket of a sidecar without Redis: the rules of ``core.grants``, for one process."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.grants import RULES, Bucket, Quota
from sidecar.core.words import Answer, Unknown


class MemoryBudget:
    """A bucket that is always there and ends with its process. ``clock_us`` gives its time in microseconds."""

    def __init__(self, strategy: str, quota: Quota, clock_us: Callable[[], int]) -> None:
        self._bucket = Bucket(RULES[strategy], quota)
        self._clock_us = clock_us

    async def claim(self, claim_id: str) -> Answer:
        """Granted or denied; never unknown."""
        return self._bucket.claim(claim_id, self._clock_us())

    async def warm(self) -> Unknown | None:
        """None: there is nothing that could be away."""
        return None

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""
