"""What came in each of the last sixty minutes, from a count that only grows.

It is told of the count once a minute, so nothing that is counted costs anything here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

MINUTES: Final = 60


class Hour:
    """Increments by minute of a count that stands at ``ever``; minutes are whole numbers of any one clock."""

    def __init__(self, minute: int, ever: int) -> None:
        self._over = deque([0] * (MINUTES - 1), maxlen=MINUTES - 1)
        self._minute = minute
        self._before = ever

    def turn(self, minute: int, ever: int) -> None:
        """Make ``minute`` the current one. What came while nobody turned is of the minute that ends.

        A clock that stands or steps back ends no minute.
        """
        steps = minute - self._minute
        if steps <= 0:
            return
        self._over.append(self._running(ever))
        self._over.extend([0] * min(steps - 1, MINUTES))
        self._minute, self._before = minute, ever

    def counts(self, ever: int) -> list[int]:
        """Sixty counts, oldest first; the last is of the minute that still runs, ``ever`` being the count now."""
        return [*self._over, self._running(ever)]

    def restore(self, minute: int, counts: Sequence[int], ever: int) -> None:
        """Go on with what ``counts`` of another hour gave while ``minute`` ran; here the count was ``ever`` then."""
        *over, running = counts
        self._over = deque([*[0] * (MINUTES - 1), *over], maxlen=MINUTES - 1)
        self._minute, self._before = minute, ever - running

    def _running(self, ever: int) -> int:
        return max(0, ever - self._before)
