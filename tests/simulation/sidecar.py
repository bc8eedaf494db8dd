"""The sidecar of one container: the real controller, membership and budget, moved by the timeline.

What is left out is what changes nothing: while the app is well and its window empty its checks are made up when it is
woken, and its beats come ``STEADY_BEATS`` times as far apart. The rest is called as ``Controller.run`` and
``Membership.run`` do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, Final, cast

from sidecar.controller.controller import Controller
from sidecar.controller.inbox import Message
from sidecar.controller.journal import Journal, Memory
from sidecar.controller.membership import FIRST_AFTER_S, JITTER, Membership
from sidecar.core.life import transitions
from sidecar.core.life.container import Container
from sidecar.core.life.events import Stopped
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.snapshot import Record
from sidecar.core.life.weight import FULL, Weight
from sidecar.core.types import Evidence, Ping, RandomIdentity, Report, Results, State
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import Store
from simulation.app import SimulatedApp
from simulation.network import Line, Network
from simulation.rules import Rules
from simulation.timeline import Timeline

WINDOW_S: Final = 60
STEADY_BEATS: Final = 2.5
"""So many beats apart come those of the steady; three would have them struck off."""

_PHASES: Final = 1024
"""A power of two: seconds of the hall's clock are then exact ones of the timeline."""

LOAD_EVERY_S: Final = 5.0
"""How often an app says how busy it is."""

LITTLE_S: Final = 1e-9
"""More than what adding two instants of a run may round away."""

_EMPTY: Final = Evidence(WINDOW_S)


@dataclass(frozen=True)
class Site:
    """What the sidecars of a fleet share. ``moved`` is called with every step, ``weighed`` with every other weight."""

    timeline: Timeline
    rules: Rules
    store: Store
    network: Network
    seed: int
    moved: Callable[[Sidecar, Record], None]
    weighed: Callable[[Sidecar], None]
    is_asleep: Callable[[], bool]


class Notes(Journal):
    """A journal without a disk."""

    def __init__(self) -> None:
        super().__init__(None, "", lambda _operation, _error: None)
        self.memory: Memory | None = None

    async def save(self, memory: Memory) -> None:
        self.memory = memory

    async def settled(self, timeout_s: float) -> None:
        pass


