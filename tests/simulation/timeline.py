"""Virtual time: what is to happen next, in order, and nothing that waits."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0: a boundary of the article's windows of ten minutes."""


class Timeline:
    """Events by the second they are due; of those due together the one that was planned first comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def wall_us(self) -> int:
        """Microseconds of the bucket's clock."""
        return round((EPOCH_S + self.now) * 1_000_000)

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Plan an event; one that is overdue comes next."""
        heappush(self._planned, (max(when, self.now), next(self._order), event))

    def run(self, until: float) -> None:
        """Let everything happen that is due before ``until``."""
        while self._planned and self._planned[0][0] < until:
            self.now, _, event = heappop(self._planned)
            event()
        self.now = until
