"""How requests end: a rolling count of good and bad ones, and how many failed in a row.

The ring is turned when something is recorded and not by the clock alone: while an app that was fine serves nothing, old
successes must not leave the window before the failures that came after them, or silence would turn the ratio bad.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.core.window import RollingCounts

OK = "ok"
FAILED = "failed"


class Tally(NamedTuple):
    """Requests of the window, those of them that failed, and the failures in a row at its end."""

    requests: int = 0
    failed: int = 0
    consecutive: int = 0


class Outcomes:
    """Counts of the last ``seconds`` seconds up to the newest record; nothing once that is as long ago."""

    def __init__(self, seconds: int, now_s: int) -> None:
        self._counts = RollingCounts(seconds, now_s)
        self._recorded_s = now_s
        self._consecutive = 0

    def record(self, ok: int, failed: int, now_s: int) -> None:
        """Add requests that ended in second ``now_s``. A success among them ends a row of failures."""
        if not ok and not failed:
            return
        if self._is_over(now_s):
            self._consecutive = 0
        self._counts.turn(now_s)
        self._recorded_s = max(now_s, self._recorded_s)
        self._counts.record(OK, ok)
        self._counts.record(FAILED, failed)
        self._consecutive = 0 if ok else self._consecutive + failed

    def tally(self, now_s: int) -> Tally:
        """What there is to judge in second ``now_s``."""
        if self._is_over(now_s):
            return Tally()
        return Tally(self._counts.total, self._counts.by_key().get(FAILED, 0), self._consecutive)

    def clear(self) -> None:
        """Forget the window."""
        self._counts.clear()
        self._consecutive = 0

    def ever(self) -> dict[str, int]:
        """Requests since the beginning by how they ended, for counters that only grow."""
        return self._counts.ever()

    def _is_over(self, now_s: int) -> bool:
        return now_s - self._recorded_s >= self._counts.seconds
