"""The controller: the only writer of one container's state.

Messages come in through one inbox: reports of the app, replies to claims, leases and beats, orders, the signal to stop.
``run`` brings the time, with a turn each second unless nothing is counted. Each message becomes a trigger for
``core.life.transitions``, and the effects that follow are carried out here. The controller waits for nothing: what it
asks of the budget, the disk or the hook goes to ``effects``, and each reply is a message. Readers see ``snapshot``,
which is replaced at the end of each turn, but not between a grant and the moment at which its latch is on disk: what a
reader has seen of a grant must survive this process. Reports are taken meanwhile, and the wait is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from sidecar.controller.effects import EffectRunner
from sidecar.controller.inbox import Inbox, LatchWritten, Message, Reports
from sidecar.controller.incarnation_ids import PORT, IdStatus, IncarnationIds, incarnation_id
from sidecar.controller.runtime import Runtime
from sidecar.core.app_reports import ErrorReport, Report
from sidecar.core.claims import REVIVED, RandomIdentity, request_id
from sidecar.core.explain.samples import CullEvidence
from sidecar.core.life import transitions
from sidecar.core.life.assessment import Assessment
from sidecar.core.life.container import Container
from sidecar.core.life.culling import is_drained
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    ClearWindow,
    Culled,
    Effect,
    Judged,
    ReviveOrdered,
    SaveIncarnation,
    Trigger,
)
from sidecar.core.life.retiring import due_at
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.types import CHECK_JITTER, Policy, State, Verdict

_WELL: Final = (State.UP, State.RETIRING)
RESTARTS_A_SECOND: Final = 10
"""Maximum number of new incarnations: each is a step and log lines, and a report may name any number of them."""


class Controller:
    """Keeps the state of one container, and moves it as its measurements demand.

    ``observe`` is called with each step, ``publish`` with each snapshot; neither may block.
    """

    def __init__(
        self,
        container: Container,
        assessment: Assessment,
        effects: EffectRunner,
        inbox: Inbox,
        runtime: Runtime,
        *,
        policy: Policy,
        observe: Callable[[Record], None],
        publish: Callable[[Snapshot], None] = lambda _: None,
        ids: IncarnationIds | None = None,
    ) -> None:
        self.container = container
        self.assessment = assessment
        self.inbox = inbox
        self.ids = ids or IncarnationIds(container.app_start)
        self.lag_s = 0.0  # of the last turn that was due
        self.stale_reports = 0
        self._effects = effects
        self._clock, self._wall, self._rng, self._on_failure = runtime
        self._policy = policy
        self._observe = observe
        self._publish = publish
        self._restarts = 0  # in this second
        self._next_check = 0.0
        self._not_before = 0.0  # no judgement for a due transition is tried again before
        self._checked_at: float | None = None
        self._beat_error = ""
        self._last_cull: CullEvidence | None = None
        self._publish_snapshot(self._clock())

    # -- what readers see -------------------------------------------------------------------------------------

    def _publish_snapshot(self, now: float) -> None:
        """Show the readers what is now, unless the latch of a grant that they would see is not on disk yet."""
        unwritten = self._effects.unwritten_latch
        if unwritten is not None and unwritten == self.container.latch:
            return
        assessment = self.assessment
        self.snapshot = Snapshot(
            now,
            self.container,
            assessment.measurements.evidence(now),
            self._checked_at,
            weight=assessment.weight.percent,
            success_rate=assessment.success_rate,
            retire_at=due_at(self.container, self._policy),
            load=assessment.measurements.load(now),
            is_soft_drained=assessment.is_soft_drained,
            baseline=assessment.baseline,
            beat_error=self._beat_error,
            last_cull=self._last_cull,
            unix=self._wall(),
            enforce=self._policy.enforce,
        )
        self._publish(self.snapshot)

    # -- the loop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Control the container until cancelled."""
        async with self._effects.open():
            if self._policy.lifetime_s > 0:  # or each kill would make the container young again
                self._carry_out(SaveIncarnation())
            while True:
                now = self._clock()
                wake_at = self._wake_at(now)
                messages = await self.inbox.take(wake_at - now)
                now = self._clock()
                if now >= wake_at:
                    self.lag_s = now - wake_at
                self.advance(messages, now)

    def _wake_at(self, now: float) -> float:
        """When the next turn is due if no message comes: at a check, for a transition, or when the second is over.

        A container that is up and has nothing to count sleeps through the seconds, because a wake-up costs more than
        the turn itself. In every other state readers see how much time is left.
        """
        wake_at = min(self._next_check, self._due())
        is_quiet = self.container.state is State.UP and self.assessment.is_quiet
        return max(now, wake_at if is_quiet else min(wake_at, int(now) + 1.0))

    def advance(self, messages: Sequence[Message] | deque[Message], now: float) -> None:
        """Take one turn: pass the second, handle ``messages``, judge if there is a reason to, show the result."""
        self._guarded(self._pass_second, now)
        for message in messages:
            self._guarded(self._handle, message, now)
        has_reports = any(isinstance(message, Reports) for message in messages)
        if now >= self._next_check:
            self._guarded(self._check, now)
        elif has_reports and self.container.state in _WELL:
            self._guarded(self._judge_reports, now)
        elif now >= self._due() or (has_reports and self._is_drained()):
            self._guarded(self._judge_due, now)
        self._guarded(self._publish_snapshot, now)

    def _due(self) -> float:
        """When a transition is due; after a step that failed not at once again, or the loop would spin."""
        due = self.container.due
        return inf if due is None else max(due, self._not_before)

    def _is_drained(self) -> bool:
        return is_drained(self.container, self.assessment.measurements.idle_at)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - one bad step must not end the sidecar
            self._on_failure(error)

    def _pass_second(self, now: float) -> None:
        if self.assessment.turn(self.container, now):
            self._restarts = 0

    # -- judging ----------------------------------------------------------------------------------------------

    def _check(self, now: float) -> None:
        is_first = self._checked_at is None
        spread = self._rng.uniform(0, 1) if is_first else 1 + CHECK_JITTER * self._rng.uniform(-1, 1)
        self._next_check = now + self._policy.check_interval_s * spread
        verdict = self.assessment.verdict(now)
        if self.container.state in _WELL:
            self.assessment.learn_usual(verdict, now)
        self._act_on(verdict, now)
        self._checked_at = now

    def _judge(self, now: float) -> None:
        self._act_on(self.assessment.verdict(now), now)

    def _judge_due(self, now: float) -> None:
        """Judge because a transition is due. If that fails it is tried again, but not before a second has passed."""
        self._not_before = now + 1.0
        self._judge(now)
        self._not_before = 0.0

    def _judge_reports(self, now: float) -> None:
        """Judge what was just reported. Under a flood this happens once a turn, and only a bad verdict is a step."""
        verdict = self.assessment.verdict(now)
        if not verdict.is_fine:
            self._act_on(verdict, now)

    def _act_on(self, verdict: Verdict, now: float) -> None:
        measurements = self.assessment.measurements
        self._step(Judged(verdict, measurements.idle_at, measurements.load(now)), now)

    # -- messages ---------------------------------------------------------------------------------------------

    def _handle(self, message: Message, now: float) -> None:
        if isinstance(message, Answered):
            if self.container.outstanding is not None:
                self._guarded(self._judge, now)  # the window may have emptied while the answer was on its way
            self._step(message, now)
        elif isinstance(message, (BeatAnswered, BeatUnanswered)):
            self._process_beat(message, now)
        elif isinstance(message, ReviveOrdered):
            self._step(message._replace(incarnation=self._word(REVIVED), identity=self._identity()), now)
        elif isinstance(message, Reports):
            self._receive(message.reports, now)
        elif not isinstance(message, LatchWritten):
            self._step(message, now)

    def _process_beat(self, message: BeatAnswered | BeatUnanswered, now: float) -> None:
        """Take in the fleet as it is now. A suspect that was announced may claim, unless it has recovered meanwhile."""
        self._beat_error = message.error if isinstance(message, BeatUnanswered) else ""
        if isinstance(message, BeatAnswered):
            message = message._replace(jitter=self._rng.random())
            self.assessment.learn(message.fleet, now)
        else:
            self.assessment.forget_fleet(message.fleet)
        if self.container.state is State.SUSPECT:
            self._guarded(self._judge, now)
        self._step(message, now)

    def _receive(self, reports: Sequence[Report], now: float) -> None:
        for report in reports:
            if (name := incarnation_id(report)) and not self._is_current(name, now):
                self.stale_reports += 1
            else:
                self.assessment.measurements.take(report, now)
                if isinstance(report, ErrorReport) and report.version not in (None, "", self.container.app_version):
                    self.container = self.container._replace(app_version=report.version)

    def _is_current(self, name: str, now: float) -> bool:
        """Whether a report of this incarnation counts; the first report of a new incarnation begins its life."""
        status = self.ids.status(name)
        if status is IdStatus.NEW:
            if self._restarts >= RESTARTS_A_SECOND:
                return False
            self._restarts += 1
            self.ids.begin(name)
            self._step(AppRestarted(name, identity=self._identity()), now)
        elif status is IdStatus.JOINS:
            self.ids.join(name)
            if name.startswith(PORT):  # the next sidecar, too, has to tell this incarnation from the next
                self._guarded(self._carry_out, SaveIncarnation())
        return status is not IdStatus.ENDED

    def _word(self, what: str) -> str:
        """A random id, for a life or a lease that has none of its own."""
        return f"{what}-{self._rng.getrandbits(64):016x}"

    def _identity(self) -> RandomIdentity:
        return RandomIdentity(self._word("lease"), self._rng.random())

    # -- steps and effects ------------------------------------------------------------------------------------

    def _step(self, trigger: Trigger, now: float) -> None:
        self.container, effects, events = transitions.step(self.container, trigger, now, self._policy)
        for effect in effects:
            self._guarded(self._carry_out, effect)
        self.assessment.drain_softly(self.container)
        record = Record(events, self.container, self.assessment.measurements.evidence(now))
        if isinstance(trigger, Answered) and any(isinstance(event, Culled) for event in events):
            samples = self.assessment.measurements.samples.newest()
            self._last_cull = CullEvidence(request_id(trigger.request), trigger.at, samples, trigger.capture)
            record = record._replace(cull_evidence=self._last_cull)
        self._guarded(self._observe, record)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, ClearWindow):
            self.assessment.clear(effect)
        self._effects.carry_out(effect, self.container, self.ids.socket)
