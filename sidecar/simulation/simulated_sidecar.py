"""The sidecar of one simulated container: the real controller and the real membership, with clocks that are handed in.

Their ``run`` methods run as they are. The disk, the listeners and the app are left out: reports come from the traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final

from sidecar.controller.inbox import Inbox
from sidecar.controller.journal import Journal, Memory
from sidecar.controller.membership import Membership
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.life.triggers import BeatAnswered, BeatUnanswered, StopRequested
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.outlier import KEPT_MIN, MINUTE_S
from sidecar.core.measure.weight import FULL, Weight
from sidecar.core.types import ErrorReport, Evidence, Presence, RandomIdentity, Report, Results, State
from sidecar.simulation.counting_controller import CountingController
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.fleet_store import FleetStore
from sidecar.simulation.simulated_app import SimulatedApp
from sidecar.simulation.simulated_network import SimulatedBudget, SimulatedNetwork
from sidecar.simulation.virtual_loop import OWNER, FleetTimer, VirtualLoop, seeded
from sidecar.store.budget import FleetBudget

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
    store: FleetStore
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
        self.timers = 0
        self._kept: list[FleetTimer] = []
        self._asleep_since: float | None = None
        self._wakes_at = 0.0
        self._is_new = True
        self._site = site
        self._loop = loop = site.loop
        self._rng = seeded(f"{site.seed}/{app.app_start}")
        self._offset_s = 1 + self._rng.randrange(_PHASES) / _PHASES
        self._share = self._weight = FULL
        self._has_counted = self._is_change_planned = False
        self._reports_at = 0.0
        rules = site.rules
        budget = FleetBudget(
            site.store,
            rules.terms,
            rng=self._rng,
            clock=loop.time,
            counter=rules.counter_at(lambda: loop.wall_s),
        )
        self.budget = SimulatedBudget(budget, site.store, rules.terms, site.network, app.place)
        self._measurements = Measurements(
            rules.window_s,
            int(self.clock()),
            known_kinds=[kind for kind, _ in rules.policy.kind_limits],
            ignored_kinds=rules.ignored_kinds,
        )
        inbox = Inbox()
        self.membership = Membership(
            self.budget,
            policy=rules.policy,
            interval_s=rules.beat_s,
            clock=self.clock,
            rng=self._rng,
            put=self._put_answer,
            on_answer=lambda _answer: None,
            on_failure=loop.failures.append,
        )
        self.controller = CountingController(
            self._begin(saved),
            policy=rules.policy,
            pace=rules.pace,
            measurements=self._measurements,
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
        self._regular_timers = 3 if rules.policy.lifetime_max_s else 2
        context = copy_context()
        context.run(OWNER.set, self)
        self._task = loop.create_task(self._run(), context=context)

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
        self._has_counted, self._weight = False, seen.weight
        self.membership.update(seen)
        self._plan_change()
        if seen.share != self._share:
            self._share = seen.share
            self._site.on_weight(self)

    # -- events from outside ---------------------------------------------------------------------------------------

    def report(self, errors: int, kind: str, ok: int = 0, *, results: bool = False) -> None:
        """Have the app report what its requests came to, at the next second of this sidecar's clock."""
        reports: list[Report] = [ErrorReport(errors, kind=kind)] if errors else []
        if results:
            reports.append(Results(ok, errors))
        self._reports_at = int(self.clock()) + 1 - self._offset_s
        self._loop.plan(self._reports_at, partial(self._count, reports))

    def report_now(self, report: Report) -> None:
        """Have the app report now."""
        self._is_new = self._is_new or isinstance(report, ErrorReport)  # which may begin another incarnation
        self.wake()
        self.controller.inbox.offer((report,))

    def _count(self, reports: Sequence[Report] = ()) -> None:
        """Count without a turn of the controller, unless that may decide something or the fleet has to know at once."""
        self.wake()
        controller = self.controller
        if not controller.inbox.is_empty:
            if reports:
                controller.inbox.offer(reports)
            return
        self._has_counted = True
        if not controller.count(reports, self.clock()) and reports:
            controller.inbox.offer(())
        elif controller.weight.percent != self._weight or self.membership.has_moved(self._measurements.errors.total):
            self._show_counts()
        self._plan_change()

    def _show_counts(self) -> None:
        """Publish what was counted without a turn, before a beat or a turn."""
        if self._has_counted:
            self.controller.publish(self.clock())

    def _plan_change(self) -> None:
        """Plan the second in which the oldest counts leave the window."""
        if not self._is_change_planned and (at := self._measurements.changes_at) is not None:
            self._is_change_planned = True
            self._loop.plan(at - self._offset_s, self._change)

    def _change(self) -> None:
        """Pass the second, unless a report does that now."""
        self._is_change_planned = False
        if self._reports_at != self._loop.now and self._asleep_since is None and not self._task.done():
            self._count()

    async def _report_load(self) -> None:
        while True:
            if self.app.load is not None:
                self.controller.inbox.offer((Results(load=self.app.load),))
            await asyncio.sleep(LOAD_EVERY_S)

    def _put_answer(self, answer: BeatAnswered | BeatUnanswered) -> None:
        """Give the controller the answer to a beat: a turn for one that may decide something."""
        if isinstance(answer, BeatAnswered):
            self._loop.call_soon(self._take_answer, answer)
        else:
            self.controller.inbox.put(answer)

    def _take_answer(self, answer: BeatAnswered) -> None:
        controller = self.controller
        if not controller.take_answer(answer, self.clock()):
            controller.inbox.put(answer)
            return
        self._has_counted = True
        if controller.weight.percent != self._weight:
            self._show_counts()

    def stop(self) -> None:
        """Stop the sidecar; its last beat tells the fleet."""
        self.wake()
        self.controller.inbox.put(StopRequested())
        self._loop.call_later(GOODBYE_S, self.kill)

    def kill(self) -> None:
        """End the sidecar at once."""
        self.wake()
        self._task.cancel()

    # -- sleep -----------------------------------------------------------------------------------------------------

    def keeps(self, timer: FleetTimer) -> bool:
        """Whether the sidecar sleeps: it skips its checks and beats while each would be as the last one.

        It falls asleep at the first of its timers, unless something is under way, which would have another timer.
        """
        self._show_counts()
        if self._asleep_since is None:
            store = self._site.store
            if self.timers != self._regular_timers or not store.is_calm or not self._is_idle:
                return False
            if self._is_new and store.expects_newcomers:
                return False
            self._is_new = False
            self._asleep_since = self._loop.now
            store.falls_asleep(self.instance)
            self._plan_retirement()
        self._kept.append(timer)
        return True

    def wake(self, *, beats_now: bool = False) -> None:
        """Wake up before something happens: go on with the next check and beat in the same rhythm, or at once."""
        if self._asleep_since is None:
            return
        slept_s, self._asleep_since = self._loop.now - self._asleep_since, None
        self._site.store.wakes(self.instance)
        self._make_up(slept_s)
        kept, self._kept = self._kept, []
        for timer in kept:
            every_s = self._site.rules.beat_s
            missed = 0 if beats_now else ceil((self._loop.now - timer.when()) / every_s)
            self._loop.resume(timer, timer.when() + missed * every_s)

    def _make_up(self, slept_s: float) -> None:
        """Make up for what the skipped checks and beats would have told the controller: nothing new."""
        policy, now, nothing = self._site.rules.policy, self.clock(), Evidence(self._site.rules.window_s)
        interval_s, beat, fleet = policy.check_interval_s, self.budget.last_beat, self.budget.last_fleet
        checks = int(min(slept_s, KEPT_MIN * MINUTE_S) / interval_s)
        a_minute = max(1, round(MINUTE_S / interval_s))
        while checks > 0:
            times = min(a_minute, checks)
            self._measurements.usual.sample(nothing, now - checks * interval_s, times)
            checks -= times
        if beat and fleet and slept_s > self._site.rules.beat_s:
            self.controller.inbox.put(BeatAnswered(beat.presence, beat.incarnation, fleet))
        if self.app.load is not None:
            self.controller.inbox.offer((Results(load=self.app.load),))

    def _plan_retirement(self) -> None:
        due = self.controller.snapshot.retire_at
        if due is not None and due != self._wakes_at:
            self._wakes_at = due
            self._loop.plan(due - self._offset_s, self.wake)

    @property
    def _is_idle(self) -> bool:
        """Whether each check and each beat to come is as the last one, because nothing is counted."""
        seen, last = self.controller.snapshot, self.budget.last_beat
        is_counted = last is not None and last.presence is Presence.WELL and not last.errors and self.budget.is_settled
        is_quiet = seen.container.state is State.UP and seen.checked_at is not None
        is_quiet = is_quiet and (seen.retire_at is None or seen.retire_at > self.clock())
        has_measured = seen.success_rate is None and seen.share == FULL and self._measurements.is_empty
        return is_counted and is_quiet and has_measured and self.controller.inbox.is_empty

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
