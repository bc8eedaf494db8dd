"""The errors of the last hour by minute, for the status page; the count is read once a minute."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

MINUTES: Final = 60
MINUTE_S: Final = 60.0


class ErrorHistogram:
    """Errors by minute, from ``total``, a count that only grows; ``clock`` gives seconds."""

    def __init__(self, total: Callable[[], int], clock: Callable[[], float]) -> None:
        self._total = total
        self._clock = clock
        self._past = deque([0] * (MINUTES - 1), maxlen=MINUTES - 1)
        self._minute = self._current_minute()
        self._before = total()

    def counts(self) -> list[int]:
        """Sixty counts, oldest first; the last is of the current minute."""
        self._turn()
        return [*self._past, self._running()]

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            await asyncio.sleep(MINUTE_S - self._clock() % MINUTE_S)
            self._turn()

    def _turn(self) -> None:
        """End the minute, if it is over. Errors since the last turn count for the minute that ends."""
        minute = self._current_minute()
        steps = minute - self._minute
        if steps <= 0:
            return
        self._past.append(self._running())
        self._past.extend([0] * min(steps - 1, MINUTES))
        self._minute, self._before = minute, self._total()

    def _running(self) -> int:
        return max(0, self._total() - self._before)

    def _current_minute(self) -> int:
        return int(self._clock() // MINUTE_S)
