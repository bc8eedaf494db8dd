"""The sidecar of one simulated container: the real controller and the real membership, with clocks that are handed in.

Their ``run`` methods run as they are. The disk, the listeners and the app are left out: reports come from the traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.controller.container_controller import Controller
from sidecar.controller.inbox import Inbox
from sidecar.controller.journal import Journal, Memory
from sidecar.controller.membership import Membership
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.events import StopRequested
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.outlier import KEPT_MIN, MINUTE_S
from sidecar.core.measure.weight import FULL, Weight
from sidecar.core.types import ErrorReport, Evidence, Presence, RandomIdentity, Report, Results, State
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.simulated_app import SimulatedApp
from sidecar.simulation.simulated_network import SimulatedBudget, SimulatedNetwork
from sidecar.simulation.virtual_loop import VirtualLoop, seeded
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import Store

_PHASES: Final = 1024
"""A power of two, so that seconds of the controller's clock are exact instants of the loop."""

LOAD_EVERY_S: Final = 10.0
"""The interval in which an app reports its load."""

GOODBYE_S: Final = 1.0
"""Time for the last beat of a sidecar that was told to stop."""


@dataclass(frozen=True)
class Surroundings:
    """What the sidecars of a fleet share. ``on_step`` is called with each step, ``on_weight`` when a weight changes."""

    loop: VirtualLoop
    rules: FleetRules
    store: Store
    network: SimulatedNetwork
    seed: int
    on_step: Callable[[SimulatedSidecar, Record], None]
    on_weight: Callable[[SimulatedSidecar], None]


class MemoryJournal(Journal):
    """A journal without a disk."""

    def __init__(self) -> None:
        super().__init__(None, "", lambda _operation, _error: None)
        self.memory: Memory | None = None

    async def save(self, memory: Memory) -> None:
        """Keep the memory."""
        self.memory = memory

    async def settled(self, timeout_s: float) -> None:
        """Do nothing: what was saved is kept."""


class SimulatedSidecar:
    """One sidecar; it begins with ``saved``, the state of a killed sidecar in this place, if there is one."""

    def __init__(self, app: SimulatedApp, site: Surroundings, saved: Memory | None = None) -> None:
        self.app = app
        self.instance = app.instance
        self.journal = MemoryJournal()
        self.journal.memory = saved
        self._site = site
        self._loop = loop = site.loop
        self._rng = seeded(f"{site.seed}/{app.app_start}")
        self._offset_s = 1 + self._rng.randrange(_PHASES) / _PHASES
        self._share = FULL
        rules = site.rules
        budget = FleetBudget(
            [("memory", site.store)],
            rules.terms,
            rng=self._rng,
            clock=loop.time,
            counter=rules.counter_at(lambda: loop.wall_s),
        )
        self.budget = SimulatedBudget(budget, site.network)
        inbox = Inbox()
        self.membership = Membership(
            self.budget,
            policy=rules.policy,
            interval_s=rules.beat_s,
            clock=self.clock,
            rng=self._rng,
            put=inbox.put,
            on_answer=lambda _answer: None,
            on_failure=loop.failures.append,
        )
        self.controller = Controller(
            self._begin(saved),
            policy=rules.policy,
            pace=rules.pace,
            measurements=Measurements(
                rules.window_s,
                int(self.clock()),
                known_kinds=[kind for kind, _ in rules.policy.kind_limits],
                ignored_kinds=rules.ignored_kinds,
            ),
            weight=Weight(floor=rules.weight_floor),
            budget=self.budget,
            journal=self.journal,
            clock=self.clock,
            wall=lambda: loop.wall_s,
            rng=self._rng,
            observe=lambda record: site.on_step(self, record),
            on_failure=loop.failures.append,
            inbox=inbox,
            publish=self._publish,
        )
        self._task = loop.create_task(self._run())

    def clock(self) -> float:
        """Seconds of its own monotonic clock, whose seconds begin at another instant than those of the others."""
        return self._loop.now + self._offset_s

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            group.create_task(self.membership.run())
            if self._site.rules.policy.lifetime_max_s:
                group.create_task(self._report_load())

    def _publish(self, seen: Snapshot) -> None:
        self.membership.update(seen)
        if seen.share != self._share:
            self._share = seen.share
            self._site.on_weight(self)

    # -- events from outside ---------------------------------------------------------------------------------------

    def report(self, errors: int, kind: str, ok: int = 0, *, results: bool = False) -> None:
        """Have the app report what its requests came to, at the next second of this sidecar's clock."""
        reports: list[Report] = [ErrorReport(errors, kind=kind)] if errors else []
        if results:
            reports.append(Results(ok, errors))
        at = int(self.clock()) + 1 - self._offset_s
        self._loop.call_at(at, self.controller.inbox.offer, tuple(reports))

    def report_now(self, report: Report) -> None:
        """Have the app report now."""
        self.controller.inbox.offer((report,))

    async def _report_load(self) -> None:
        while True:
            if self.app.load is not None:
                self.report_now(Results(load=self.app.load))
            await asyncio.sleep(LOAD_EVERY_S)

    def stop(self) -> None:
        """Stop the sidecar; its last beat tells the fleet."""
        self.controller.inbox.put(StopRequested())
        self._loop.call_later(GOODBYE_S, self.kill)

    def kill(self) -> None:
        """End the sidecar at once."""
        self._task.cancel()

    # -- while nothing happens ---------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether each check and each beat to come is as the last one, because nothing is counted."""
        seen, last = self.controller.snapshot, self.budget.last_beat
        is_counted = last is not None and last.presence is Presence.WELL and not last.errors
        is_quiet = seen.container.state is State.UP and seen.checked_at is not None
        has_measured = seen.success_rate is None and seen.share == FULL and self.controller.measurements.is_empty
        return is_counted and is_quiet and has_measured and self.controller.inbox.is_empty

    @property
    def retire_at(self) -> float | None:
        """When a retirement is due, by the clock of the loop."""
        due = self.controller.snapshot.retire_at
        return None if due is None else due - self._offset_s

    async def catch_up(self, skipped_s: float) -> None:
        """Make up the beat and the checks of the past ``skipped_s`` seconds, which were skipped."""
        rules, now = self._site.rules, self.clock()
        nothing = Evidence(rules.window_s)
        checks = int(min(skipped_s, KEPT_MIN * MINUTE_S) / rules.policy.check_interval_s)
        for number in range(checks, 0, -1):
            self.controller.measurements.usual.sample(nothing, now - number * rules.policy.check_interval_s)
        if self.app.load is not None:
            self.report_now(Results(load=self.app.load))
        await self.budget.repeat_beat(self._site.store, rules.terms)

    # -- the beginning --------------------------------------------------------------------------------------------

    def _begin(self, saved: Memory | None) -> Container:
        """The first container, as ``sidecar/app/build.py`` makes it."""
        now, policy, app = self.clock(), self._site.rules.policy, f"web/{self.instance}"
        if saved is None:
            born, identity = self.app.born + self._offset_s, RandomIdentity(self._word("lease"), self._rng.random())
            return start(app, now, policy, app_start=self.app.app_start, born=born, identity=identity)
        container = start(
            app,
            now,
            policy,
            app_start=saved.app_start,
            asked_under=saved.incarnation,
            born=None if saved.born is None else now - (self._loop.wall_s - saved.born),
            identity=saved.identity,
        )
        latch = saved.latch
        return resume(container, latch, now, self._loop.wall_s - latch.at, policy) if latch else container

    def _word(self, what: str) -> str:
        return f"{what}-{self._rng.getrandbits(64):016x}"
