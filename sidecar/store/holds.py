"""The holds that a sidecar knows by itself: its local ones, and those that it saw in the store.

A local hold is one that the store could not take: it counts in this sidecar, and ends with its process. A hold is lost
if this sidecar saw it in force, and now it is gone, neither over nor released: a released hold leaves a row for a
window, so that its end can be told from its loss.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.claims import Denied
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.view import BeatReply
from sidecar.core.types import US_PER_S, Hold


class LocalHolds:
    """``wall`` gives Unix seconds; ``instance`` is the container of this sidecar."""

    def __init__(self, wall: Callable[[], float], instance: str) -> None:
        self._wall = wall
        self._instance = instance
        self._holds: dict[str, Hold] = {}

    @property
    def in_force(self) -> Hold | None:
        """The local hold of the service, else that of the instance, while it lasts."""
        return self.of("") or self.of(self._instance)

    def of(self, instance: str) -> Hold | None:
        """The local hold of this instance, ``""`` for the service, while it lasts."""
        hold = self._holds.get(instance)
        if hold is not None and hold.until <= self._wall():
            del self._holds[instance]
            return None
        return hold

    def covers(self, instance: str) -> bool:
        """Whether a hold of ``instance``, ``""`` for the service, holds this sidecar."""
        return instance in ("", self._instance)

    def begin(self, instance: str, author: str, reason: str, for_s: float) -> Hold | None:
        """Hold this sidecar for ``for_s`` seconds; None if the hold is of another instance."""
        if not self.covers(instance):
            return None
        self._holds[instance] = Hold(author, reason, self._wall() + for_s, instance)
        return self._holds[instance]

    def end(self, hold: Hold | None) -> None:
        """End this hold, unless another one has replaced it."""
        if hold is not None and self._holds.get(hold.instance) is hold:
            del self._holds[hold.instance]

    def refusal(self) -> Denied | None:
        """The answer to a claim under a local hold; None without one."""
        hold = self.in_force
        return Denied("hold", 0, 0, hold.until - self._wall(), hold=hold) if hold else None


class StoredHolds:
    """The holds of the service and of one instance, by the answers to beats. ``window_us``: that of the budget."""

    def __init__(self, window_us: int) -> None:
        self.has_unrecorded_loss = False  # a hold was lost, and the fleet has not recorded it as a data loss yet
        self._window_us = window_us
        self._stored: dict[str, HoldRow] = {}
        self._lost: dict[str, HoldRow] = {}
        self._instance = ""
        self._now_us = 0

    def take(self, instance: str, reply: BeatReply) -> None:
        """Take the answer to a beat of the instance."""
        self._instance = instance
        is_recent, self._now_us = reply.now_us - self._now_us < self._window_us, reply.now_us
        for scope, row in self._stored.items():
            if scope not in reply.holds and is_recent and row.left_us(reply.now_us) and row.at_us < reply.now_us:
                self._lost[scope], self.has_unrecorded_loss = row, True
        self._stored = dict(reply.holds)
        self._lost = {scope: row for scope, row in self._lost.items() if scope not in reply.holds}

    def put(self, hold: Hold, for_us: int) -> None:
        """Take a hold that this sidecar has set for ``for_us`` microseconds: the next beat has to find it."""
        row = HoldRow(hold.author, hold.reason, round(hold.until * US_PER_S) - for_us, for_us)
        if hold.instance in ("", self._instance):
            self._stored[hold.instance], self._now_us = row, max(self._now_us, row.at_us)

    @property
    def lost(self) -> Hold | None:
        """The hold that was lost, until the time at which it would have ended or a person sets another."""
        rows = sorted(self._lost.items())
        return next((row.shown(scope) for scope, row in rows if row.left_us(self._now_us)), None)
