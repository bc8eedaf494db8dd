"""Finds the present incarnation of the app by the start times of the processes that answer scrapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SETTLED_PAGES: Final = 30


@dataclass(slots=True)
class AppIncarnation:
    """The newest start. It does not change when workers behind one port answer in turns.

    A replaced worker looks like a restarted app. So once an older process has answered after a newer one, a newer start
    counts only after ``SETTLED_PAGES`` pages without an answer of an older process.
    """

    start: float | None = None
    _has_workers: bool = False
    _newer: int = 0

    @property
    def app_start(self) -> str | None:
        """The start (Unix time in seconds) as text; None before one is known."""
        return None if self.start is None else repr(self.start)

    def see(self, start: float, *, is_born: bool) -> None:
        """Record that a process with this start has answered; ``is_born``: it began after the last scrape."""
        if self.start is None:
            self.start = start
        elif start <= self.start:
            self._has_workers = self._has_workers or self._newer > 0
            self._newer = 0
        else:
            self._newer += 1
            if (is_born and not self._has_workers) or self._newer >= SETTLED_PAGES:
                self.start, self._has_workers, self._newer = start, False, 0
