"""A fleet whose errors were recorded: the same controllers, rules and store, without a made-up day.

Nobody knows what the errors of a culled container would have been. There are two readings: they end with the cull, or
its replacement has them all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from sidecar.core.life.snapshot import Record
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Policy
from sidecar.simulation.day_outcome import DayOutcome
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.simulated_app import SimulatedApp
from sidecar.simulation.simulated_sidecar import SimulatedSidecar
from sidecar.simulation.traffic import RequestLoad
from sidecar.simulation.world import Scheduler, World

IN_PLACE: Final = Scheduler(moved=0.0, engineer_s=0.0)
"""A culled container is away for 45 s, and serves again under the same name."""

_STEPS: Final = 200
"""How often a run says how far it is."""


class Began(NamedTuple):
    """An incarnation of a container begins: its first sample, a counter reset, a new start.

    ``at_s``: seconds since the beginning of the record. ``instance``: a name; one that is there is restarted in place.
    ``age_s``: its age at that time.
    """

    at_s: float
    instance: str
    age_s: float = 0.0


class Departed(NamedTuple):
    """A container is gone; its name may begin again."""

    at_s: float
    instance: str


class Counted(NamedTuple):
    """What the app of a container saw in one second. Seconds without errors need no row.

    ``requests``: all of them, the failed included; None if only the errors are known. ``kind``: the cause.
    """

    at_s: float
    instance: str
    errors: int
    requests: int | None = None
    kind: str = "unknown"


Recorded = Began | Departed | Counted


class Recording(Protocol):
    """The rows of a record in the order of ``at_s``, for ``for_s`` seconds; each iteration begins anew."""

    @property
    def for_s(self) -> float:
        """Its length in seconds."""

    def __iter__(self) -> Iterator[Recorded]:
        """The rows, read as they are needed."""


def replay(
    recording: Recording,
    rules: FleetRules,
    *,
    goes_on: bool,
    scheduler: Scheduler = IN_PLACE,
    seed: int = 1,
    thins: bool = True,
    on_progress: Callable[[float], None] = lambda _: None,
) -> DayOutcome:
    """What the rules would have done. ``goes_on``: a replacement has the errors that the culled container had.

    Otherwise they end with the cull, until the record has an end of the trouble: another incarnation, or a window with
    fewer errors than half the limit. The same ``seed`` gives the same jitter. ``thins``: the balancer follows the
    weights, which it did not in the record, so that a container of a lower weight has fewer of its errors.
    ``on_progress`` gets the simulated seconds that have passed since its last call. Raises ValueError for rows that are
    out of order, or of an unknown container.
    """
    world = RecordedWorld(recording, rules, goes_on=goes_on, scheduler=scheduler, seed=seed, thins=thins)
    try:
        world.run_in_steps(recording.for_s, _STEPS, on_progress)
        return replace(DayOutcome.of(world), without_service=tuple(world.without_service()))
    finally:
        world.close()


class RecordedWorld(World):
    """A fleet that does what a record says, except that its sidecars cull."""

    def __init__(
        self,
        recording: Recording,
        rules: FleetRules,
        *,
        goes_on: bool,
        scheduler: Scheduler,
        seed: int,
        thins: bool = True,
    ) -> None:
        super().__init__(rules, size=0, seed=seed, load=RequestLoad(0.0), has_weights=False, scheduler=scheduler)
        self.is_recorded = True
        self._goes_on = goes_on
        self._thins = thins
        self._rests: dict[tuple[int, str], float] = {}
        self._places: dict[str, int] = {}
        self._alive: dict[str, SimulatedApp] = {}
        self._ended: dict[int, _EndedTrouble] = {}
        self._lives: dict[int, int] = {}
        self._without_service: list[tuple[float, float]] = []
        self._out_since: float | None = None
        self._rows = iter(recording)
        self._row = next(self._rows, None)
        if self._row is not None:
            self.loop.plan(self._row.at_s, self._play)

    def without_service(self) -> list[tuple[float, float]]:
        """The times in which containers were there and none served, as seconds of the record."""
        open_ones = [] if self._out_since is None else [(self._out_since, self.loop.now)]
        return [*self._without_service, *open_ones]

    def _note_service(self) -> None:
        """A container serves, or serves no more."""
        is_out = bool(self.apps) and not any(one.serving for one in self.apps)
        if is_out and self._out_since is None:
            self._out_since = self.loop.now
        elif not is_out and self._out_since is not None:
            self._without_service.append((self._out_since, self.loop.now))
            self._out_since = None

    def _play(self) -> None:
        """Play all rows that are due, and plan the next."""
        row = self._row
        while row is not None and row.at_s <= self.loop.now:
            before_s = row.at_s
            if isinstance(row, Counted):
                self._count(row)
            elif isinstance(row, Began):
                self._begin(row)
            else:
                self._end(row)
            row = next(self._rows, None)
            if row is not None and row.at_s < before_s:
                raise ValueError(f"the rows are out of order: {row.at_s:g} s comes after {before_s:g} s")
        self._row = row
        if row is not None:
            self.loop.plan(row.at_s, self._play)

    def _known(self, row: Departed | Counted) -> SimulatedApp:
        app = self._alive.get(row.instance)
        if app is None:
            raise ValueError(f"{row.instance} has a row at {row.at_s:g} s, when it is not there")
        return app

    def _begin(self, row: Began) -> None:
        app = self._alive.get(row.instance)
        if app is not None:
            self._ended.pop(app.place, None)
            self._renew(app, app.life, moved=False)
            return
        place = self._places.setdefault(row.instance, len(self._places))
        if place == len(self.names):
            self.names.append(row.instance)
        app = SimulatedApp(place, f"c{place}", self._lives.get(place, 0), born=row.at_s - row.age_s)
        self._alive[row.instance] = app
        self.apps.append(app)
        self.most_apps = max(self.most_apps, len(self.apps))
        self._note_service()
        self._attend(app)

    def _end(self, row: Departed) -> None:
        app = self._known(row)
        del self._alive[row.instance]
        self._ended.pop(app.place, None)
        self.apps.remove(app)
        app.life += 1  # what is planned for the container is void
        self._lives[app.place] = app.life + 1
        app.serving = False
        self.departures.serves(app)
        self._leaving.discard(app.place)
        self._leave(app, app.life)
        self._note_service()

    def _renew(self, app: SimulatedApp, life: int, *, moved: bool) -> None:
        super()._renew(app, life, moved=moved)
        self._note_service()

    def _count(self, row: Counted) -> None:
        app = self._known(row)
        ended = self._ended.get(app.place)
        if ended is not None:
            if not ended.is_over(row):
                return
            del self._ended[app.place]
        if not app.serving:
            return
        errors = self._sent(app, row.kind, row.errors)
        self.traffic.failed.failed += errors
        if errors:
            self.timeline.reported(app.place, row.at_s, errors)
        sidecar = self._sidecars.get(app.place)
        if sidecar is not None and (errors or row.requests is not None):
            ok = self._sent(app, "", max(0, (row.requests or 0) - row.errors))
            sidecar.report(errors, row.kind, ok, results=row.requests is not None)

    def _sent(self, app: SimulatedApp, kind: str, count: int) -> int:
        """How many of these requests the balancer sends to a container of this weight; the rest is carried on."""
        if not self._thins or app.weight >= FULL:
            return count
        part = self._rests.get((app.place, kind), 0.0) + count * app.weight / FULL
        self._rests[app.place, kind] = part - int(part)
        return int(part)

    def _moved(self, sidecar: SimulatedSidecar, record: Record) -> None:
        super()._moved(sidecar, record)
        if record.before.state is not record.after.state:
            self._note_service()
        if record.culled and not self._goes_on:
            limit = _limit_of(self.rules.policy, sidecar.budget.cause)
            self._ended[sidecar.app.place] = _EndedTrouble(self.loop.now, self.rules.window_s, limit)


def _limit_of(policy: Policy, kind: str) -> int:
    """The least limit of errors that holds for this kind; 0: none."""
    limits = (policy.error_limit, dict(policy.kind_limits).get(kind, 0))
    return min((limit for limit in limits if limit > 0), default=0)


class _EndedTrouble:
    """The errors that a culled container would have had, which ended with the cull.

    The trouble itself is over after a window with fewer errors than half the limit; later errors are others. Close to
    the limit chance alone would end it again and again.
    """

    def __init__(self, since_s: float, window_s: float, limit: int) -> None:
        self._since_s = since_s
        self._window_s = window_s
        self._limit = limit
        self._recent: deque[Counted] = deque()
        self._errors = 0

    def is_over(self, row: Counted) -> bool:
        """Whether this row is the first after the trouble."""
        oldest_s = row.at_s - self._window_s
        while self._recent and self._recent[0].at_s <= oldest_s:
            self._errors -= self._recent.popleft().errors
        is_over = oldest_s >= self._since_s and self._errors < max(1, self._limit / 2)
        self._recent.append(row)
        self._errors += row.errors
        return is_over
