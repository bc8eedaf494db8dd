"""The sidecar of one container: the real controller, membership and budget, driven by the timeline.

It skips what changes nothing: while the app is healthy and its window is empty, the checks are made up at the next
turn, and beats come ``STEADY_BEATS`` times less often. All else is called as by ``Controller.run`` and
``Membership.run``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, Final, cast

from sidecar.controller.container_controller import Controller
from sidecar.controller.inbox import Inbox, Message
from sidecar.controller.journal import Journal, Memory
from sidecar.controller.membership import FIRST_AFTER_S, JITTER, Membership
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.events import StopRequested
from sidecar.core.life.snapshot import Record
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import FULL, Weight
from sidecar.core.types import ErrorReport, Evidence, RandomIdentity, Report, Results, State
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import Store
from simulation.app import SimulatedApp
from simulation.network import Line, Network
from simulation.rules import Rules
from simulation.timeline import Timeline

WINDOW_S: Final = 60
STEADY_BEATS: Final = 2.5
"""Beat intervals between the beats of a steady sidecar; after three it would no longer be a member."""

_PHASES: Final = 1024
"""A power of two, so that seconds of the controller's clock are exact on the timeline."""

LOAD_EVERY_S: Final = 5.0
"""The interval in which an app reports its load."""

EPSILON_S: Final = 1e-9
"""More than the rounding error of the sum of two instants of a run."""

_EMPTY: Final = Evidence(WINDOW_S)


@dataclass(frozen=True)
class Site:
    """What a fleet shares. ``on_step`` is called with every step, ``on_weight`` with every change of a weight."""

    timeline: Timeline
    rules: Rules
    store: Store
    network: Network
    seed: int
    on_step: Callable[[Sidecar, Record], None]
    on_weight: Callable[[Sidecar], None]
    is_asleep: Callable[[], bool]


class MemoryJournal(Journal):
    """A journal without a disk."""

    def __init__(self) -> None:
        super().__init__(None, "", lambda _operation, _error: None)
        self.memory: Memory | None = None

    async def save(self, memory: Memory) -> None:
        self.memory = memory

    async def settled(self, timeout_s: float) -> None:
        pass


