"""What a sidecar remembers of its own beats, to see what the fleet has to decide about its container.

If a decision fails, the next beat finds the same again, because only ``attended`` forgets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.core.claims import Beat
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.view import Attend, Attended, BeatReply, MemberKey, member_incarnation, member_of
from sidecar.core.types import US_PER_S
from sidecar.store.own_holds import SeenHolds

DUPLICATE_BEATS: Final = 3
"""Another container under this name counts as a duplicate for this many beat intervals after its last beat."""


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

    @property
    def is_settled(self) -> bool:
        """Whether the fleet waits for nothing of this container: it is no newcomer, and no outcome depends on it."""
        return not (self._is_watched or self._is_arriving or self._waits_since is not None or self.is_duplicate)

    def unanswered(self) -> None:
        """Take it that a beat had no answer: the store may know it all the same."""
        self._is_unanswered = True

    def take(self, beat: Beat, reply: BeatReply) -> None:
        """Take the answer to a beat."""
        former, member = reply.former, MemberKey(beat.incarnation, beat.identity)
        if self._member == member and member.is_other(member_of(former)):
            self._duplicate_until = self._clock() + self._duplicate_s
        self._member = member
        self.holds.take(beat.instance, reply)
        # Our own row is there if an answer was lost.
        is_newcomer = not former or (self._is_unanswered and member_incarnation(former) == beat.incarnation)
        self._is_arriving = self._is_arriving or (beat.first and is_newcomer)

    def is_due(self) -> bool:
        """Whether the next beat needs a decision, whatever else it shows."""
        is_open = self._is_watched or self._waits_since is not None or self.holds.has_news
        return is_open or not self._has_attended or self.is_duplicate

    def attend(self, beat: Beat, reply: BeatReply) -> Attend:
        """The question to the fleet's rules that this beat asks."""
        first = (self._is_arriving and not self._has_attended) or self._waits_since is not None
        waited_us = 0 if self._waits_since is None else round((self._clock() - self._waits_since) * US_PER_S)
        beat = beat._replace(first=first)
        return Attend(beat, reply.struck, reply.silent, reply.alive, waited_us, self.holds.has_news)

    def attended(self, attend: Attend, answer: Attended) -> None:
        """Take the decision."""
        self._has_attended = True
        self._is_arriving = self.holds.has_news = False
        self._is_watched = answer.is_watched
        self._waits_since = self._clock() - attend.waited_us / US_PER_S if answer.is_waiting else None
