"""The network between simulated sidecars and the store, and a record of the store's answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from sidecar.core.fleet.summary import with_medians
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Unknown
from sidecar.simulation.fleet_store import AnswerMark, FleetStore
from sidecar.simulation.virtual_loop import VirtualLoop
from sidecar.store.budget import FleetBudget

T = TypeVar("T")

DELAY_S: Final = (0.001, 0.005)
TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedRefusal:
    """The first claim of an incarnation in a ``place`` that was refused by this ``gate``."""

    at_s: float
    place: int
    instance: str
    cause: str
    gate: str


@dataclass
class AnswerRecord:
    """The answers of the store: the times of grants, and the refusals of claims and of leases by reason.

    ``refused``: the containers, by incarnation, that a claim was refused for a reason. ``most_leases``: the greatest
    number of leases in use at once.
    """

    grants: list[float] = field(default_factory=list)
    denials: Counter[str] = field(default_factory=Counter)
    refused: dict[str, set[str]] = field(default_factory=dict)
    first_refusals: list[SimulatedRefusal] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    most_leases: int = 0


@dataclass
class SimulatedNetwork:
    """Of a thousand replies ``lost`` do not arrive. ``has_delay``: messages take milliseconds.

    ``leases`` gives the number of leases in use. ``waiting``: messages under way now.
    """

    loop: VirtualLoop
    rng: Random
    leases: Callable[[], int]
    lost: int = 0
    has_delay: bool = False
    answers: AnswerRecord = field(default_factory=AnswerRecord)
    waiting: int = 0

    def is_lost(self) -> bool:
        """Whether this message is lost."""
        return bool(self.lost) and self.rng.random() * 1000 < self.lost

    def look(self) -> None:
        """Record the number of leases in use."""
        self.answers.most_leases = max(self.answers.most_leases, self.leases())

    async def delay(self) -> None:
        """Wait for the delay of a message."""
        if self.has_delay:
            await self.pause(self.rng.uniform(*DELAY_S))

    async def pause(self, seconds: float) -> None:
        """Wait while a message is under way."""
        self.waiting += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.waiting -= 1

    async def sent(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer to a request. What a killed sidecar has sent still arrives."""
        if not self.has_delay:
            return await request
        return await asyncio.shield(self.loop.create_task(request))


class SimulatedBudget:
    """The budget of the sidecar in a ``place``, through the network.

    ``last_beat`` and ``last_fleet``: the last one and its answer; None while it is under way. ``cause``: of the last
    claim.
    """

    def __init__(
        self, budget: FleetBudget, store: FleetStore, terms: Terms, network: SimulatedNetwork, place: int
    ) -> None:
        self.last_beat: Beat | None = None
        self.last_fleet: Fleet | None = None
        self.cause = ""
        self._place = place
        self._budget = budget
        self._store = store
        self._terms = terms
        self._known: AnswerMark | None = None
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
        """Send a beat. One that says and learns nothing new is only recorded; its answer has the medians of now."""
        known, last, fleet = self._known, self.last_beat, self.last_fleet
        self.last_beat = self.last_fleet = None
        if self._network.has_delay:
            await self._network.delay()
        elif known and last and fleet and self._budget.is_settled and beat._replace(errors=last.errors) == last:
            medians = self._store.repeat(beat, known, self._terms)
            if medians is not None:
                self.last_beat, self.last_fleet = beat, (fleet := with_medians(fleet, *medians))
                return fleet
        answer = await self._budget.beat(beat)
        if isinstance(answer, Fleet):
            self.last_beat, self.last_fleet, self._known = beat, answer, self._store.mark(beat.instance)
        return answer

    async def _claim(self, claim: Claim) -> Answer:
        await self._network.delay()
        answer = await self._budget.claim(claim)
        record = self._network.answers
        if isinstance(answer, Denied):
            record.denials[answer.reason] += 1
            refused = record.refused.setdefault(answer.reason, set())
            if claim.incarnation not in refused:
                refused.add(claim.incarnation)
                at_s = self._network.loop.now
                record.first_refusals.append(
                    SimulatedRefusal(at_s, self._place, claim.instance, claim.kind, answer.reason)
                )
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
            await self._network.pause(TIMEOUT_S)
            return Unknown("timeout")
        return await self._back(await self._budget.give_back(instance, holder))

    async def _back(self, answer: T) -> T | Unknown:
        if self._network.is_lost():
            await self._network.pause(TIMEOUT_S)
            return Unknown("timeout")
        await self._network.delay()
        return answer
