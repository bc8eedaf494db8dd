"""Keeps the newest reports for those who watch, with the input they came by. Without a watcher it keeps nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sidecar.core.app_reports import Report

Offer = Callable[[Sequence[Report]], bool]
"""Takes reports; False if too many are waiting."""

MOST: Final = 200
WATCHED_S: Final = 10.0
"""Time after a look at the reports in which they are still kept for the next look."""


class Noted(NamedTuple):
    """A report at ``at`` (Unix seconds); a text is why a report was refused."""

    number: int
    at: float
    source: str
    report: Report | str


class ReportTap:
    """The last ``MOST`` reports that the controller took or that were refused, in the order of arrival."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._count = 0
        self._noted: deque[Noted] = deque(maxlen=MOST)
        self._end: asyncio.TimerHandle | None = None

    def note(self, source: str, reports: Sequence[Report | str]) -> None:
        """Keep these reports if somebody watches."""
        if self._end is None:
            return
        at = self._wall()
        for report in reports:
            self._count += 1
            self._noted.append(Noted(self._count, at, source, report))

    def tapped(self, source: str, offer: Offer) -> Offer:
        """``offer``, whose accepted reports are kept under the name ``source``."""

        def offer_and_note(reports: Sequence[Report]) -> bool:
            if not offer(reports):
                return False
            self.note(source, reports)
            return True

        return offer_and_note

    def watch(self, after: int | None) -> tuple[int, list[Noted]]:
        """The number of the last report, and the reports behind the number ``after``, none for None.

        From now on reports are kept, for ``WATCHED_S``.
        """
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(WATCHED_S, self._forget)
        newest = [] if after is None else [noted for noted in self._noted if noted.number > after]
        return self._count, newest

    def _forget(self) -> None:
        self._end = None
        self._noted.clear()
