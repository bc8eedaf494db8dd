"""Notices a hold that Redis has lost: this sidecar saw it in force, and now it is gone, neither over nor released.

A released hold leaves a row for a window, so that its end can be told from its loss.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.fleet import hold
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.summary import Reading
from sidecar.core.types import US_PER_S, Hold

PLACES: Final = 2
"""A beat is answered with the hold of the service, and with that of the instance."""


class SeenHolds:
    """The holds of the service and of one instance, by the answers to beats. ``window_us``: that of the budget.

    ``has_news``: a lost hold has not been recorded as a data loss yet.
    """

    def __init__(self, window_us: int) -> None:
        self.has_news = False
        self._window_us = window_us
        self._seen: list[HoldRow | None] = [None] * PLACES
        self._lost: list[HoldRow | None] = [None] * PLACES
        self._scopes = [""] * PLACES
        self._now_us = 0

    def take(self, instance: str, reading: Reading) -> None:
        """Take the answer to a beat of ``instance``."""
        now_us = reading.reply.now_us
        is_recent, self._now_us = now_us - self._now_us < self._window_us, now_us
        self._scopes[1] = instance
        for place in range(PLACES):
            newest, seen = HoldRow.read(reading.reply.holds[place]), self._seen[place]
            if newest is not None:
                self._lost[place] = None
            elif is_recent and seen is not None and seen.left_us(now_us) and seen.at_us < now_us:
                self._lost[place], self.has_news = seen, True
            self._seen[place] = newest

    def put(self, held: Hold, for_us: int) -> None:
        """Take a hold that this sidecar has set for ``for_us`` microseconds: the next beat has to find it."""
        row = HoldRow(held.author, held.reason, round(held.until * US_PER_S) - for_us, for_us)
        for place, scope in enumerate(self._scopes):
            if scope == held.instance:
                self._seen[place], self._now_us = row, max(self._now_us, row.at_us)
                return

    @property
    def lost(self) -> Hold | None:
        """The hold that was lost, until the time at which it would have ended or a person sets another."""
        for scope, row in zip(self._scopes, self._lost, strict=True):
            if row is not None and row.left_us(self._now_us):
                return hold.shown(scope, row)
        return None