class Sidecar:
    """One sidecar. ``remembered`` is what one that was killed in this place had written down: this one begins there."""

    def __init__(self, app: SimulatedApp, site: Site, remembered: Memory | None = None) -> None:
        self.app = app
        self.instance = app.instance
        self.is_over = False
        self._site = site
        self._timeline = timeline = site.timeline
        self._rng = Random(f"{site.seed}/{app.app_start}")
        self._offset_s = 1 + self._rng.randrange(_PHASES) / _PHASES
        self._told_percent = FULL
        self._reports: list[Report] = []
        self._wake_at = self._beat_at = inf
        self._is_beating = False
        self._load_at = -inf
        self.notes = Notes()
        rules, now = site.rules, self.clock()
        budget = FleetBudget(
            [("memory", site.store)],
            rules.terms,
            rng=self._rng,
            clock=lambda: timeline.now,
            counter=rules.counted(lambda: timeline.wall_s),
        )
        line = Line(budget, site.network)
        self.controller = Controller(
            self._begin(remembered),
            policy=rules.policy,
            pace=rules.pace,
            measurements=Measurements(WINDOW_S, int(now)),
            weight=Weight(),
            budget=line,
            journal=self.notes,
            clock=self.clock,
            wall=lambda: timeline.wall_s,
            rng=self._rng,
            observe=self._observe,
            on_failure=timeline.failures.append,
        )
        self.controller._effects._tasks = cast("asyncio.TaskGroup", self)
        self.membership = Membership(
            self.controller.snapshot,
            line,
            policy=rules.policy,
            interval_s=rules.terms.beat_us / 1e6,
            clock=self.clock,
            rng=self._rng,
            errors=lambda: self.controller.measurements.errors.total,
            put=self.controller.inbox.put,
            told=lambda _answer: None,
            on_failure=timeline.failures.append,
        )
        self.controller.each_second = self.membership.look
        self._listen()
        self.notes.memory = remembered
        if rules.policy.lifetime_s:
            self.notes.memory = self.controller.memory()
        self._plan_beat(FIRST_AFTER_S)
        self._plan_wake(timeline.now)

    def clock(self) -> float:
        """Seconds of its own monotonic clock, which began at another fraction of a second than those of others."""
        return self._timeline.now + self._offset_s

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have a petition carried out; what a killed sidecar has sent still arrives."""
        return self._timeline.loop.create_task(work)

    # -- what happens to it ---------------------------------------------------------------------------------------

    def report(self, errors: int, kind: str, ok: int = 0, *, results: bool = False) -> None:
        """Let the app report what came of the requests within its next second."""
        if errors:
            self._reports.append(Ping(errors, kind=kind))
        if results:
            self._reports.append(Results(ok, errors))
        self._plan_wake(int(self.clock()) + 1 - self._offset_s)

    def tell(self, report: Report) -> None:
        """Let the app report something now."""
        self._reports.append(report)
        self._plan_wake(self._timeline.now)

    def wake(self) -> None:
        """Beat, after all beats of a fleet to which nothing happened were left out."""
        if not self._is_beating and not self.is_over:
            self._beat()
            self._plan_beat(self._rng.uniform(0, self.membership._pause_s()))

    @property
    def is_idle(self) -> bool:
        """Nothing is to come of it but beats that say the same."""
        return self.is_steady and self.controller.inbox.is_empty and not self._is_beating

    def stop(self) -> None:
        """Tell the sidecar to end: it says goodbye."""
        self.controller.inbox.put(Stopped())

    def kill(self) -> None:
        """End the sidecar at once."""
        self.is_over = True

    # -- the hall -------------------------------------------------------------------------------------------------

    def _wake(self, when: float) -> None:
        if when == self._wake_at and not self.is_over:
            self._advance()

    def _advance(self) -> None:
        self._wake_at = inf
        now, messages = self.clock(), self._taken()
        self._make_up(now)
        self.controller.advance(messages, now, now)
        self._follow()

    def _taken(self) -> deque[Message]:
        inbox = self.controller.inbox
        messages, inbox._messages = inbox._messages, deque()
        if self.app.load is not None and self._timeline.now - self._load_at >= LOAD_EVERY_S:
            self._load_at = self._timeline.now
            self._reports.append(Results(load=self.app.load))
        if self._reports:
            messages.append(tuple(self._reports))
            self._reports = []
        self._listen()
        return messages

    def _listen(self) -> None:
        self.controller.inbox._waiter = cast("asyncio.Future[None]", _Bell(lambda: self._plan_wake(self._timeline.now)))

    def _make_up(self, now: float) -> None:
        """Make the checks that were left out: each of an empty window, before what is taken in now."""
        controller, interval_s = self.controller, self._site.rules.policy.check_interval_s
        if controller.checked_at is None or controller.container.state is not State.UP:
            return
        while controller._next_check < now:
            controller.measurements.usual.sample(_EMPTY, controller._next_check)
            controller._next_check += interval_s

    def _follow(self) -> None:
        if self.membership._changed.is_set() and not self._is_beating:
            self._beat()
        if self.controller.weight.percent != self._told_percent:
            self._told_percent = self.controller.weight.percent
            self._site.weighed(self)
        if not self.controller.inbox.is_empty:
            self._plan_wake(self._timeline.now)
        else:
            self._plan_wake(self._on_timeline(self._next_look()))

    def _next_look(self) -> float:
        """When the hall has to look again; it does each second, but sees nothing new in most."""
        controller, container = self.controller, self.controller.container
        if self.is_steady:
            due = controller.snapshot().retire_at if self._site.rules.policy.lifetime_s else None
            return inf if due is None else max(due, controller._next_check)
        if container.state is State.RETIRING and self._has_nothing:
            return max(self.clock(), min(controller._next_check, controller._due(self.clock())))
        return controller._wake_at(self.clock())

    @property
    def is_steady(self) -> bool:
        """The app is well, and nothing is counted, weighed or asked."""
        return self.controller.container.state is State.UP and self._has_nothing

    @property
    def _has_nothing(self) -> bool:
        controller = self.controller
        is_empty = not controller.measurements.errors.total and not self._reports and controller.checked_at is not None
        return is_empty and controller.weight.percent == FULL and controller.success_rate is None

    def _on_timeline(self, at: float) -> float:
        """The first instant at which its own clock shows this."""
        when = at - self._offset_s
        return when if when + self._offset_s >= at else when + LITTLE_S

    def _plan_wake(self, when: float) -> None:
        when = max(when, self._timeline.now)
        if when < self._wake_at and when < inf:
            self._wake_at = when
            self._timeline.at(when, lambda: self._wake(when))

    def _observe(self, record: Record) -> None:
        self.membership.notice(record)
        self._site.moved(self, record)

    # -- the pulse ------------------------------------------------------------------------------------------------

    def _plan_beat(self, in_s: float) -> None:
        self._beat_at = when = self._timeline.now + in_s
        self._timeline.at(when, lambda: self._beat_is_due(when))

    def _beat_is_due(self, when: float) -> None:
        if when == self._beat_at and not self.is_over and not self._is_beating and not self._site.is_asleep():
            self._beat()

    def _beat(self) -> None:
        self._is_beating = True
        self.membership._changed.clear()
        self._timeline.begin(self._beaten())

    async def _beaten(self) -> None:
        try:
            await self.membership.beat()
        except Exception as error:  # noqa: BLE001 - raised at the end of the run
            self._timeline.failures.append(error)
        self._is_beating = False
        if self.controller.container.state is State.STOPPING:
            self.is_over = True
        elif self.membership._changed.is_set():
            self._beat()
        else:
            steady = STEADY_BEATS if self.is_steady else 1.0
            self._plan_beat(self.membership._pause_s() * steady * (1 + JITTER * self._rng.uniform(-1, 1)))

    # -- the beginning --------------------------------------------------------------------------------------------

    def _begin(self, remembered: Memory | None) -> Container:
        """As ``sidecar/app/parts.py`` does it."""
        now, policy, app = self.clock(), self._site.rules.policy, f"web/{self.instance}"
        if remembered is None:
            born, identity = self.app.born + self._offset_s, RandomIdentity(self._word("lease"), self._rng.random())
            return transitions.start(app, now, policy, app_start=self.app.app_start, born=born, identity=identity)
        container = transitions.start(
            app,
            now,
            policy,
            app_start=remembered.app_start,
            asked_under=remembered.incarnation,
            born=None if remembered.born is None else now - (self._timeline.wall_s - remembered.born),
            identity=remembered.identity,
        )
        latch = remembered.latch
        return (
            transitions.resume(container, latch, now, self._timeline.wall_s - latch.at, policy) if latch else container
        )

    def _word(self, what: str) -> str:
        return f"{what}-{self._rng.getrandbits(64):016x}"


class _Bell:
    """Takes the place of the future on which the inbox wakes the hall."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def done(self) -> bool:
        return False

    def set_result(self, _result: None) -> None:
        self._ring()
