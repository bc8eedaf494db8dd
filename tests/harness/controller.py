"""A hall in virtual time, with a budget that is answered by hand and a memory of all that it told.

The fleet hears of a suspect at once, as by a pulse whose store answers in no time, unless ``fleet`` is None.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Self

from harness.virtual_time import VirtualLoop, settle
from sidecar.controller.controller import Controller, Pace
from sidecar.controller.journal import Journal, Memory
from sidecar.core.life import transitions
from sidecar.core.life.events import BeatAnswered, BeatUnanswered
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.weight import Weight
from sidecar.core.types import (
    NO_IDENTITY,
    Answer,
    Claim,
    Fleet,
    Latch,
    Lease,
    Level,
    Ping,
    Policy,
    Presence,
    RandomIdentity,
    Report,
    State,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.life.snapshot import Record
    from sidecar.core.life.transitions import Container

WALL_S = 1_700_000_000.0
POLICY = Policy(error_limit=5, check_interval_s=10.0, settle_s=3.0, drain_s=10.0)
WEIGHED = Weight(floor=10)
IDENTITY = RandomIdentity("lease-0")
EXACT = Pace(jitter=0.0, on_ping=True)
CHECKS_ONLY = Pace(jitter=0.0, on_ping=False)


class HandBudget:
    """Keeps every claim and every request for a lease in the air until it is answered, and knows how many were there.

    A request for a lease is known by the holder word. What is resigned is only noted, once ``resigning`` is set; before
    that ``refuses`` is answered, each of it once.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.claims: list[Claim] = []
        self.leases: list[Lease] = []
        self.resigned: list[tuple[str, str]] = []
        self.refuses: list[Unknown] = []
        self.resigning = asyncio.Event()
        self.resigning.set()
        self.cancelled: list[str] = []
        self.most_at_once = 0
        self._air: list[tuple[str, asyncio.Future[Answer]]] = []

    @property
    def in_the_air(self) -> list[str]:
        return [claim_id for claim_id, _ in self._air]

    async def claim(self, claim: Claim) -> Answer:
        self.claims.append(claim)
        return await self._fly(claim.claim_id)

    async def retire(self, lease: Lease) -> Answer:
        self.leases.append(lease)
        return await self._fly(lease.holder)

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        await self.resigning.wait()
        if self.refuses:
            return self.refuses.pop(0)
        self.resigned.append((instance, holder))
        return True

    async def _fly(self, claim_id: str) -> Answer:
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        flying = (claim_id, reply)
        self.asked.append(claim_id)
        self._air.append(flying)
        self.most_at_once = max(self.most_at_once, len(self._air))
        try:
            return await reply
        except asyncio.CancelledError:
            self.cancelled.append(claim_id)
            raise
        finally:
            self._air.remove(flying)

    def answer(self, answer: Answer | Exception) -> None:
        """Answer the claim in the air: with a value, or by failing."""
        ((_, future),) = self._air
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class Notes(Journal):
    """A journal without a disk: what was to be kept, in order."""

    def __init__(self) -> None:
        super().__init__(None, "web/a", lambda _operation, _error: None)
        self.saved: list[Memory] = []

    async def save(self, memory: Memory) -> None:
        self.saved.append(memory)

    @property
    def last(self) -> Memory:
        """What is kept in the end, but for age and chance."""
        return replace(self.saved[-1], born=None, identity=NO_IDENTITY)


class Stage:
    """The hall, and everything around it that a test may touch or ask; it runs while the context lasts."""

    def __init__(
        self,
        policy: Policy = POLICY,
        pace: Pace = EXACT,
        *,
        container: Container | None = None,
        window_s: int = 60,
        measurements: Measurements | None = None,
        weight: Weight = WEIGHED,
        journal: Journal | None = None,
        observe: Callable[[Record], None] | None = None,
        rng: Random | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.fleet: Fleet | None = Fleet(1)
        self.told: list[tuple[float, Record]] = []
        self.clock_reads = 0
        self.failures: list[Exception] = []
        self.budget = HandBudget()
        self.notes = Notes()
        self.controller = Controller(
            container or transitions.start("web/a", loop.time(), policy, identity=IDENTITY),
            policy=policy,
            pace=pace,
            measurements=measurements or Measurements(window_s, int(loop.time())),
            weight=weight,
            budget=self.budget,
            journal=journal or self.notes,
            clock=self._clock,
            wall=lambda: WALL_S,
            rng=rng or Random(0),
            observe=self._beating(observe or self._observe),
            on_failure=self.failures.append,
        )
        self.running = loop.create_task(self.controller.run())

    async def __aenter__(self) -> Self:
        await settle()
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Cancel the hall; a failure that ended it before is raised."""
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running

    def _clock(self) -> float:
        self.clock_reads += 1
        return self.loop.time()

    def _observe(self, record: Record) -> None:
        self.told.append((self.loop.time(), record))

    def _beating(self, observe: Callable[[Record], None]) -> Callable[[Record], None]:
        def both(record: Record) -> None:
            after = record.after
            is_news = after.presence is Presence.SUSPECT and not after.is_heard
            if self.fleet is not None and is_news and not isinstance(record.event, BeatUnanswered):
                self.controller.inbox.put(BeatAnswered(after.presence, after.life, self.fleet))
            observe(record)

        return both

    async def hears(self, fleet: Fleet) -> None:
        """Let the hall hear the answer to a beat of what it is now."""
        container, self.fleet = self.controller.container, fleet
        self.controller.inbox.put(BeatAnswered(container.presence, container.life, fleet))
        await settle()

    async def misses(self) -> None:
        """Let the hall hear that a beat had no answer, and the last one is old; no more beats are answered."""
        self.fleet = None
        self.controller.inbox.put(BeatUnanswered("timeout"))
        await settle()

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.told]

    def state(self) -> State:
        return self.controller.container.state

    @property
    def latch(self) -> Latch | None:
        return self.controller.container.latch

    @property
    def states(self) -> list[State]:
        """The states that were entered, in order."""
        return [record.after.state for record in self.records if record.after.state is not record.before.state]

    async def passes(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due."""
        await asyncio.sleep(seconds)
        await settle()

    async def reports(self, *reports: Report) -> None:
        """Hand in one message."""
        assert self.controller.inbox.offer(reports)
        await settle()

    async def pings(self, *pings: Ping) -> None:
        """Hand in one message of pings."""
        await self.reports(*pings)

    async def errors(self, count: int = 1, *, kind: str = "unknown", app_start: str | None = None) -> None:
        """Hand in one ping of so many server errors."""
        await self.pings(Ping(count, Level.SERVER_ERROR, kind, app_start=app_start))

    async def answered(self, answer: Answer | Exception) -> None:
        """Answer the claim in the air, and let the hall hear of it."""
        self.budget.answer(answer)
        await settle()
