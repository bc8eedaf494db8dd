"""The laboratory's fleet: containers with sidecars, a balancer, a scheduler that replaces them, and an engineer.

All random generators come from one seed, so that the affected containers do not depend on the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from fleet.app import App
from fleet.departures import Departures
from fleet.loop import FleetLoop, seeded
from fleet.member import GOODBYE_S, Member, Surroundings, restarted
from fleet.network import Network
from fleet.rules import FleetRules
from fleet.traffic import LOAD, RequestLoad, Traffic
from harness.memory_store import MemoryStore
from sidecar.controller.journal import Memory
from sidecar.core.fleet.records import Cull, FleetState, Slot
from sidecar.core.fleet.view import Raw
from sidecar.core.life.events import Culled, Moved, Recovered, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, ErrorReport, Report, Results, State, Unknown
from sidecar.store.budget import FleetBudget

T = TypeVar("T")

DEPLOY_S: Final = 10.0
FIRST_S: Final = 10.0
"""The sidecars of a fleet start within this many seconds."""

_OUT: Final = (State.DRAINING, State.DOWN)

NEED_ENGINEER: Final = frozenset({"window", "refund_max", "paused", "data_loss", "duplicate"})


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
        seed: int,
        lost: int = 0,
        aged_s: float = 0.0,
        load: RequestLoad = LOAD,
        scheduler: Scheduler = NOMAD,
        has_delay: bool = False,
    ) -> None:
        self.rules = rules
        self.loop = loop = FleetLoop()
        self.store = MemoryStore(lambda: loop.wall_us)
        self.recovered: dict[str, float] = {}
        self.recoveries = 0
        self.apps = [App(place, f"c{place:03d}", born=-aged_s) for place in range(size)]
        self.departures = Departures(self.apps)
        self.network = Network(
            loop, seeded(f"{seed}/network"), lambda: len(self.leases()), lost, has_delay=has_delay or lost > 0
        )
        self.visits: list[float] = []
        self.seed = seed
        self._scheduler = scheduler
        self._restarts = seeded(f"{seed}/restarts")
        self._sidecars: dict[int, Member] = {}
        self._killed: set[int] = set()
        self._leaving: set[int] = set()
        self._life_begins: list[Callable[[App], None]] = []
        self._is_called = False
        self._site = Surroundings(loop, rules, self.store, self.network, seed, self._moved, self._weighed)
        self.traffic = Traffic(
            load,
            loop,
            self.apps,
            seeded(f"{seed}/errors"),
            self._report,
            reports_results=rules.reports_results,
        )
        first = seeded(f"{seed}/first")
        for app in self.apps:
            loop.plan(first.uniform(0, FIRST_S), partial(self._attend, app))

    def run(self, until: float) -> None:
        """Let the time pass. Raises ExceptionGroup with what has failed in the fleet."""
        self.loop.run(until)

    def close(self) -> None:
        """End all sidecars; the world is not used afterwards."""
        self.loop.close()

    def places(self, incident: str, count: int) -> Sequence[int]:
        """The places that an incident of this name affects; the same under all rules."""
        return seeded(f"{self.seed}/{incident}").sample(range(len(self.apps)), count)

    # -- what the store holds ---------------------------------------------------------------------------------------

    def leases(self) -> dict[str, Slot]:
        """Leases that are in use, by the instance that holds them."""
        rows = ((name, Slot.load(text)) for name, text in self._raw().leases.items())
        return {name: slot for name, slot in rows if slot is not None and slot.left_us(self.loop.wall_us)}

    def missing(self) -> set[str]:
        """Culled instances that the fleet does not know to be replaced."""
        rows = ((name, Cull.load(text)) for name, text in self._raw().culls.items())
        return {name for name, cull in rows if cull is not None and cull.phase == "out"}

    def fleet_outcomes(self) -> dict[str, int]:
        """The outcomes of culls that the fleet has seen, by ``<outcome>|<cause>``."""
        state = FleetState.load(self._raw().state)
        return dict(state.outcomes) if state else {}

    def _raw(self) -> Raw:
        terms = self.rules.terms
        return at_once(self.store.read("", window_us=terms.window_us, expiry_us=terms.expiry_us))

    # -- incidents ------------------------------------------------------------------------------------------------

    def report(self, place: int, report: Report) -> None:
        """Let an app report something beside its traffic."""
        if sidecar := self._sidecars.get(place):
            sidecar.report(report)

    def stick(self, place: int, part: float, kind: str, by: str, *, mute: bool = False) -> None:
        """Let ``part`` of the requests to a container fail until a restart; if it is down, to the next one."""
        size = len(self.apps)
        order = (self.apps[(place + step) % size] for step in range(size))
        app = next((one for one in order if one.serving and not one.stuck), None)
        if app is not None:
            app.mute = mute
            self.worsen(app, app.life, part, kind, by)

    def worsen(self, app: App, life: int, part: float, kind: str, by: str) -> None:
        """Let ``part`` of the requests to this incarnation fail until its end."""
        if life != app.life:
            return
        if not app.stuck:
            app.stuck_at = self.loop.now
        app.stuck, app.stuck_kind, app.stuck_by = part, kind, by
        self.recovered.pop(by, None)
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

    def deploy(self, place: int, flaw: float, kind: str) -> None:
        """Replace a container by one of another release, with another name."""
        app = self.apps[place]
        self._remove(app, DEPLOY_S)
        app.flaw, app.flaw_kind = flaw, kind

    def at_every_life(self, begins: Callable[[App], None]) -> None:
        """Call this with every container now, and at the beginning of each later incarnation."""
        self._life_begins.append(begins)
        for app in self.apps:
            begins(app)

    def watched(self, states: Sequence[State]) -> list[int]:
        """The places whose sidecar is in one of these states."""
        return [place for place, one in sorted(self._sidecars.items()) if one.controller.container.state in states]

    async def hold(self, author: str, reason: str, for_s: float) -> None:
        """Hold the service, as a person does."""
        budget = FleetBudget(self.store, self.rules.terms, rng=seeded(author), clock=self.loop.time)
        held = await budget.hold("", author, reason, for_s)
        if isinstance(held, Unknown):
            raise TypeError(f"the hold is unknown: {held.error}")

    def kill(self, place: int, for_s: float) -> None:
        """Kill a sidecar, and restart it with its saved state after ``for_s`` seconds."""
        sidecar = self._sidecars.pop(place, None)
        if sidecar is not None:
            sidecar.kill()
            self._killed.add(place)
            self.loop.plan(self.loop.now + for_s, partial(self._revive, self.apps[place], sidecar))

    def _revive(self, app: App, killed: Member) -> None:
        if app.instance != killed.instance:
            return
        memory = killed.journal.memory
        self._attend(app, memory)
        sidecar = self._sidecars[app.place]
        if sidecar.controller.container.state is State.DOWN:
            self._put_down(app)
        if memory and memory.app_start != app.app_start:
            self.loop.plan(self.loop.now + GOODBYE_S, partial(sidecar.report, restarted(app)))

    # -- the engineer ---------------------------------------------------------------------------------------------

    def _call_engineer(self) -> None:
        if self._scheduler.engineer_s and not self._is_called:
            self._is_called = True
            self.loop.plan(self.loop.now + self._scheduler.engineer_s, self._engineer_comes)

    def _engineer_comes(self) -> None:
        self._is_called = False
        self.visits.append(self.loop.now)
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
        by, app.stuck, app.stuck_by, app.mute = app.stuck_by, 0.0, "", False
        if by and all(one.stuck_by != by for one in self.apps):
            self.recovered[by] = self.loop.now

    def _renew(self, app: App, life: int, *, moved: bool) -> None:
        """Begin another incarnation in this place, unless a deployment has done that."""
        if life != app.life:
            return
        app.life += 1
        if moved:
            self._leave(app, app.life)
            app.instance = f"{app.instance.partition('-')[0]}-{app.life}"
        app.serving, app.born = True, self.loop.now
        app.weight = 100
        self.departures.serves(app)
        self._leaving.discard(app.place)
        if app.place in self._sidecars:
            self._sidecars[app.place].report(restarted(app))
        elif moved or app.place not in self._killed:
            self._attend(app)
        for begins in self._life_begins:
            begins(app)
        self.traffic.changed()

    def _leave(self, app: App, life: int) -> None:
        """Stop the sidecar of a container that moves to another machine."""
        if life == app.life and (sidecar := self._sidecars.pop(app.place, None)):
            sidecar.stop()

    def _attend(self, app: App, saved: Memory | None = None) -> None:
        self._killed.discard(app.place)
        if self.rules.watches:
            self._sidecars[app.place] = Member(app, self._site, saved)

    # -- what sidecars do -----------------------------------------------------------------------------------------

    def _report(self, app: App, errors: int, kind: str, ok: int) -> None:
        sidecar = self._sidecars.get(app.place)
        if sidecar and errors:
            sidecar.report(ErrorReport(errors, kind=kind))
        if sidecar and self.rules.reports_results:
            sidecar.report(Results(ok, errors))

    def _weighed(self, sidecar: Member) -> None:
        app = sidecar.app
        if self._sidecars.get(app.place) is sidecar:
            app.weight = sidecar.controller.snapshot.share
            self.traffic.changed()

    def _moved(self, sidecar: Member, record: Record) -> None:
        """Follow a step of a sidecar that drains its container, puts it down or puts it up again."""
        app = sidecar.app
        for event in record.events:
            if isinstance(event, TokenAnswered) and isinstance(event.answer, Denied):
                if event.answer.reason in NEED_ENGINEER:
                    self._call_engineer()
            elif isinstance(event, Recovered):
                self.recoveries += 1
            if isinstance(event, Moved) and self._sidecars.get(app.place) is sidecar:
                self._changed(sidecar, event)

    def _changed(self, sidecar: Member, event: Moved) -> None:
        app, now, before, after = sidecar.app, self.loop.now, event.was, event.state
        if after is before:
            return
        if app.serving and after in _OUT:
            app.serving = False
            suspect_s = event.suspect_s if isinstance(event, Culled) else 0.0
            latch = sidecar.controller.container.latch
            reason = latch.reason if latch else ""
            in_outage = self.traffic.outage > 0
            self.departures.leaves(app, sidecar, now, suspect_s, reason, in_outage=in_outage)
            self.traffic.changed()
            if not self._scheduler.is_from_down:
                self._plan_replacement(app)
        if after is State.DOWN:
            self._put_down(app)
        if after is State.UP and before in _OUT:
            app.serving = True
            self.departures.returned(app, now)
            self.traffic.changed()

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


def at_once(request: Coroutine[Any, Any, T]) -> T:
    """The answer to a request that waits for nothing, as those to the store in memory."""
    try:
        request.send(None)
    except StopIteration as answer:
        value: T = answer.value
        return value
    raise AssertionError("the store in memory answers at once")
