"""The shared bucket in memory behind the door of a budget: what a Redis does, without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sidecar.budget.redis import MOST_MEMBERS
from sidecar.core.birth import Mark
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown


class TwinBudget:
    """The budget of one sidecar; several share a ``bucket``, and each remembers the birth mark as the adapter does.

    ``clock_us`` is the server's clock. Put another bucket in ``bucket`` and the server has lost its memory.
    """

    def __init__(self, bucket: FleetBucket, terms: Terms, clock_us: Callable[[], int]) -> None:
        self.bucket = bucket
        self.mark = Mark()
        self._losses = self._former_losses = 0
        self._terms = terms
        self._clock_us = clock_us

    async def claim(self, claim: Claim) -> Answer:
        answer = self.bucket.claim(self._terms, claim, self.mark, self._clock_us())
        self._remember(self.bucket.birth.mark)
        return answer

    async def retire(self, lease: Lease) -> Answer:
        answer = self.bucket.retire(self._terms, lease, self.mark, self._clock_us())
        self._remember(self.bucket.birth.mark)
        return answer

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        return self.bucket.resign(instance, holder)

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        fleet = self.bucket.beat(self._terms, beat, self.mark, self._clock_us())
        self._remember(self.bucket.birth.mark)
        self._losses = fleet.losses
        return replace(fleet, losses=self._former_losses + self._losses)

    def _remember(self, mark: Mark) -> None:
        if self.mark.born_us not in (0, mark.born_us):
            self._former_losses, self._losses = self._former_losses + self._losses, 0
        self.mark = mark

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        return self.bucket.hold(instance, author, reason, round(for_s * US_PER_S), self._clock_us())

    async def release(self, instance: str) -> bool | Unknown:
        return self.bucket.release(instance)

    async def roll(self) -> Roll | Unknown:
        return self.bucket.roll(self._terms, self._clock_us(), MOST_MEMBERS)

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        return self.bucket.events.note(entries, self._clock_us())

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        return self.bucket.events.entries(since, after, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        return self.bucket.events.first(word, for_s, self._clock_us())

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""
