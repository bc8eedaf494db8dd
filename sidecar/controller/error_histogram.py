"""Keeps the errors of the last hour by minute: it wakes once a minute, and reads one number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.core.explain.hour_counts import Hour

MINUTE_S: Final = 60.0


class Minutes:
    """``ever`` is how many errors there have been, ``clock`` gives seconds."""

    def __init__(self, ever: Callable[[], int], clock: Callable[[], float]) -> None:
        self.ever = ever
        self._clock = clock
        self._hour = Hour(self._minute(), ever())

    def counts(self) -> list[int]:
        """Sixty counts, oldest first, the last being of the minute that runs."""
        self._turn()
        return self._hour.counts(self.ever())

    def began(self) -> float:
        """When the minute that runs began, on the clock."""
        return self._minute() * MINUTE_S

    def restore(self, counts: Sequence[int], ever: int, began: float) -> None:
        """Go on with what others counted: sixty minutes, the last of which ``began`` then on this clock.

        ``ever`` is how many errors they had counted. Where the count goes on from theirs, what came since is of it.
        """
        minute = min(round(began / MINUTE_S), self._minute())
        self._hour.restore(minute, counts, min(ever, self.ever()))

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            await asyncio.sleep(MINUTE_S - self._clock() % MINUTE_S)
            self._turn()

    def _turn(self) -> None:
        self._hour.turn(self._minute(), self.ever())

    def _minute(self) -> int:
        return int(self._clock() // MINUTE_S)
