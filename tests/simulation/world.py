"""The fleet: containers with their sidecars, an orchestrator that replaces them, and an engineer.

All random generators come from one seed, so that the affected containers do not depend on the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from sidecar.controller.journal import Memory
from sidecar.core.fleet.records import Cull, FleetState, Slot
from sidecar.core.life.events import ClaimAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import US_PER_S, Denied, ErrorReport, State, Unknown
from sidecar.store.budget import FleetBudget
from sidecar.store.memory import MemoryStore
from simulation.app import SimulatedApp
from simulation.departures import Departures
from simulation.network import Network
from simulation.rules import Rules
from simulation.sidecar import Sidecar, Site
from simulation.timeline import EPOCH_S, Timeline
from simulation.traffic import LOAD, Ledger, Load, Traffic

GOODBYE_S: Final = 1.0
DEPLOY_S: Final = 10.0
LOOK_S: Final = 30.0
FIRST_S: Final = 10.0
"""The sidecars of a fleet start within this many seconds."""

_OUT: Final = (State.DRAINING, State.DOWN)

ENGINEER_AFTER_S: Final = 1800.0
NEED_ENGINEER: Final = frozenset({"window", "refund_max", "paused", "data_loss", "duplicate"})


@dataclass(frozen=True)
class Orchestrator:
    """A replacement serves ``after_s`` seconds after the cull, or after the container is down (``is_from_down``).

    The part ``moved`` of the replacements has another instance name, as the allocations of Nomad do. ``has_engineer``:
    half an hour after the first refusal that needs a person, an engineer restarts all stuck containers.
    """

    after_s: tuple[float, float] = (45.0, 45.0)
    is_from_down: bool = False
    moved: float = 1.0
    has_engineer: bool = True


NOMAD: Final = Orchestrator()
RESTARTING: Final = Orchestrator((25.0, 40.0), is_from_down=True, moved=0.2, has_engineer=False)
"""Most containers are restarted in place, and some on another machine."""


class World:
    """A fleet of ``size`` under ``rules``, ``aged_s`` old. ``lost`` of a thousand replies do not arrive."""

    def __init__(
        self,
        rules: Rules,
        *,
        size: int,
        seed: int,
        lost: int = 0,
        aged_s: float = 0.0,
        load: Load = LOAD,
        orchestrator: Orchestrator = NOMAD,
        has_delay: bool = False,
    ) -> None:
        self.rules = rules
        self.timeline = timeline = Timeline()
        self.store = MemoryStore(lambda: timeline.wall_us)
        self.recovered: dict[str, float] = {}
        self.apps = [SimulatedApp(place, f"c{place:03d}", born=-aged_s) for place in range(size)]
        self.departures = Departures(self.apps)
        self.network = Network(
            timeline, Random(f"{seed}/network"), lambda: len(self.slots()), lost, has_delay=has_delay or lost > 0
        )
        self.visits: list[float] = []
        self.seed = seed
        self._orchestrator = orchestrator
        self._restarts = Random(f"{seed}/restarts")
        self._sidecars: dict[int, Sidecar] = {}
        self._killed: set[int] = set()
        self._leaving: set[int] = set()
        self._life_begins: list[Callable[[SimulatedApp], None]] = []
        self._is_called = False
        self._is_asleep = False
        self._site = Site(
            timeline, rules, self.store, self.network, seed, self._moved, self._weighed, lambda: self._is_asleep
        )
        self.traffic = Traffic(
            load, timeline, self.apps, Random(f"{seed}/errors"), self._report, reports_results=rules.reports_results
        )
        first = Random(f"{seed}/first")
        for app in self.apps:
            timeline.at(first.uniform(0, FIRST_S), partial(self._attend, app))
        if rules.watches and not rules.policy.lifetime_s:
            timeline.at(LOOK_S, self._look)

    def run(self, until: float) -> None:
        """Let the time pass."""
        self.timeline.run(until)

    @property
    def ledger(self) -> Ledger:
        """What has failed so far."""
        return self.traffic.ledger

    def places(self, trouble: str, count: int) -> Sequence[int]:
        """The places that a trouble of this name affects; the same for every policy."""
        return Random(f"{self.seed}/{trouble}").sample(range(len(self.apps)), count)

    # -- while nothing happens ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Leave out the beats while nothing happens in the fleet: they would all be the same."""
        timeline = self.timeline
        self._is_asleep = not self.traffic.is_running and self._is_idle()
        if not self._is_asleep:
            timeline.at(timeline.now + LOOK_S, self._look)
        elif due_us := self.state().due_us:
            timeline.at(due_us / US_PER_S - EPOCH_S, self.wake)

    def _is_idle(self) -> bool:
        are_there = all(one.serving for one in self.apps) and len(self._sidecars) == len(self.apps)
        is_settled = not self.state().open_culls and not self.state().missing
        return are_there and is_settled and all(one.is_idle for one in self._sidecars.values())

    def wake(self) -> None:
        """Resume the beats; the store gets the ones that were left out."""
        if not self._is_asleep:
            return
        self._is_asleep = False
        roster, now_us = self.store._roster, self.timeline.wall_us
        for beats in (roster.alive, self.store._settings):
            for name, _ in list(beats):
                beats.put(name, now_us - 1)
        for sidecar in self._sidecars.values():
            sidecar.wake()
        self.timeline.at(self.timeline.now + LOOK_S, self._look)

    # -- what the store holds -------------------------------------------------------------------------------------

    def slots(self) -> dict[str, Slot]:
        """Leases that are in use, by the instance that holds them."""
        rows = ((name, Slot.read(text)) for name, text in self.store._tables["leases"].items())
        return {name: slot for name, slot in rows if slot is not None and slot.left_us(self.timeline.wall_us)}

    def missing(self) -> set[str]:
        """Culled instances that the fleet does not know to be replaced."""
        rows = ((name, Cull.read(text)) for name, text in self.store._tables["culls"].items())
        return {name for name, cull in rows if cull is not None and cull.phase == "out"}

    def state(self) -> FleetState:
        """The state record of the fleet."""
        return FleetState.read(self.store._tables["state"].get("state", "")) or FleetState()

    def _changed(self) -> None:
        self.wake()
        self.traffic.changed()

    # -- trouble --------------------------------------------------------------------------------------------------

    def stick(self, place: int, part: float, kind: str, by: str, *, mute: bool = False) -> None:
        """Let ``part`` of the requests to a container fail until a restart; if it is down, to the next one."""
        size = len(self.apps)
        order = (self.apps[(place + step) % size] for step in range(size))
        app = next((one for one in order if one.serving and not one.stuck), None)
        if app is not None:
            app.mute = mute
            self.worsen(app, app.life, part, kind, by)

    def worsen(self, app: SimulatedApp, life: int, part: float, kind: str, by: str) -> None:
        """Let ``part`` of the requests to this incarnation fail until its end."""
        if life != app.life:
            return
        app.stuck, app.stuck_kind, app.stuck_by = part, kind, by
        self.recovered.pop(by, None)
        self._changed()

    def flaw(self, place: int, part: float, kind: str) -> None:
        """Let ``part`` of the requests in this place fail, through all restarts."""
        app = self.apps[place]
        app.flaw, app.flaw_kind = part, kind
        self._changed()

    def fail_all(self, part: float, kind: str) -> None:
        """Let ``part`` of the requests to all containers fail; 0 ends that."""
        self.traffic.outage, self.traffic.outage_kind = part, kind
        self._changed()

    def deploy(self, place: int, flaw: float, kind: str) -> None:
        """Replace a container by one of another release, with another name."""
        app = self.apps[place]
        self._remove(app, DEPLOY_S)
        app.flaw, app.flaw_kind = flaw, kind

    def at_every_life(self, begins: Callable[[SimulatedApp], None]) -> None:
        """Call this with every container now, and at the beginning of each later incarnation."""
        self._life_begins.append(begins)
        for app in self.apps:
            begins(app)

    def watched(self, states: Sequence[State]) -> list[int]:
        """The places whose sidecar is in one of these states."""
        return [place for place, one in sorted(self._sidecars.items()) if one.controller.container.state in states]

    async def hold(self, author: str, reason: str, for_s: float) -> None:
        """Hold the service, as a person does."""
        self.wake()
        timeline, servers = self.timeline, [("memory", self.store)]
        budget = FleetBudget(servers, self.rules.terms, rng=Random(author), clock=lambda: timeline.now)
        held = await budget.hold("", author, reason, for_s)
        if isinstance(held, Unknown):
            raise TypeError(f"the hold is unknown: {held.error}")

    def kill(self, place: int, for_s: float) -> None:
        """Kill a sidecar, and restart it with its saved state after ``for_s`` seconds."""
        self.wake()
        sidecar = self._sidecars.pop(place, None)
        if sidecar is not None:
            sidecar.kill()
            self._killed.add(place)
            self.timeline.at(self.timeline.now + for_s, partial(self._revive, self.apps[place], sidecar))

    def _revive(self, app: SimulatedApp, killed: Sidecar) -> None:
        if app.instance != killed.instance:
            return
        memory = killed.journal.memory
        self._attend(app, memory)
        sidecar = self._sidecars[app.place]
        if sidecar.controller.container.state is State.DOWN:
            self._put_down(app)
        if memory and memory.app_start != app.app_start:
            restarted = ErrorReport(0, app_start=app.app_start)
            self.timeline.at(self.timeline.now + GOODBYE_S, partial(sidecar.report_now, restarted))

    # -- the engineer ---------------------------------------------------------------------------------------------

    def _call_engineer(self) -> None:
        if self._orchestrator.has_engineer and not self._is_called:
            self._is_called = True
            self.timeline.at(self.timeline.now + ENGINEER_AFTER_S, self._engineer_comes)

    def _engineer_comes(self) -> None:
        self._is_called = False
        self.visits.append(self.timeline.now)
        for app in self.apps:
            if app.stuck and app.serving:
                self._remove(app, self._orchestrator.after_s[1])

    # -- the orchestrator -----------------------------------------------------------------------------------------

    def _remove(self, app: SimulatedApp, for_s: float) -> None:
        """Remove a container, as a person does; its replacement serves after ``for_s`` seconds."""
        app.serving = False
        app.life += 1
        self._cure(app)
        self._leave(app, app.life)
        self._changed()
        self.timeline.at(self.timeline.now + for_s, partial(self._renew, app, app.life, moved=True))

    def _cure(self, app: SimulatedApp) -> None:
        by, app.stuck, app.stuck_by, app.mute = app.stuck_by, 0.0, "", False
        if by and all(one.stuck_by != by for one in self.apps):
            self.recovered[by] = self.timeline.now

    def _renew(self, app: SimulatedApp, life: int, *, moved: bool) -> None:
        """Begin another incarnation in this place, unless a deployment has done that."""
        if life != app.life:
            return
        app.life += 1
        if moved:
            self._leave(app, app.life)
            app.instance = f"{app.instance.partition('-')[0]}-{app.life}"
        app.serving, app.born = True, self.timeline.now
        app.weight = 100
        self.departures.serves(app)
        self._leaving.discard(app.place)
        if app.place in self._sidecars:
            self._sidecars[app.place].report_now(ErrorReport(0, app_start=app.app_start))
        elif moved or app.place not in self._killed:
            self._attend(app)
        for begins in self._life_begins:
            begins(app)
        self._changed()

    def _leave(self, app: SimulatedApp, life: int) -> None:
        """Stop the sidecar of a container that moves to another machine."""
        if life == app.life and (sidecar := self._sidecars.pop(app.place, None)):
            sidecar.stop()

    def _attend(self, app: SimulatedApp, saved: Memory | None = None) -> None:
        self._killed.discard(app.place)
        if self.rules.watches:
            self._sidecars[app.place] = Sidecar(app, self._site, saved)

    # -- what sidecars do -----------------------------------------------------------------------------------------

    def _report(self, app: SimulatedApp, errors: int, kind: str, ok: int) -> None:
        if sidecar := self._sidecars.get(app.place):
            sidecar.report(errors, kind, ok, results=self.rules.reports_results)

    def _weighed(self, sidecar: Sidecar) -> None:
        app = sidecar.app
        if self._sidecars.get(app.place) is sidecar:
            app.weight = sidecar.controller.weight.percent
            self._changed()

    def _moved(self, sidecar: Sidecar, record: Record) -> None:
        """Follow a step of a sidecar that drains its container, puts it down or puts it up again."""
        event, before, after = record.event, record.before.state, record.after.state
        if (
            isinstance(event, ClaimAnswered)
            and isinstance(event.answer, Denied)
            and event.answer.reason in NEED_ENGINEER
        ):
            self._call_engineer()
        app, now = sidecar.app, self.timeline.now
        if after is before or self._sidecars.get(app.place) is not sidecar:
            return
        if app.serving and after in _OUT:
            app.serving = False
            suspect_s = sidecar.clock() - record.before.since
            cause = sidecar.controller.container.latch.reason if sidecar.controller.container.latch else ""
            in_outage = self.traffic.outage > 0
            self.departures.leaves(app, sidecar, now, suspect_s, cause, in_outage=in_outage)
            self._changed()
            if not self._orchestrator.is_from_down:
                self._plan_replacement(app)
        if after is State.DOWN:
            self._put_down(app)
        if after is State.UP and before in _OUT:
            app.serving = True
            self.departures.returned(app, now)
            self._changed()

    def _put_down(self, app: SimulatedApp) -> None:
        """Plan the restart of a container that is down, unless it is planned already."""
        if app.deaf or app.serving:
            return
        if self._orchestrator.is_from_down:
            self._plan_replacement(app)
        elif app.place in self._leaving:
            self.timeline.at(self.timeline.now + GOODBYE_S, partial(self._leave, app, app.life))

    def _plan_replacement(self, app: SimulatedApp) -> None:
        if app.deaf or app.place in self._leaving:
            return
        self._leaving.add(app.place)
        now, moved = self.timeline.now, self._restarts.random() < self._orchestrator.moved
        back_at = now + self._restarts.uniform(*self._orchestrator.after_s)
        self._cure(app)
        if moved and self._orchestrator.is_from_down:
            self.timeline.at(now + GOODBYE_S, partial(self._leave, app, app.life))
        self.timeline.at(back_at, partial(self._renew, app, app.life, moved=moved))
