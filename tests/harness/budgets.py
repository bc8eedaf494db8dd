"""Budgets without a store: one that returns what a test sets, and one that fails on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.core.fleet.about import MemberList
from sidecar.core.types import Answer, Beat, Claim, Entry, Fleet, Hold, LeaseRequest, Unknown

if TYPE_CHECKING:
    from sidecar.store.budget import Budget

UNDECIDED = Unknown("internal")
_AnyBudget: Any = object


class StubBudget:
    """The budget of one sidecar. ``member_list`` and ``beat`` return ``known``; ``wall`` gives Unix seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.known = MemberList(Fleet(0), 0)
        self.noted: list[Entry] = []
        self.minutes: dict[int, int] = {}
        self._wall = wall

    async def claim(self, _claim: Claim) -> Answer:
        return UNDECIDED

    async def retire(self, _lease: LeaseRequest) -> Answer:
        return UNDECIDED

    async def give_back(self, _instance: str, _holder: str) -> bool | Unknown:
        return UNDECIDED

    async def beat(self, _beat: Beat) -> Fleet | Unknown:
        return self.known.fleet

    def has_lost_connection(self) -> bool:
        return False

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        held = Hold(author, reason, self._wall() + for_s, instance)
        self.known = self.known._replace(holds=(*self._others(instance), held))
        return held

    async def release(self, instance: str) -> bool | Unknown:
        before = self.known.holds
        self.known = self.known._replace(holds=self._others(instance))
        return self.known.holds != before

    async def member_list(self) -> MemberList | Unknown:
        return self.known

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        self.noted += [entry._replace(id=str(number)) for number, entry in enumerate(entries, len(self.noted) + 1)]
        return len(entries)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        found = self.noted[int(after) :] if after else [entry for entry in self.noted if entry.at >= since]
        return found[:most]

    async def first(self, _word: str, _for_s: float) -> bool | Unknown:
        return True

    async def add_errors(self, minutes: Mapping[int, int]) -> int | Unknown:
        for minute, count in minutes.items():
            self.minutes[minute] = self.minutes.get(minute, 0) + count
        return sum(minutes.values())

    async def error_minutes(self) -> Mapping[int, int] | Unknown:
        return self.minutes

    async def aclose(self) -> None:
        """Do nothing."""

    def _others(self, instance: str) -> tuple[Hold, ...]:
        return tuple(hold for hold in self.known.holds if hold.instance != instance)


class UnreliableBudget(_AnyBudget):  # type: ignore[misc]  # it has the methods of the other budget
    """Passes every call to another budget, unless ``error`` is set: then it answers Unknown with that word.

    While ``hangs`` is set, calls wait for ``heal``.
    """

    def __init__(self, budget: Budget) -> None:
        self.error: str | None = None
        self.hangs = False
        self.asked = 0
        self._budget = budget
        self._waiting = asyncio.Event()
        self._healed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, getattr(self._budget, name))

    async def stuck(self) -> None:
        """Return once a call waits for its answer."""
        await self._waiting.wait()

    def heal(self) -> None:
        self.hangs = False
        self._healed.set()

    async def aclose(self) -> None:
        await self._budget.aclose()

    async def _ask(self, call: Callable[..., Any], *arguments: object) -> Any:
        self.asked += 1
        if self.hangs:
            self._waiting.set()
            await self._healed.wait()
        return Unknown(self.error) if self.error else await call(*arguments)
