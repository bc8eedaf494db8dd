"""The network between the sidecars and the store: messages take milliseconds, and replies are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from fleet.loop import FleetLoop
from sidecar.core.claims import Answer, Beat, Claim, Fleet, Granted, LeaseRequest, Unknown
from sidecar.store.budget import FleetBudget

T = TypeVar("T")

DELAY_S: Final = (0.001, 0.005)
TIMEOUT_S: Final = 1.0


@dataclass
class Network:
    """Of a thousand replies ``lost`` do not arrive. Without ``has_delay`` a message takes no time."""

    loop: FleetLoop
    rng: Random
    lost: int = 0
    has_delay: bool = False
    leased: list[str] = field(default_factory=list)
    """The instances to which the store has granted a lease, in order; the reply may be under way."""

    async def sent(self, request: Coroutine[Any, Any, T]) -> T | Unknown:
        """The answer to a request. What a killed sidecar has sent still arrives."""
        if not self.has_delay:
            return await request
        return await asyncio.shield(self.loop.create_task(self._there_and_back(request)))

    async def delay(self) -> None:
        """Wait for the delay of a message."""
        if self.has_delay:
            await asyncio.sleep(self.rng.uniform(*DELAY_S))

    async def _there_and_back(self, request: Coroutine[Any, Any, T]) -> T | Unknown:
        await self.delay()
        answer = await request
        if self.lost and self.rng.random() * 1000 < self.lost:
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("timeout")
        await self.delay()
        return answer


@dataclass
class RemoteBudget:
    """The budget of one sidecar, through the network."""

    budget: FleetBudget
    network: Network

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""
        return await self.network.sent(self.budget.claim(claim))

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for a lease."""
        return await self.network.sent(self._retire(lease))

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give a lease or a token back."""
        return await self.network.sent(self.budget.give_back(instance, holder))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Send a beat; none is lost."""
        await self.network.delay()
        return await self.budget.beat(beat)

    async def _retire(self, lease: LeaseRequest) -> Answer:
        answer = await self.budget.retire(lease)
        if isinstance(answer, Granted):
            self.network.leased.append(lease.instance)
        return answer
