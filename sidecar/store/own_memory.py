"""What a sidecar remembers by itself: its last exchange with the store, its beats, and holds.

From its beats it sees what the fleet has to decide about its container. If a decision fails, the next beat finds the
same again, because only ``attended`` forgets it.

A local hold is one that the store could not take: it counts in this sidecar, and ends with its process. A hold is lost
if this sidecar saw it in force, and now it is gone, neither over nor released: a released hold leaves a row for a
window, so that its end can be told from its loss.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from sidecar.core.claims import Beat, Denied
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Epoch, HoldRow
from sidecar.core.fleet.view import Attend, Attended, BeatReply, Known, MemberKey
from sidecar.core.types import US_PER_S, Hold

DUPLICATE_BEATS: Final = 3
"""Another container under this name counts as a duplicate for this many beat intervals after its last beat."""


class StoreExchange(NamedTuple):
    """An exchange with the store, and what it showed; without any, the store's time is 0."""

    begin: float = 0.0
    end: float = 0.0
    """Seconds of our clock."""
    now_us: int = 0
    """The store's clock."""
    epoch: Epoch = Epoch()

    def known_at(self, later: StoreExchange) -> Known:
        """What this exchange tells at the end of a later one. The clocks may seem to differ by the time of both."""
        if not self.now_us:
            return Known(self.epoch)
        elapsed_s, slack_s = later.end - self.end, self.end - self.begin + later.end - later.begin
        return Known(self.epoch, self.now_us, round(elapsed_s * US_PER_S), round(slack_s * US_PER_S))


class Standing(Enum):
    """What this sidecar knows of the fleet's decision about its container. All but SETTLED need one with each beat."""

    UNDECIDED = auto()
    """There was none yet."""
    NEWCOMER = auto()
    """None yet, and no other container had its name before: it may replace one that was culled."""
    WAITING = auto()
    """A newcomer, and the sidecar of the container that it may replace was there until lately."""
    WATCHED = auto()
    """A replacement whose probation is not over."""
    SETTLED = auto()


class OwnBeats:
    """What the beats of this sidecar have shown. ``clock`` gives seconds that also pass while the machine sleeps."""

    def __init__(self, settings: FleetSettings, clock: Callable[[], float]) -> None:
        self.holds = SeenHolds(settings.window_us)
        self._clock = clock
        self._duplicate_s = DUPLICATE_BEATS * settings.beat_us / US_PER_S
        self._duplicate_until = -1.0
        self._member = MemberKey()
        self._standing = Standing.UNDECIDED
        self._waits_since = 0.0
        self._had_no_answer = False

    @property
    def is_duplicate(self) -> bool:
        """Whether another container runs under the name of this one."""
        return self._clock() < self._duplicate_until

    def unanswered(self) -> None:
        """Take it that a beat had no answer: the store may know it all the same."""
        self._had_no_answer = True

    def take(self, beat: Beat, reply: BeatReply) -> None:
        """Take the answer to a beat."""
        former, member = MemberKey.load(reply.former), MemberKey(beat.incarnation, beat.identity)
        if self._member == member and member.is_other(former):
            self._duplicate_until = self._clock() + self._duplicate_s
        self._member = member
        self.holds.take(beat.instance, reply)
        is_own_row = self._had_no_answer and former.incarnation == beat.incarnation
        if self._standing is Standing.UNDECIDED and beat.first and (not reply.former or is_own_row):
            self._standing = Standing.NEWCOMER

    def is_due(self) -> bool:
        """Whether the next beat needs a decision, whatever else it shows."""
        return self._standing is not Standing.SETTLED or self.holds.has_unrecorded_loss or self.is_duplicate

    def attend(self, beat: Beat, reply: BeatReply) -> Attend:
        """The question to the fleet's rules that this beat asks."""
        is_waiting = self._standing is Standing.WAITING
        waited_us = round((self._clock() - self._waits_since) * US_PER_S) if is_waiting else 0
        beat = beat._replace(first=is_waiting or self._standing is Standing.NEWCOMER)
        return Attend(beat, reply.struck, reply.silent, reply.alive, waited_us, self.holds.has_unrecorded_loss)

    def attended(self, answer: Attended) -> None:
        """Take the decision."""
        self.holds.has_unrecorded_loss = False
        if not answer.is_waiting:
            self._standing = Standing.WATCHED if answer.is_watched else Standing.SETTLED
        elif self._standing is not Standing.WAITING:
            self._standing, self._waits_since = Standing.WAITING, self._clock()


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


class SeenHolds:
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
