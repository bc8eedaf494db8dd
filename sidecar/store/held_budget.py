"""A person's orders: they count here also when the shared bucket cannot be told, and in every part of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sidecar.core.types import Answer, Beat, Claim, Denied, Entry, Fleet, Hold, Lease, Roll, Unknown
from sidecar.store.budget import Budget

T = TypeVar("T")


class HeldBudget:
    """``budget``, and holds for this sidecar alone whenever that could not keep them; they end with the process.

    ``wall`` gives Unix seconds, ``instance`` is whom this sidecar claims for. ``other()`` makes the budget of those
    containers of the service that have another one, in shadow or not: an order reaches them too, or is ``Unknown``.
    """

    def __init__(
        self,
        budget: Budget,
        wall: Callable[[], float],
        instance: str,
        other: Callable[[], Budget] | None = None,
    ) -> None:
        self._budget = budget
        self._other = other
        self._wall = wall
        self._instance = instance
        self._holds: dict[str, Hold] = {}

    @property
    def local(self) -> Hold | None:
        """The local hold, while it lasts; that of the service first."""
        return self.local_of("") or self.local_of(self._instance)

    def local_of(self, instance: str) -> Hold | None:
        """The local hold with this scope, ``""`` being the service, while it lasts."""
        hold = self._holds.get(instance)
        if hold is not None and hold.until <= self._wall():
            del self._holds[instance]
            return None
        return hold

    def covers(self, instance: str) -> bool:
        """Whether a hold of ``instance``, or of the service if that is ``""``, is one of this sidecar too."""
        return instance in ("", self._instance)

    async def claim(self, claim: Claim) -> Answer:
        """Denied while held here, else as the budget answers; also when it was held while the answer came."""
        answer = self._denied() or await self._budget.claim(claim)
        return self._denied() or answer

    async def retire(self, lease: Lease) -> Answer:
        """As ``claim``."""
        answer = self._denied() or await self._budget.retire(lease)
        return self._denied() or answer

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """As the budget answers."""
        return await self._budget.resign(instance, holder)

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """As the budget answers, with the hold that is in force here."""
        answer = await self._budget.beat(beat)
        if isinstance(answer, Fleet) and answer.hold is None and self.local is not None:
            return replace(answer, hold=self.local)
        return answer

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """As the budget answers; unless that has it, this sidecar is held all the same, if it is meant.

        It is held from the first, so that neither a budget that hangs nor who gives up on it loses the hold.
        """
        mine = Hold(author, reason, self._wall() + for_s, instance)
        if self.covers(instance):
            self._holds[instance] = mine
        held = await self._both(lambda budget: budget.hold(instance, author, reason, for_s))
        # Where it is stored anybody may release it, which would not reach the one in here.
        if isinstance(held, Hold) and self._holds.get(instance) is mine:
            del self._holds[instance]
        return held

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, here or in the budget; the local one is over also when that is unknown."""
        was_held = self.local_of(instance) is not None
        self._holds.pop(instance, None)
        released = await self._both(lambda budget: budget.release(instance))
        return released if isinstance(released, Unknown) else released or was_held

    async def _both(self, order: Callable[[Budget], Awaitable[T | Unknown]]) -> T | Unknown:
        """The budget's answer to an order, unless the other one has a better one or none that is clear."""
        if self._other is None:
            return await order(self._budget)
        other = self._other()
        try:
            answer, told = await asyncio.gather(order(self._budget), order(other))
        finally:
            await other.aclose()
        return told if isinstance(told, Unknown) else answer or told

    async def roll(self) -> Roll | Unknown:
        """As the budget answers."""
        return await self._budget.roll()

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """As the budget answers."""
        return await self._budget.note(entries)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """As the budget answers."""
        return await self._budget.entries(since, after, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """As the budget answers."""
        return await self._budget.first(word, for_s)

    async def aclose(self) -> None:
        """Close the budget."""
        await self._budget.aclose()

    def _denied(self) -> Denied | None:
        hold = self.local
        return Denied("hold", 0, 0, hold.until - self._wall(), hold=hold) if hold else None