class Sidecar:
    """One sidecar; it begins with ``saved``, the state of a killed sidecar in this place, if there is one."""

    def __init__(self, app: SimulatedApp, site: Site, saved: Memory | None = None) -> None:
        self.app = app
        self.instance = app.instance
        self.is_over = False
        self._site = site
        self._timeline = timeline = site.timeline
        self._rng = Random(f"{site.seed}/{app.app_start}")
        self._offset_s = 1 + self._rng.randrange(_PHASES) / _PHASES
        self._known_percent = FULL
        self._reports: list[Report] = []
        self._wake_at = self._beat_at = inf
        self._is_beating = False
        self._load_at = -inf
        self.journal = MemoryJournal()
        rules, now = site.rules, self.clock()
        budget = FleetBudget(
            [("memory", site.store)],
            rules.terms,
            rng=self._rng,
            clock=lambda: timeline.now,
            counter=rules.counted(lambda: timeline.wall_s),
        )
        line = Line(budget, site.network)
        inbox = Inbox()
        self.membership = Membership(
            line,
            policy=rules.policy,
            interval_s=rules.terms.beat_us / 1e6,
            clock=self.clock,
            rng=self._rng,
            put=inbox.put,
            on_answer=lambda _answer: None,
            on_failure=timeline.failures.append,
        )
        self.controller = Controller(
            self._begin(saved),
            policy=rules.policy,
            pace=rules.pace,
            measurements=Measurements(WINDOW_S, int(now)),
            weight=Weight(),
            budget=line,
            journal=self.journal,
            clock=self.clock,
            wall=lambda: timeline.wall_s,
            rng=self._rng,
            observe=self._observe,
            on_failure=timeline.failures.append,
            inbox=inbox,
            publish=self.membership.update,
        )
        self.controller._effects._tasks = cast("asyncio.TaskGroup", self)
        self._listen()
        self.journal.memory = saved
        if rules.policy.lifetime_s:
            self.journal.memory = self.controller.memory()
        self._plan_beat(FIRST_AFTER_S)
        self._plan_wake(timeline.now)

    def clock(self) -> float:
        """Seconds of its own monotonic clock, with its own fraction of a second."""
        return self._timeline.now + self._offset_s

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an effect; a request that a killed sidecar has sent still arrives."""
        return self._timeline.loop.create_task(work)

    # -- events from outside ---------------------------------------------------------------------------------------

    def report(self, errors: int, kind: str, ok: int = 0, *, results: bool = False) -> None:
        """Have the app report the results of its requests with its next second."""
        if errors:
            self._reports.append(ErrorReport(errors, kind=kind))
        if results:
            self._reports.append(Results(ok, errors))
        self._plan_wake(int(self.clock()) + 1 - self._offset_s)

    def report_now(self, report: Report) -> None:
        """Have the app report now."""
        self._reports.append(report)
        self._plan_wake(self._timeline.now)

    def wake(self) -> None:
        """Beat, after the beats of a quiet fleet were skipped."""
        if not self._is_beating and not self.is_over:
            self._beat()
            self._plan_beat(self._rng.uniform(0, self.membership._pause_s()))

    @property
    def is_idle(self) -> bool:
        """Whether only equal beats are to come."""
        return self.is_steady and self.controller.inbox.is_empty and not self._is_beating

    def stop(self) -> None:
        """Stop the sidecar; it sends a goodbye."""
        self.controller.inbox.put(StopRequested())

    def kill(self) -> None:
        """End the sidecar at once."""
        self.is_over = True

    # -- the controller ------------------------------------------------------------------------------------------------

    def _wake(self, when: float) -> None:
        if when == self._wake_at and not self.is_over:
            self._advance()

    def _advance(self) -> None:
        self._wake_at = inf
        now, messages = self.clock(), self._taken()
        self._add_skipped_checks(now)
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
        self.controller.inbox._waiter = cast(
            "asyncio.Future[None]", _Waiter(lambda: self._plan_wake(self._timeline.now))
        )

    def _add_skipped_checks(self, now: float) -> None:
        """Make the skipped checks, each of an empty window, before the messages of this turn."""
        controller, interval_s = self.controller, self._site.rules.policy.check_interval_s
        if controller.snapshot.checked_at is None or controller.container.state is not State.UP:
            return
        while controller._next_check < now:
            controller.measurements.usual.sample(_EMPTY, controller._next_check)
            controller._next_check += interval_s

    def _follow(self) -> None:
        if self.membership._changed.is_set() and not self._is_beating:
            self._beat()
        if self.controller.weight.percent != self._known_percent:
            self._known_percent = self.controller.weight.percent
            self._site.on_weight(self)
        if not self.controller.inbox.is_empty:
            self._plan_wake(self._timeline.now)
        else:
            self._plan_wake(self._to_timeline(self._next_turn()))

    def _next_turn(self) -> float:
        """The next turn of the controller that can change anything; the real one has a turn each second."""
        controller, container = self.controller, self.controller.container
        if self.is_steady:
            due = controller.snapshot.retire_at if self._site.rules.policy.lifetime_s else None
            return inf if due is None else max(due, controller._next_check)
        if container.state is State.RETIRING and self._is_empty:
            return max(self.clock(), min(controller._next_check, controller._due(self.clock())))
        return controller._wake_at(self.clock())

    @property
    def is_steady(self) -> bool:
        """Whether the app is up and its window is empty."""
        return self.controller.container.state is State.UP and self._is_empty

    @property
    def _is_empty(self) -> bool:
        controller, seen = self.controller, self.controller.snapshot
        is_empty = not controller.measurements.errors.total and not self._reports and seen.checked_at is not None
        return is_empty and controller.weight.percent == FULL and seen.success_rate is None

    def _to_timeline(self, at: float) -> float:
        """The first instant of the timeline at which its own clock has this value."""
        when = at - self._offset_s
        return when if when + self._offset_s >= at else when + EPSILON_S

    def _plan_wake(self, when: float) -> None:
        when = max(when, self._timeline.now)
        if when < self._wake_at and when < inf:
            self._wake_at = when
            self._timeline.at(when, lambda: self._wake(when))

    def _observe(self, record: Record) -> None:
        self._site.on_step(self, record)

    # -- the membership ------------------------------------------------------------------------------------------------

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
            born=None if saved.born is None else now - (self._timeline.wall_s - saved.born),
            identity=saved.identity,
        )
        latch = saved.latch
        return resume(container, latch, now, self._timeline.wall_s - latch.at, policy) if latch else container

    def _word(self, what: str) -> str:
        return f"{what}-{self._rng.getrandbits(64):016x}"


class _Waiter:
    """Takes the place of the future with which the inbox wakes the controller."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def done(self) -> bool:
        return False

    def set_result(self, _result: None) -> None:
        self._wake()
