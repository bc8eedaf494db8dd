"""One sidecar of the laboratory: the real controller and the real membership, with clocks that are handed in.

Their ``run`` methods run as they are. The disk, the listeners and the app are left out: reports come from the traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from fleet.network import FleetLoop, Network, RemoteBudget, seeded
from fleet.rules import FleetRules
from fleet.traffic import App
from harness.memory_store import MemoryStore
from sidecar.controller.container_controller import Controller
from sidecar.controller.effects import EffectRunner
from sidecar.controller.inbox import Inbox
from sidecar.controller.journal import Journal, SavedIncarnation
from sidecar.controller.membership import Membership
from sidecar.controller.runtime import Runtime
from sidecar.core.app_reports import ErrorReport, Report
from sidecar.core.claims import RandomIdentity
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.assessment import Assessment
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import StopRequested
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import FULL, Weight
from sidecar.core.types import US_PER_S
from sidecar.store.budget import FleetBudget

GOODBYE_S: Final = 1.0
"""Time for the last beat of a sidecar that was told to stop."""


@dataclass(frozen=True)
class Surroundings:
    """What the sidecars of a fleet share.

    ``on_step`` is called with each step, ``on_weight`` when a weight changes, ``on_beat`` with each answer to a beat.
    """

    loop: FleetLoop
    rules: FleetRules
    store: MemoryStore
    network: Network
    seed: int
    on_step: Callable[[Member, Record], None]
    on_weight: Callable[[Member], None]
    on_beat: Callable[[BeatRecord], None]


class MemoryJournal(Journal):
    """A journal without a disk."""

    def __init__(self, saved: SavedIncarnation | None) -> None:
        super().__init__(None, "", lambda _operation, _error: None)
        self.saved = saved

    async def save(self, saved: SavedIncarnation) -> None:
        self.saved = saved

    async def settled(self, timeout_s: float) -> None:
        """Do nothing: what was saved is kept."""


class Member:
    """The sidecar of one container; it begins with ``saved``, the state of a killed one in this place, if any."""

    def __init__(self, app: App, site: Surroundings, saved: SavedIncarnation | None = None) -> None:
        self.app = app
        self.instance = app.instance
        self.journal = MemoryJournal(saved)
        self._site = site
        self._loop = loop = site.loop
        self._rng = seeded(f"{site.seed}/{app.app_start}")
        self._offset_s = 1 + self._rng.random()
        self._share = FULL
        rules = site.rules
        budget = RemoteBudget(FleetBudget(site.store, rules.settings, rng=self._rng, clock=loop.time), site.network)
        inbox = Inbox()
        runtime = Runtime(self.clock, lambda: loop.wall_s, self._rng, loop.fail)
        self._membership = Membership(
            budget.beat,
            runtime,
            error_limit=rules.policy.error_limit,
            interval_s=rules.settings.beat_us / US_PER_S,
            put=inbox.put,
            on_answer=site.on_beat,
        )
        measurements = Measurements(
            rules.window_s,
            int(self.clock()),
            known_kinds=[kind for kind, _ in rules.policy.kind_limits],
            ignored_kinds=rules.ignored_kinds,
        )
        self.controller = Controller(
            self._begin(saved),
            Assessment(measurements, Weight(floor=rules.weight_floor), rules.policy),
            EffectRunner(budget, self.journal, inbox.put, runtime, policy=rules.policy),
            inbox,
            runtime,
            policy=rules.policy,
            observe=partial(site.on_step, self),
            publish=self._publish,
        )
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def clock(self) -> float:
        """Seconds of its own monotonic clock, whose seconds begin at another instant than those of the others."""
        return self._loop.now + self._offset_s

    def report(self, report: Report) -> None:
        self.controller.inbox.offer((report,))

    def stop(self) -> None:
        """Stop the sidecar; its last beat tells the fleet."""
        self.controller.inbox.put(StopRequested())
        self._loop.call_later(GOODBYE_S, self.kill)

    def kill(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            group.create_task(self._membership.run())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._loop.fail(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _publish(self, snapshot: Snapshot) -> None:
        self._membership.update(snapshot)
        if snapshot.share != self._share:
            self._share = snapshot.share
            self._site.on_weight(self)

    def _begin(self, saved: SavedIncarnation | None) -> Container:
        """The first container, as the daemon makes it."""
        now, policy, app = self.clock(), self._site.rules.policy, f"web/{self.instance}"
        identity = RandomIdentity(f"lease-{self._rng.getrandbits(64):016x}", self._rng.random())
        if saved is not None:
            return saved.container(now, self._loop.wall_s, policy, identity)
        born = self.app.born + self._offset_s
        return start(app, now, policy, app_start=self.app.app_start, born=born, identity=identity)


def restarted(app: App) -> ErrorReport:
    """What an app says at the beginning of an incarnation."""
    return ErrorReport(0, app_start=app.app_start)
