"""Adds the errors of this container to those of its service, by minute, for the time line of the status page.

Nothing depends on these counts. A count that the store does not take is dropped: sent later, it would stand at another
minute. Without new errors nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from sidecar.core.types import Unknown

INTERVAL_S: Final = 15.0
JITTER: Final = 0.3
"""The interval differs by up to this part, so that the sidecars of a fleet do not send at once."""


class ErrorMinutes(Protocol):
    """What this needs of a budget."""

    async def add_errors(self, count: int) -> int | Unknown:
        """Add server errors to the current minute of the service."""


class ErrorSharing:
    """Shares the growth of ``total``, a count that only grows. ``on_failure`` gets unforeseen exceptions."""

    def __init__(
        self, total: Callable[[], int], budget: ErrorMinutes, *, rng: Random, on_failure: Callable[[Exception], None]
    ) -> None:
        self._total = total
        self._budget = budget
        self._rng = rng
        self._on_failure = on_failure
        self._shared = total()

    async def run(self) -> None:
        """Share until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S * (1 + self._rng.uniform(-JITTER, JITTER)))
            await self.turn()

    async def turn(self) -> None:
        """Send the errors since the last turn, if there are any."""
        total = self._total()
        count, self._shared = total - self._shared, total
        if count <= 0:
            return
        try:
            await self._budget.add_errors(count)
        except Exception as error:  # noqa: BLE001 - a picture must not end the sidecar
            self._on_failure(error)
