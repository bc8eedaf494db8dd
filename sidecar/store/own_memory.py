"""What a sidecar remembers by itself: its last exchange with the store, its beats, and holds.

From its beats it sees what the fleet has to decide about its container. If a decision fails, the next beat finds the
same again, because only ``attended`` forgets it.

A local hold is one that the store could not take: it counts in this sidecar, and ends with its process. A hold is lost
if this sidecar saw it in force, and now it is gone, neither over nor released: a released hold leaves a row for a
window, so that its end can be told from its loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sidecar.core.claims import Beat, Denied
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Epoch, HoldRow
from sidecar.core.fleet.view import Attend, Attended, BeatReply, Known, MemberKey
from sidecar.core.types import US_PER_S, Hold

DUPLICATE_BEATS: Final = 3
"""Another container under this name counts as a duplicate for this many beat intervals after its last beat."""


class StoreExchange(NamedTuple):
    """An exchange with the store: its begin and end in seconds of our clock, and what it showed of the store."""

    begin: float = 0.0
    end: float = 0.0
    now_us: int = 0
    epoch: Epoch = Epoch()

    def known_after(self, begin: float, end: float) -> Known:
        """What this exchange tells at the end of a later one. The clocks may seem to differ by the time of both."""
        if not self.now_us:
            return Known(self.epoch)
        elapsed_s, slack_s = end - self.end, self.end - self.begin + end - begin
        return Known(self.epoch, self.now_us, round(elapsed_s * US_PER_S), round(slack_s * US_PER_S))


class OwnBeats:
    """``clock`` gives seconds that also pass while the machine sleeps."""

    def __init__(self, settings: FleetSettings, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._duplicate_s = DUPLICATE_BEATS * settings.beat_us / US_PER_S
        self._duplicate_until = -1.0
        self._member = MemberKey()
        self.holds = SeenHolds(settings.window_us)
        self._has_attended = self._is_watched = self._is_arriving = self._is_unanswered = False
        self._waits_since: float | None = None

    @property
    def is_duplicate(self) -> bool:
        """Whether another container runs under the name of this one."""
        return self._clock() < self._duplicate_until

    def unanswered(self) -> None:
        """Take it that a beat had no answer: the store may know it all the same."""
        self._is_unanswered = True

    def take(self, beat: Beat, reply: BeatReply) -> None:
        """Take the answer to a beat."""
        former, member = reply.former, MemberKey(beat.incarnation, beat.identity)
        if self._member == member and member.is_other(MemberKey.load(former)):
            self._duplicate_until = self._clock() + self._duplicate_s
        self._member = member
        self.holds.take(beat.instance, reply)
        # Our own row is there if an answer was lost.
        is_newcomer = not former or (self._is_unanswered and MemberKey.load(former).incarnation == beat.incarnation)
        self._is_arriving = self._is_arriving or (beat.first and is_newcomer)

    def is_due(self) -> bool:
        """Whether the next beat needs a decision, whatever else it shows."""
        is_open = self._is_watched or self._waits_since is not None or self.holds.has_lost_hold
        return is_open or not self._has_attended or self.is_duplicate

    def attend(self, beat: Beat, reply: BeatReply) -> Attend:
        """The question to the fleet's rules that this beat asks."""
        first = (self._is_arriving and not self._has_attended) or self._waits_since is not None
        waited_us = 0 if self._waits_since is None else round((self._clock() - self._waits_since) * US_PER_S)
        beat = beat._replace(first=first)
        return Attend(beat, reply.struck, reply.silent, reply.alive, waited_us, self.holds.has_lost_hold)

    def attended(self, attend: Attend, answer: Attended) -> None:
        """Take the decision."""
        self._has_attended = True
        self._is_arriving = self.holds.has_lost_hold = False
        self._is_watched = answer.is_watched
        self._waits_since = self._clock() - attend.waited_us / US_PER_S if answer.is_waiting else None


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
    """The holds of the service and of one instance, by the answers to beats. ``window_us``: that of the budget.

    ``has_lost_hold``: a lost hold has not been recorded as a data loss yet.
    """

    def __init__(self, window_us: int) -> None:
        self.has_lost_hold = False
        self._window_us = window_us
        self._seen: dict[str, HoldRow] = {}
        self._lost: dict[str, HoldRow] = {}
        self._instance = ""
        self._now_us = 0

    def take(self, instance: str, reply: BeatReply) -> None:
        """Take the answer to a beat of the instance."""
        self._instance = instance
        is_recent, self._now_us = reply.now_us - self._now_us < self._window_us, reply.now_us
        for scope, row in self._seen.items():
            if scope not in reply.holds and is_recent and row.left_us(reply.now_us) and row.at_us < reply.now_us:
                self._lost[scope], self.has_lost_hold = row, True
        self._seen = dict(reply.holds)
        self._lost = {scope: row for scope, row in self._lost.items() if scope not in reply.holds}

    def put(self, held: Hold, for_us: int) -> None:
        """Take a hold that this sidecar has set for ``for_us`` microseconds: the next beat has to find it."""
        row = HoldRow(held.author, held.reason, round(held.until * US_PER_S) - for_us, for_us)
        if held.instance in ("", self._instance):
            self._seen[held.instance], self._now_us = row, max(self._now_us, row.at_us)

    @property
    def lost(self) -> Hold | None:
        """The hold that was lost, until the time at which it would have ended or a person sets another."""
        rows = sorted(self._lost.items())
        return next((row.shown(scope) for scope, row in rows if row.left_us(self._now_us)), None)
