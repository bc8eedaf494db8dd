"""The network between the sidecars and the store, and a record of the answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar

from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Unknown
from sidecar.store.budget import FleetBudget
from simulation.timeline import Timeline

T = TypeVar("T")

DELAY_S: Final = (0.001, 0.005)
TIMEOUT_S: Final = 1.0


@dataclass
class Traces:
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

    timeline: Timeline
    rng: Random
    leases: Callable[[], int]
    lost: int = 0
    has_delay: bool = False
    traces: Traces = field(default_factory=Traces)

    def is_lost(self) -> bool:
        """Whether this message is lost."""
        return bool(self.lost) and self.rng.random() * 1000 < self.lost

    def look(self) -> None:
        """Record the number of leases in use."""
        self.traces.most_leases = max(self.traces.most_leases, self.leases())

    async def delay(self) -> None:
        """Wait for the delay of a message."""
        if self.has_delay:
            await asyncio.sleep(self.rng.uniform(*DELAY_S))


class Line:
    """The budget of one sidecar, through the network."""

    def __init__(self, budget: FleetBudget, network: Network) -> None:
        self._budget = budget
        self._network = network

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""
        await self._network.delay()
        answer = await self._budget.claim(claim)
        traces = self._network.traces
        if isinstance(answer, Denied):
            traces.denials[answer.reason] += 1
        elif isinstance(answer, Granted) and not answer.replayed:
            traces.grants.append(self._network.timeline.now)
        return await self._back(answer)

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for a lease."""
        await self._network.delay()
        answer = await self._budget.retire(lease)
        if isinstance(answer, Denied):
            self._network.traces.refusals[answer.reason] += 1
        self._network.look()
        return await self._back(answer)

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give a lease or a token back."""
        await self._network.delay()
        if self._network.is_lost():
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("timeout")
        return await self._back(await self._budget.give_back(instance, holder))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Send a beat."""
        if self._network.has_delay:
            await self._network.delay()
        return await self._budget.beat(beat)

    async def _back(self, answer: T) -> T | Unknown:
        if self._network.is_lost():
            await asyncio.sleep(TIMEOUT_S)
            return Unknown("timeout")
        await self._network.delay()
        return answer
