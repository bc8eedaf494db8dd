"""A controller in virtual time, with a budget that the test answers and a list of every record.

A suspect's beat is answered at once with ``fleet``, unless that is None.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Self

from harness.virtual_time import VirtualLoop, settle
from sidecar.controller.container_controller import Controller
from sidecar.controller.effects import EffectRunner
from sidecar.controller.inbox import Inbox
from sidecar.controller.journal import Journal, SavedIncarnation
from sidecar.controller.runtime import Runtime
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Report
from sidecar.core.claims import NO_IDENTITY, Answer, Claim, Fleet, LeaseRequest, Presence, RandomIdentity, Unknown
from sidecar.core.life.assessment import Assessment
from sidecar.core.life.container import start
from sidecar.core.life.events import BeatAnswered, Checked, Event, Moved
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import Weight
from sidecar.core.types import Latch, Policy, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.controller.effects import CullHook
    from sidecar.core.life.container import Container
    from sidecar.core.life.snapshot import Record, Snapshot

WALL_S = 1_700_000_000.0
POLICY = Policy(error_limit=5, check_interval_s=10.0, settle_s=3.0, drain_s=10.0)
WEIGHED = Weight(floor=10)
IDENTITY = RandomIdentity("lease-0")


class NoChance(Random):
    """Chance that spreads nothing: every delay is as long as without jitter, the first one, too."""

    def random(self) -> float:
        return 0.0

    def uniform(self, a: float, b: float) -> float:
        return b if a >= 0 else (a + b) / 2


class ManualBudget:
    """Holds every claim and every request for a lease until the test answers it.

    A request for a lease has its holder word as id. Returned leases and tokens wait for ``return_gate``; each answer of
    ``refuses`` is given once, the later ones are accepted and noted.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.claims: list[Claim] = []
        self.leases: list[LeaseRequest] = []
        self.returned: list[tuple[str, str]] = []
        self.refuses: list[Unknown | Exception] = []
        self.return_gate = asyncio.Event()
        self.return_gate.set()
        self.cancelled: list[str] = []
        self.most_at_once = 0
        self._outstanding: list[tuple[str, asyncio.Future[Answer]]] = []

    @property
    def outstanding(self) -> list[str]:
        return [claim_id for claim_id, _ in self._outstanding]

    async def claim(self, claim: Claim) -> Answer:
        self.claims.append(claim)
        return await self._ask(claim.claim_id)

    async def retire(self, lease: LeaseRequest) -> Answer:
        self.leases.append(lease)
        return await self._ask(lease.holder)

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        await self.return_gate.wait()
        if self.refuses:
            refusal = self.refuses.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        self.returned.append((instance, holder))
        return True

    async def _ask(self, claim_id: str) -> Answer:
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        entry = (claim_id, reply)
        self.asked.append(claim_id)
        self._outstanding.append(entry)
        self.most_at_once = max(self.most_at_once, len(self._outstanding))
        try:
            return await reply
        except asyncio.CancelledError:
            self.cancelled.append(claim_id)
            raise
        finally:
            self._outstanding.remove(entry)

    def answer(self, answer: Answer | Exception) -> None:
        """Answer the outstanding claim: with a value, or with an exception."""
        ((_, future),) = self._outstanding
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class MemoryJournal(Journal):
    """A journal without a disk: ``saved`` has everything in order."""

    def __init__(self) -> None:
        super().__init__(None, "web/a", lambda _operation, _error: None)
        self.saved: list[SavedIncarnation] = []

    async def save(self, saved: SavedIncarnation) -> None:
        self.saved.append(saved)

    @property
    def last(self) -> SavedIncarnation:
        """What was saved last, without age and random identity."""
        return replace(self.saved[-1], born=None, identity=NO_IDENTITY)


class ControllerRig:
    """The controller and its surroundings; it runs while the context lasts."""

    def __init__(
        self,
        policy: Policy = POLICY,
        *,
        container: Container | None = None,
        window_s: int = 60,
        weight: Weight = WEIGHED,
        journal: Journal | None = None,
        observe: Callable[[Record], None] | None = None,
        rng: Random | None = None,
        hook: CullHook | None = None,
        publish: Callable[[Snapshot], None] = lambda _: None,
        inbox: Inbox | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.fleet: Fleet | None = Fleet(1)
        self.observed: list[tuple[float, Record]] = []
        self.failures: list[Exception] = []
        self.budget = ManualBudget()
        self.notes = MemoryJournal()
        inbox = inbox or Inbox()
        runtime = Runtime(loop.time, lambda: WALL_S, rng or NoChance(0), self.failures.append)
        self.controller = Controller(
            container or start("web/a", loop.time(), policy, identity=IDENTITY),
            Assessment(Measurements(window_s, int(loop.time())), weight, policy),
            EffectRunner(self.budget, journal or self.notes, inbox.put, runtime, policy=policy, hook=hook),
            inbox,
            runtime,
            policy=policy,
            observe=self._beating(observe or self._observe),
            publish=publish,
        )
        self.running = loop.create_task(self.controller.run())

    async def __aenter__(self) -> Self:
        await settle()
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Cancel the controller; an exception that ended it before is raised."""
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running

    def _observe(self, record: Record) -> None:
        self.observed.append((self.loop.time(), record))

    def _beating(self, observe: Callable[[Record], None]) -> Callable[[Record], None]:
        def both(record: Record) -> None:
            after = record.container
            is_news = after.presence is Presence.SUSPECT and not after.is_announced
            if self.fleet is not None and is_news:
                self.controller.inbox.put(BeatAnswered(after.presence, after.life, self.fleet))
            observe(record)

        return both

    async def beat_answered(self, fleet: Fleet) -> None:
        """Answer a beat of the current state with this fleet."""
        container, self.fleet = self.controller.container, fleet
        self.controller.inbox.put(BeatAnswered(container.presence, container.life, fleet))
        await settle()

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.observed]

    def state(self) -> State:
        return self.controller.container.state

    @property
    def latch(self) -> Latch | None:
        return self.controller.container.latch

    @property
    def states(self) -> list[State]:
        """The states that the container entered, in order."""
        moves = [event for record in self.records for event in record.events if isinstance(event, Moved)]
        return [move.state for move in moves if move.state is not move.was]

    @property
    def events(self) -> list[Event]:
        """What has happened, in order, but for the checks."""
        return [event for record in self.records for event in record.events if not isinstance(event, Checked)]

    async def advance(self, seconds: float) -> None:
        """Let this much time pass, with everything that is due."""
        await asyncio.sleep(seconds)
        await settle()

    async def reports(self, *reports: Report) -> None:
        """Put one message into the inbox."""
        assert self.controller.inbox.offer(reports)
        await settle()

    async def errors(self, count: int = 1, *, kind: str = "unknown", app_start: str | None = None) -> None:
        """Put one ping of ``count`` server errors into the inbox."""
        await self.reports(ErrorReport(count, ErrorLevel.SERVER_ERROR, kind, app_start=app_start))

    async def answered(self, answer: Answer | Exception) -> None:
        """Answer the outstanding claim, and let the controller process the answer."""
        self.budget.answer(answer)
        await settle()
