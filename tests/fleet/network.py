"""The network between the sidecars and the store, and a record of the store's answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from fleet.loop import FleetLoop
from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Unknown
from sidecar.store.budget import FleetBudget

T = TypeVar("T")

DELAY_S: Final = (0.001, 0.005)
TIMEOUT_S: Final = 1.0


@dataclass
class AnswerRecord:
    """The answers of the store: the times of grants, and the refusals of claims and of leases by reason.

    ``most_leases``: the greatest number of leases in use at once.
    """

    grants: list[float] = field(default_factory=list)
    denials: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    most_leases: int = 0


@dataclass
class Network:
    """Of a thousand replies ``lost`` do not arrive. ``has_delay``: messages take milliseconds.

    ``leases`` gives the number of leases in use.
    """

    loop: FleetLoop
    rng: Random
    leases: Callable[[], int]
    lost: int = 0
    has_delay: bool = False
    answers: AnswerRecord = field(default_factory=AnswerRecord)

    def is_lost(self) -> bool:
        """Whether this message is lost."""
        return bool(self.lost) and self.rng.random() * 1000 < self.lost

    def look(self) -> None:
        """Record the number of leases in use."""
        self.answers.most_leases = max(self.answers.most_leases, self.leases())

    async def delay(self) -> None:
        """Wait for the delay of a message."""
        if self.has_delay:
            await asyncio.sleep(self.rng.uniform(*DELAY_S))

    async def sent(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer to a request. What a killed sidecar has sent still arrives."""
        if not self.has_delay:
            return await request
        return await asyncio.shield(self.loop.create_task(request))


class RemoteBudget:
    """The budget of one sidecar, through the network. ``cause``: of the last claim."""

    def __init__(self, budget: FleetBudget, network: Network) -> None:
        self.cause = ""
        self._budget = budget
        self._network = network

    @property
    def is_settled(self) -> bool:
        """Whether the fleet waits for nothing of this container."""
        return self._budget.is_settled

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""
        self.cause = claim.kind
        return await self._network.sent(self._claim(claim))

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for a lease."""
        return await self._network.sent(self._retire(lease))

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give a lease or a token back."""
        return await self._network.sent(self._give_back(instance, holder))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Send a beat; none is lost."""
        await self._network.delay()
        return await self._budget.beat(beat)

    async def _claim(self, claim: Claim) -> Answer:
        await self._network.delay()
        answer = await self._budget.claim(claim)
        record = self._network.answers
        if isinstance(answer, Denied):
            record.denials[answer.reason] += 1
        elif isinstance(answer, Granted) and not answer.replayed:
            record.grants.append(self._network.loop.now)
        return await self._back(answer)

    async def _retire(self, lease: LeaseRequest) -> Answer:
        await self._network.delay()
        answer = await self._budget.retire(lease)
        if isinstance(answer, Denied):
            self._network.answers.refusals[answer.reason] += 1
        self._network.look()
        return await self._back(answer)

    async def _give_back(self, instance: str, holder: str) -> bool | Unknown:
        await self._network.delay()
        if self._network.is_lost():
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("timeout")
        return await self._back(await self._budget.give_back(instance, holder))

    async def _back(self, answer: T) -> T | Unknown:
        if self._network.is_lost():
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("timeout")
        await self._network.delay()
        return answer
