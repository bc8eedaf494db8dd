"""A budget that can be cut off: the one behind it answers only while nothing is said to be wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from sidecar.core.types import Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sidecar.store.budget import Budget

T = TypeVar("T")


class UnreliableBudget:
    """``error`` is the word it answers instead; with ``hangs`` set, what is asked waits for ``heal``."""

    def __init__(self, budget: Budget) -> None:
        self.error: str | None = None
        self.hangs = False
        self.asked = 0
        self._budget = budget
        self._waiting = asyncio.Event()
        self._healed = asyncio.Event()

    async def stuck(self) -> None:
        """Return once somebody waits for an answer."""
        await self._waiting.wait()

    def heal(self) -> None:
        self.hangs = False
        self._healed.set()

    async def claim(self, claim: Claim) -> Answer:
        return await self._ask(lambda: self._budget.claim(claim))

    async def retire(self, lease: Lease) -> Answer:
        return await self._ask(lambda: self._budget.retire(lease))

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        return await self._ask(lambda: self._budget.resign(instance, holder))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        return await self._ask(lambda: self._budget.beat(beat))

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        return await self._ask(lambda: self._budget.hold(instance, author, reason, for_s))

    async def release(self, instance: str) -> bool | Unknown:
        return await self._ask(lambda: self._budget.release(instance))

    async def roll(self) -> Roll | Unknown:
        return await self._ask(self._budget.roll)

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        return await self._ask(lambda: self._budget.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        return await self._ask(lambda: self._budget.entries(since, after, most))

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        return await self._ask(lambda: self._budget.first(word, for_s))

    async def aclose(self) -> None:
        await self._budget.aclose()

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T | Unknown:
        self.asked += 1
        if self.hangs:
            self._waiting.set()
            await self._healed.wait()
        return Unknown(self.error) if self.error else await call()
