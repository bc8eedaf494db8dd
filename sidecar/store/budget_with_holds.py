"""Holds of operators: they count in this sidecar also if no store takes them, and in both modes of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Hold, LeaseRequest, Unknown
from sidecar.store.budget import Budget

T = TypeVar("T")


class BudgetWithHolds:
    """``budget``, with local holds for orders that it could not store; local holds end with the process.

    ``wall`` gives Unix seconds, ``instance`` is the container of this sidecar. ``other()`` makes the budget of the
    containers of this service in the other mode (shadow or enforce): an order reaches both budgets, or is ``Unknown``.
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
        self.give_back, self.member_list = budget.give_back, budget.member_list
        self.note, self.entries, self.first = budget.note, budget.entries, budget.first
        self.add_errors, self.error_minutes = budget.add_errors, budget.error_minutes
        self.aclose = budget.aclose

    @property
    def local(self) -> Hold | None:
        """The local hold of the service, else that of the instance, while it lasts."""
        return self.local_of("") or self.local_of(self._instance)

    def local_of(self, instance: str) -> Hold | None:
        """The local hold of this instance, ``""`` for the service, while it lasts."""
        hold = self._holds.get(instance)
        if hold is not None and hold.until <= self._wall():
            del self._holds[instance]
            return None
        return hold

    def covers(self, instance: str) -> bool:
        """Whether a hold of ``instance``, ``""`` for the service, holds this sidecar."""
        return instance in ("", self._instance)

    async def claim(self, claim: Claim) -> Answer:
        """Denied under a local hold, also one that began during the claim; else the budget's answer."""
        answer = self._denied() or await self._budget.claim(claim)
        return self._denied() or answer

    async def retire(self, lease: LeaseRequest) -> Answer:
        """As ``claim``."""
        answer = self._denied() or await self._budget.retire(lease)
        return self._denied() or answer

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """The budget's answer, with the local hold if the fleet has none."""
        answer = await self._budget.beat(beat)
        if isinstance(answer, Fleet) and answer.hold is None and self.local is not None:
            return replace(answer, hold=self.local)
        return answer

    def has_lost_connection(self) -> bool:
        """As the budget's."""
        return self._budget.has_lost_connection()

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """The budget's answer. Without a clear one this sidecar holds by itself, if the order covers it.

        The local hold begins before the request to the budget, so that it counts also while the budget hangs.
        """
        mine = Hold(author, reason, self._wall() + for_s, instance)
        if self.covers(instance):
            self._holds[instance] = mine
        held = await self._both(lambda budget: budget.hold(instance, author, reason, for_s))
        # Another sidecar may release a stored hold, which would not end a local one.
        if isinstance(held, Hold) and self._holds.get(instance) is mine:
            del self._holds[instance]
        return held

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, local or stored. The local hold ends also when the answer is unknown."""
        was_held = self.local_of(instance) is not None
        self._holds.pop(instance, None)
        released = await self._both(lambda budget: budget.release(instance))
        return released if isinstance(released, Unknown) else released or was_held

    async def _both(self, order: Callable[[Budget], Awaitable[T | Unknown]]) -> T | Unknown:
        """The answer of both budgets to an order: unknown if either is, else the first that is not false."""
        if self._other is None:
            return await order(self._budget)
        other = self._other()
        try:
            own, others = await asyncio.gather(order(self._budget), order(other))
        finally:
            await other.aclose()
        return others if isinstance(others, Unknown) else own or others

    def _denied(self) -> Denied | None:
        hold = self.local
        return Denied("hold", 0, 0, hold.until - self._wall(), hold=hold) if hold else None
