"""How requests end: a rolling count of good and bad ones, and how many failed in a row.

Successes are kept twice: by the clock, and up to the newest request. While an app that was fine serves nothing, its
successes must not leave the ratio before the failures that came after them, or silence would turn it bad. Nor may they
make up the number of requests that a ratio needs, or one more failure, before which they leave, could turn it good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sidecar.core.life.window import RollingCounts

OK = "ok"
FAILED = "failed"


class Tally(NamedTuple):
    """Requests of the window, those that failed, the failures in a row, and successes that are only kept.

    ``kept`` left the window when no request took their place; they weigh in a ratio, and are no requests of the window.
    """

    requests: int = 0
    failed: int = 0
    consecutive: int = 0
    kept: int = 0


class Outcomes:
    """Counts of the last ``seconds`` seconds; ``turn`` makes a second the current one before anything is recorded."""

    def __init__(self, seconds: int, now_s: int) -> None:
        self._counts = RollingCounts(seconds, now_s)
        self._successes = RollingCounts(seconds, now_s)
        self._now_s = now_s
        self._consecutive = 0

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second. A row of failures ends when nothing is left of the window."""
        self._now_s = max(now_s, self._now_s)
        self._counts.turn(now_s)
        if not self._counts.total:
            self._consecutive = 0

    def record(self, ok: int, failed: int) -> None:
        """Add requests that ended in the current second. A success among them ends a row of failures."""
        if not ok and not failed:
            return
        self._successes.turn(self._now_s)
        self._successes.record(OK, ok)
        self._counts.record(OK, ok)
        self._counts.record(FAILED, failed)
        self._consecutive = 0 if ok else self._consecutive + failed

    def tally(self) -> Tally:
        """What there is to judge in the current second."""
        requests, counts = self._counts.total, self._counts.by_key()
        if not requests:
            return Tally()
        kept = self._successes.total - counts.get(OK, 0)
        return Tally(requests, counts.get(FAILED, 0), self._consecutive, kept)

    def clear(self) -> None:
        """Forget the window."""
        self._counts.clear()
        self._successes.clear()
        self._consecutive = 0

    def freeze(self, now: float) -> dict[str, Any]:
        """What ``thaw`` takes in, as that of the window."""
        counts, successes = self._counts.freeze(now), self._successes.freeze(now)
        return {"counts": counts, "successes": successes, "consecutive": self._consecutive}

    def thaw(self, frozen: Mapping[str, Any], now: float) -> None:
        """Hold what others held when it was ``now``; fails as that of the window does."""
        self._counts.thaw(frozen["counts"], now)
        self._successes.thaw(frozen["successes"], now)
        self._now_s = round(now - frozen["counts"]["age_s"])
        self._consecutive = int(frozen["consecutive"])

    def ever(self) -> dict[str, int]:
        """Requests since the beginning by how they ended, for counters that only grow."""
        return self._counts.ever()
