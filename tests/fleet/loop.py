"""The event loop of the laboratory: time jumps to the next event, so a run is quick and repeatable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, Final

from harness.virtual_time import VirtualLoop

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0."""


class FleetLoop(VirtualLoop):
    """Runs a fleet from second 0 on. A failure that nothing has handled ends the run."""

    def __init__(self) -> None:
        super().__init__(start_s=0.0)
        self._failures: list[Exception] = []
        self.set_exception_handler(lambda _loop, context: self._keep(context))

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.time()

    @property
    def wall_s(self) -> float:
        """Unix time."""
        return EPOCH_S + self.now

    def plan(self, at_s: float, event: Callable[[], object]) -> None:
        """Plan an event of the world; an overdue one comes next, one at infinity never."""
        if at_s < inf:
            self.call_at(max(at_s, self.now), event)

    def run(self, until_s: float) -> None:
        """Let the time pass. Raises ExceptionGroup with the failures of the run."""
        self.call_at(until_s, self.stop)
        self.run_forever()
        if self._failures:
            raise ExceptionGroup("parts of the fleet failed", self._failures)

    def close(self) -> None:
        """Cancel all tasks and end."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        super().close()

    def fail(self, error: Exception) -> None:
        """End the run with this failure."""
        self._failures.append(error)
        self.stop()

    def _keep(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error if isinstance(error, Exception) else RuntimeError(str(context)))


def seeded(seed: str) -> Random:
    """A generator of random numbers, the same ones for the same seed."""
    return Random(seed)
