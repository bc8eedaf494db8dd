"""Time and the network of the laboratory: time jumps to the next event, messages take milliseconds, replies are lost.

A run is quick and repeatable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final, TypeVar

from harness.virtual_time import VirtualLoop
from sidecar.core.claims import Answer, Beat, Claim, Fleet, Granted, LeaseRequest, Unknown
from sidecar.store.budget import FleetBudget

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0."""


class FleetLoop(VirtualLoop):
    """Runs a fleet from second 0 on. A failure that nothing has handled ends the run."""

    def __init__(self) -> None:
        super().__init__(start_s=0.0)
        self._failures: list[Exception] = []
        self.set_exception_handler(lambda _loop, context: self._keep(context))

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.time()

    @property
    def wall_s(self) -> float:
        """Unix time."""
        return EPOCH_S + self.now

    def plan(self, at_s: float, event: Callable[[], object]) -> None:
        """Plan an event of the world; an overdue one comes next, one at infinity never."""
        if at_s < inf:
            self.call_at(max(at_s, self.now), event)

    def run(self, until_s: float) -> None:
        """Let the time pass. Raises ExceptionGroup with the failures of the run."""
        self.call_at(until_s, self.stop)
        self.run_forever()
        if self._failures:
            raise ExceptionGroup("parts of the fleet failed", self._failures)

    def close(self) -> None:
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        super().close()

    def fail(self, error: Exception) -> None:
        self._failures.append(error)
        self.stop()

    def _keep(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error if isinstance(error, Exception) else RuntimeError(str(context)))


def seeded(seed: str) -> Random:
    """A generator of random numbers, the same ones for the same seed."""
    return Random(seed)


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
        return await self.network.sent(self.budget.claim(claim))

    async def retire(self, lease: LeaseRequest) -> Answer:
        return await self.network.sent(self._retire(lease))

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
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
