"""A local hold: what a person says on this machine counts also when the shared bucket cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sidecar.budget import Budget
from sidecar.core.words import Answer, Beat, Claim, Denied, Fleet, Hold, Roll, Unknown


class HeldBudget:
    """``budget``, and holds for this sidecar alone whenever that could not keep them; they end with the process.

    ``wall`` gives Unix seconds, ``instance`` is whom this sidecar claims for.
    """

    def __init__(self, budget: Budget, wall: Callable[[], float], instance: str) -> None:
        self._budget = budget
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
        held = await self._budget.hold(instance, author, reason, for_s)
        # Where it is stored anybody may release it, which would not reach the one in here.
        if isinstance(held, Hold) and self._holds.get(instance) is mine:
            del self._holds[instance]
        return held

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, here or in the budget; the local one is over also when that is unknown."""
        was_held = self.local_of(instance) is not None
        self._holds.pop(instance, None)
        released = await self._budget.release(instance)
        return released if isinstance(released, Unknown) else released or was_held

    async def roll(self) -> Roll | Unknown:
        """As the budget answers."""
        return await self._budget.roll()

    async def aclose(self) -> None:
        """Close the budget."""
        await self._budget.aclose()

    def _denied(self) -> Denied | None:
        hold = self.local
        return Denied("hold", 0, 0, hold.until - self._wall(), hold=hold) if hold else None
