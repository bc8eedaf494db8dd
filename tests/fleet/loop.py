"""The event loop of a laboratory fleet: time jumps to the next event, so a run is quick and repeatable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, Final

from harness.virtual_time import VirtualLoop

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0: a boundary of the article's windows of ten minutes."""


class FleetLoop(VirtualLoop):
    """Runs a fleet from second 0 on. ``failures``: exceptions that nothing has handled; the run ends with the first."""

    def __init__(self) -> None:
        super().__init__(start_s=0.0)
        self.failures: list[Exception] = []
        self.set_exception_handler(lambda _loop, context: self._keep(context))

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.time()

    @property
    def wall_s(self) -> float:
        """Unix time."""
        return EPOCH_S + self.now

    @property
    def wall_us(self) -> int:
        """Microseconds of the store's clock."""
        return round(self.wall_s * 1_000_000)

    def plan(self, when: float, event: Callable[[], object]) -> None:
        """Plan an event of the world; an overdue one comes next, one at infinity never."""
        if when < inf:
            self.call_at(max(when, self.now), event)

    def run(self, until: float) -> None:
        """Let the time pass. Raises ExceptionGroup with the failures of the run."""
        self.call_at(until, self.stop)
        self.run_forever()
        if self.failures:
            raise ExceptionGroup("parts of the fleet failed", self.failures)

    def close(self) -> None:
        """Cancel all tasks and end."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        super().close()

    def fail(self, error: Exception) -> None:
        """Keep a failure, and end the run with it."""
        self.failures.append(error)
        self.stop()

    def _keep(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error if isinstance(error, Exception) else RuntimeError(str(context)))


def seeded(seed: str) -> Random:
    """A generator of random numbers, the same ones for the same seed."""
    return Random(seed)
