"""The errors of this container by minute: for its own status page, and added to those of its service.

Errors count for the minute in which they were counted here, by the clock that also dates the entries of the ledger, so
that they never stand behind the cull that they caused. They are sent some seconds later. Nothing depends on them: a
count without a clear answer is dropped, because the store may have it. Without new errors nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from sidecar.core.claims import Unknown

INTERVAL_S: Final = 15.0
JITTER: Final = 0.3
"""The interval differs by up to this part, so that the sidecars of a fleet do not send at once."""

MINUTES: Final = 60
MINUTE_S: Final = 60.0
MOMENT_S: Final = 0.05
"""Delay after the end of a minute: a timer may ring a little early."""


class ErrorMinutes:
    """Counts the growth of ``total``, a count that only grows, by minute.

    ``add`` adds errors to minutes (Unix time / 60) of the service. ``wall`` gives Unix seconds. ``on_failure`` gets
    unforeseen exceptions.
    """

    def __init__(
        self,
        total: Callable[[], int],
        add: Callable[[Mapping[int, int]], Awaitable[int | Unknown]],
        *,
        wall: Callable[[], float],
        rng: Random,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._total = total
        self._add = add
        self._wall = wall
        self._rng = rng
        self._on_failure = on_failure
        self._counted = total()
        self._minute = self._current_minute()
        self._unsent: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def counts(self) -> list[int]:
        """Sixty counts, oldest first; the last is of the current minute."""
        self.count()
        return [self._kept.get(self._minute - age, 0) for age in reversed(range(MINUTES))]

    async def run(self) -> None:
        """Count and send until cancelled."""
        while True:
            left_s = INTERVAL_S * (1 + self._rng.uniform(-JITTER, JITTER))
            minute_ends_s = MINUTE_S - self._wall() % MINUTE_S + MOMENT_S
            if minute_ends_s < left_s:
                await asyncio.sleep(minute_ends_s)
                self.count()
                left_s -= minute_ends_s
            await asyncio.sleep(left_s)
            await self.turn()

    def count(self) -> None:
        """Count the errors since the last call for the minute of that call."""
        total = self._total()
        if total > self._counted:
            for minutes in (self._unsent, self._kept):
                minutes[self._minute] = minutes.get(self._minute, 0) + total - self._counted
        self._counted, self._minute = total, self._current_minute()
        oldest = self._minute - MINUTES
        self._kept = {minute: errors for minute, errors in self._kept.items() if minute > oldest}

    async def turn(self) -> None:
        """Send the errors since the last turn, if there are any."""
        self.count()
        minutes, self._unsent = self._unsent, {}
        if not minutes:
            return
        try:
            await self._add(minutes)
        except Exception as error:  # noqa: BLE001 - a picture must not end the sidecar
            self._on_failure(error)

    def _current_minute(self) -> int:
        return int(self._wall() // MINUTE_S)
