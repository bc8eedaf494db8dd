"""The bucket of a sidecar without Redis: the rules of ``core.grants``, for one process that knows no fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.core.grants import RULES, Bucket, Quota
from sidecar.core.stream import EventStream
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Presence, Roll, Unknown

ALONE = Unknown("alone")

MOST_EVENTS: Final = 1000
"""So many entries are kept: they lie in the memory of this process."""


class MemoryBudget:
    """A bucket that is always there and ends with its process. ``clock_us`` gives its time in microseconds."""

    def __init__(self, strategy: str, quota: Quota, clock_us: Callable[[], int], spacing_us: int = 0) -> None:
        self._bucket = Bucket(RULES[strategy], quota, spacing_us)
        self._events = EventStream(MOST_EVENTS)
        self._clock_us = clock_us
        self._down: tuple[Beat, int] | None = None

    async def claim(self, claim: Claim) -> Answer:
        """Granted or denied; never unknown."""
        return self._bucket.claim(claim.claim_id, self._clock_us())

    async def retire(self, lease: Lease) -> Answer:  # noqa: ARG002 - as in hold
        """Unknown("alone"): without a fleet nobody takes over meanwhile."""
        return ALONE

    async def resign(self, instance: str, holder: str) -> bool | Unknown:  # noqa: ARG002 - as in hold
        """Unknown("alone")."""
        return ALONE

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """A fleet of one; what takes the place of a container that was culled goes into the ledger."""
        now_us = self._clock_us()
        self._watch(beat, now_us)
        wants, is_down = beat.presence is Presence.WANTS, beat.presence is Presence.DOWN
        used, capacity = self._bucket.used(now_us), self._bucket.quota.capacity
        return Fleet(alive=1, wanting=int(wants), down=int(is_down), used=used, capacity=capacity)

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:  # noqa: ARG002
        """Unknown("alone"): there is nobody to tell."""
        return ALONE

    async def release(self, instance: str) -> bool | Unknown:  # noqa: ARG002 - as in hold
        """Unknown("alone")."""
        return ALONE

    async def roll(self) -> Roll | Unknown:
        """Unknown("alone")."""
        return ALONE

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """How many were new; they end with the process."""
        return self._events.note(entries, self._clock_us())

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """The entries of this process."""
        return self._events.entries(since, after, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether this process has not said it yet."""
        return self._events.first(word, for_s, self._clock_us())

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _watch(self, beat: Beat, now_us: int) -> None:
        former, since_us = self._down or (None, 0)
        is_known = former is not None and former.incarnation == beat.incarnation
        if beat.presence is Presence.DOWN:
            if not is_known:
                self._down = beat, now_us
        elif beat.presence is not Presence.GONE:
            if former is not None and not is_known:
                seconds = round(max(0, now_us - since_us) / US_PER_S, 3)
                kind = "" if former.lease else former.kind
                self._events.append(Entry("replaced", 0.0, beat.instance, kind, seconds=seconds), now_us)
            self._down = None
