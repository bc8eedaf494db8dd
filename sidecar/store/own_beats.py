"""What a sidecar knows by itself: its last exchange with the store, and what its beats have shown.

From its beats it sees what the fleet has to decide about its container. If a decision fails, the next beat finds the
same again, because only ``attended`` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from sidecar.core.claims import Beat
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Epoch
from sidecar.core.fleet.view import Attend, Attended, BeatReply, Known, MemberKey
from sidecar.core.types import US_PER_S
from sidecar.store.holds import StoredHolds

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
        self.holds = StoredHolds(settings.window_us)
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
