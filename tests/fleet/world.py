"""The laboratory's fleet: containers with sidecars, a balancer, a scheduler that replaces them, and an engineer.

All random generators come from one seed, so that the affected containers do not depend on the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from fleet.member import GOODBYE_S, Member, Surroundings, restarted
from fleet.network import FleetLoop, Network, seeded
from fleet.outcome import Outcome
from fleet.rules import FleetRules
from fleet.traffic import LOAD, App, RequestLoad, Traffic
from harness.memory_store import MemoryStore
from sidecar.controller.journal import SavedIncarnation
from sidecar.core.app_reports import ErrorReport, Report, Results
from sidecar.core.claims import Answer, Denied, Fleet, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.events import Culled, Moved, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import US_PER_S, State
from sidecar.store.budget import FleetBudget

FIRST_S: Final = 10.0
"""The sidecars of a fleet start within this many seconds."""

_OUT: Final = (State.DRAINING, State.DOWN)

NEED_ENGINEER: Final = frozenset({"window", "refund_max", "paused", "data_loss", "duplicate"})


def needs_engineer(answer: Answer) -> bool:
    """Whether a person is told of this answer to a claim."""
    return isinstance(answer, Denied) and answer.reason in NEED_ENGINEER


@dataclass(frozen=True)
class Scheduler:
    """A replacement serves ``after_s`` seconds after the cull, or after the container is down (``is_from_down``).

    The part ``moved`` of the replacements has another instance name, as the allocations of Nomad do. An engineer comes
    ``engineer_s`` seconds after the first refusal that needs a person, and restarts all stuck containers; 0: never.
    """

    after_s: tuple[float, float] = (45.0, 45.0)
    is_from_down: bool = False
    moved: float = 1.0
    engineer_s: float = 1800.0


NOMAD: Final = Scheduler()
RESTARTING: Final = Scheduler((25.0, 40.0), is_from_down=True, moved=0.2, engineer_s=0)
"""Most containers are restarted in place, and some on another machine."""


class World:
    """A fleet of ``size`` under ``rules``, ``aged_s`` old. ``lost`` of a thousand replies do not arrive."""

    def __init__(
        self,
        rules: FleetRules,
        *,
        size: int,
        seed: int = 1,
        lost: int = 0,
        aged_s: float = 0.0,
        load: RequestLoad = LOAD,
        scheduler: Scheduler = NOMAD,
        has_delay: bool = False,
    ) -> None:
        self.rules = rules
        self.loop = loop = FleetLoop()
        self.store = MemoryStore(lambda: round(loop.wall_s * US_PER_S))
        self.apps = [App(place, f"c{place:03d}", born=-aged_s) for place in range(size)]
        self.outcome = Outcome()
        self.network = Network(loop, seeded(f"{seed}/network"), lost, has_delay=has_delay or lost > 0)
        self.seed = seed
        self.sidecars: dict[int, Member] = {}
        """By place."""

        self._scheduler = scheduler
        self._restarts = seeded(f"{seed}/restarts")
        self._killed: set[int] = set()
        self._leaving: set[int] = set()
        self._is_called = False
        self._site = Surroundings(loop, rules, self.store, self.network, seed, self._step, self._weighed, self._beaten)
        self.traffic = Traffic(
            load,
            loop,
            self.apps,
            rng=seeded(f"{seed}/errors"),
            failed=self.outcome.requests,
            report=self._report,
            reports_results=rules.reports_results,
        )
        first = seeded(f"{seed}/first")
        for app in self.apps:
            loop.plan(first.uniform(0, FIRST_S), partial(self._attend, app))

    def run(self, until_s: float) -> Outcome:
        """Let the time pass; the outcome so far. Raises ExceptionGroup with what has failed in the fleet."""
        self.loop.run(until_s)
        self.outcome.stuck = sum(bool(app.stuck) for app in self.apps)
        return self.outcome

    def close(self) -> None:
        """End all sidecars; the world is not used afterwards."""
        self.loop.close()

    def places(self, incident: str, count: int) -> Sequence[int]:
        """The places that an incident of this name affects; the same under all rules."""
        return seeded(f"{self.seed}/{incident}").sample(range(len(self.apps)), count)

    def watched(self, states: Sequence[State]) -> list[int]:
        """The places whose sidecar is in one of these states."""
        return [place for place, one in sorted(self.sidecars.items()) if one.controller.container.state in states]

    # -- incidents ------------------------------------------------------------------------------------------------

    def report(self, place: int, report: Report) -> None:
        """Let an app report something beside its traffic."""
        if sidecar := self.sidecars.get(place):
            sidecar.report(report)

    def stick(self, place: int, part: float, kind: str, by: str) -> None:
        """Let ``part`` of the requests to a container fail until a restart; if it is down, to the next one."""
        order = [*self.apps[place:], *self.apps[:place]]
        app = next((app for app in order if app.serving and not app.stuck), None)
        if app is not None:
            app.stuck, app.stuck_kind, app.stuck_by = part, kind, by
            self.outcome.recovered.pop(by, None)
            self.traffic.changed()

    def flaw(self, place: int, part: float, kind: str) -> None:
        """Let ``part`` of the requests in this place fail, through all restarts."""
        app = self.apps[place]
        app.flaw, app.flaw_kind = part, kind
        self.traffic.changed()

    def fail_all(self, part: float, kind: str) -> None:
        """Let ``part`` of the requests to all containers fail; 0 ends that."""
        self.traffic.outage, self.traffic.outage_kind = part, kind
        self.traffic.changed()

    def hold(self, at_s: float, for_s: float) -> None:
        """Plan that a person holds the service."""
        self.loop.plan(at_s, lambda: self.loop.create_task(self._hold(for_s)))

    async def _hold(self, for_s: float) -> None:
        budget = FleetBudget(self.store, self.rules.settings, rng=seeded("ann"), clock=self.loop.time)
        held = await budget.hold("", "ann", "a look", for_s)
        if isinstance(held, Unknown):
            raise TypeError(f"the hold is unknown: {held.error}")

    def kill(self, place: int, for_s: float) -> None:
        """Kill a sidecar, and restart it with its saved state after ``for_s`` seconds."""
        if sidecar := self.sidecars.pop(place, None):
            sidecar.kill()
            self._killed.add(place)
            self.loop.plan(self.loop.now + for_s, partial(self._revive, self.apps[place], sidecar))

    def _revive(self, app: App, killed: Member) -> None:
        if app.instance != killed.instance:
            return
        saved = killed.journal.saved
        sidecar = self._attend(app, saved)
        if sidecar.controller.container.state is State.DOWN:
            self._put_down(app)
        if saved and saved.app_start != app.app_start:
            self.loop.plan(self.loop.now + GOODBYE_S, partial(sidecar.report, restarted(app)))

    # -- the engineer ---------------------------------------------------------------------------------------------

    def _call_engineer(self) -> None:
        if self._scheduler.engineer_s and not self._is_called:
            self._is_called = True
            self.loop.plan(self.loop.now + self._scheduler.engineer_s, self._engineer_comes)

    def _engineer_comes(self) -> None:
        self._is_called = False
        self.outcome.visits.append(self.loop.now)
        for app in self.apps:
            if app.stuck and app.serving:
                self._remove(app, self._scheduler.after_s[1])

    # -- the scheduler -----------------------------------------------------------------------------------------

    def _remove(self, app: App, for_s: float) -> None:
        """Remove a container, as a person does; its replacement serves after ``for_s`` seconds."""
        app.serving = False
        app.life += 1
        self._cure(app)
        self._leave(app, app.life)
        self.traffic.changed()
        self.loop.plan(self.loop.now + for_s, partial(self._renew, app, app.life, moved=True))

    def _cure(self, app: App) -> None:
        by, app.stuck, app.stuck_by = app.stuck_by, 0.0, ""
        if by and all(other.stuck_by != by for other in self.apps):
            self.outcome.recovered[by] = self.loop.now

    def _renew(self, app: App, life: int, *, moved: bool) -> None:
        """Begin another incarnation in this place, unless a person has done that."""
        if life != app.life:
            return
        app.life += 1
        if moved:
            self._leave(app, app.life)
            app.instance = f"{app.instance.partition('-')[0]}-{app.life}"
        app.serving, app.is_retired, app.born, app.weight = True, False, self.loop.now, 100
        self._leaving.discard(app.place)
        if app.place in self.sidecars:
            self.sidecars[app.place].report(restarted(app))
        elif moved or app.place not in self._killed:
            self._attend(app)
        self.traffic.changed()

    def _leave(self, app: App, life: int) -> None:
        """Stop the sidecar of a container that moves to another machine."""
        if life == app.life and (sidecar := self.sidecars.pop(app.place, None)):
            sidecar.stop()

    def _attend(self, app: App, saved: SavedIncarnation | None = None) -> Member:
        self._killed.discard(app.place)
        self.sidecars[app.place] = sidecar = Member(app, self._site, saved)
        return sidecar

    def _put_down(self, app: App) -> None:
        """Plan the restart of a container that is down, unless it is planned already."""
        if app.deaf or app.serving:
            return
        if self._scheduler.is_from_down:
            self._plan_replacement(app)
        elif app.place in self._leaving:
            self.loop.plan(self.loop.now + GOODBYE_S, partial(self._leave, app, app.life))

    def _plan_replacement(self, app: App) -> None:
        if app.deaf or app.place in self._leaving:
            return
        self._leaving.add(app.place)
        now, moved = self.loop.now, self._restarts.random() < self._scheduler.moved
        back_at = now + self._restarts.uniform(*self._scheduler.after_s)
        self._cure(app)
        if moved and self._scheduler.is_from_down:
            self.loop.plan(now + GOODBYE_S, partial(self._leave, app, app.life))
        self.loop.plan(back_at, partial(self._renew, app, app.life, moved=moved))

    # -- what sidecars do -----------------------------------------------------------------------------------------

    def _report(self, app: App, errors: int, kind: str, ok: int) -> None:
        if errors:
            self.report(app.place, ErrorReport(errors, kind=kind))
        if self.rules.reports_results:
            self.report(app.place, Results(ok, errors))

    def _beaten(self, beat: BeatRecord) -> None:
        if isinstance(beat.answer, Fleet):
            self.outcome.results = beat.answer.culls_by

    def _weighed(self, sidecar: Member) -> None:
        app = sidecar.app
        if self.sidecars.get(app.place) is sidecar:
            app.weight = sidecar.controller.snapshot.share
            self.traffic.changed()

    def _step(self, sidecar: Member, record: Record) -> None:
        """Count the answers to a sidecar, and follow its moves."""
        is_here = self.sidecars.get(sidecar.app.place) is sidecar
        for event in record.events:
            self.outcome.answered(event)
            if isinstance(event, TokenAnswered) and needs_engineer(event.answer):
                self._call_engineer()
            if isinstance(event, Moved) and is_here and event.state is not event.was:
                self._moved(sidecar.app, event)

    def _moved(self, app: App, event: Moved) -> None:
        """Take the container out of the balancer, have it replaced, or put it back."""
        if app.serving and event.state in _OUT:
            app.serving, app.is_retired = False, not isinstance(event, Culled)
            self.outcome.left(app, event, self.loop.now, in_outage=self.traffic.outage > 0)
            self.outcome.count_out(self.apps)
            self.traffic.changed()
            if not self._scheduler.is_from_down:
                self._plan_replacement(app)
        if event.state is State.DOWN:
            self._put_down(app)
        if event.state is State.UP and event.was in _OUT:
            app.serving, app.is_retired = True, False
            self.outcome.returns.append((self.loop.now, app.place))
            self.traffic.changed()
