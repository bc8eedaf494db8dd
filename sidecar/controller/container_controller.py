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
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

from sidecar.controller.effects import EffectRunner, TokenBudget
from sidecar.controller.evidence_capture import CullHook
from sidecar.controller.inbox import Inbox, LatchWritten, Message
from sidecar.controller.incarnation_ids import IdStatus, IncarnationIds, incarnation_id
from sidecar.controller.journal import Journal, Memory
from sidecar.core.explain import reasons
from sidecar.core.explain.samples import CullEvidence, Samples
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, is_drained
from sidecar.core.life.delays import CHECK_JITTER
from sidecar.core.life.detectors import complaint, judge
from sidecar.core.life.events import Culled
from sidecar.core.life.lifetime import due_at
from sidecar.core.life.retiring import lifespan
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.life.triggers import (
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    ClaimAnswered,
    ClaimToken,
    ClearWindow,
    CullOrdered,
    Effect,
    Judged,
    LeaseAnswered,
    ReleaseLease,
    RequestLease,
    ReturnToken,
    ReviveOrdered,
    SaveMemory,
    StopRequested,
    Trigger,
)
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.outlier import NO_BASELINE, Baseline, FleetUsual
from sidecar.core.measure.weight import FULL, Weight, share_of_window, soft_drain
from sidecar.core.types import (
    MANUAL,
    REVIVED,
    AppExited,
    Claim,
    ErrorReport,
    Evidence,
    Fleet,
    Judgement,
    Latch,
    LeaseRequest,
    Policy,
    Presence,
    RandomIdentity,
    Report,
    State,
    Verdict,
)
from sidecar.core.values import replace

_WELL: Final = (State.UP, State.RETIRING)
RESTARTS_A_SECOND: Final = 10
"""Maximum number of new incarnations: each is a step and log lines, and a report may name any number of them."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the window is judged: at every check, and with ``on_report`` also at once after a report.

    A check comes earlier or later by up to ``jitter`` of its interval. Without jitter no other delay is spread either.
    """

    jitter: float = CHECK_JITTER
    on_report: bool = True


class Controller:
    """Keeps the state and the measurements of one container, and moves the state as the measurements demand.

    ``clock`` gives monotonic seconds, ``wall`` Unix seconds. ``observe`` is called with each step, ``publish`` with
    each snapshot, ``on_failure`` with each exception of a step or an observer; none of them may block. ``hook``
    captures evidence between a grant and the drain.
    """

    def __init__(
        self,
        container: Container,
        *,
        policy: Policy,
        pace: Pace,
        measurements: Measurements,
        weight: Weight,
        budget: TokenBudget,
        journal: Journal,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Random,
        observe: Callable[[Record], None],
        on_failure: Callable[[Exception], None],
        inbox: Inbox | None = None,
        publish: Callable[[Snapshot], None] = lambda _: None,
        hook: CullHook | None = None,
        ids: IncarnationIds | None = None,
    ) -> None:
        self.inbox = inbox or Inbox()
        self.container = container
        self.measurements = measurements
        self.weight = weight
        self.ids = ids or IncarnationIds(container.app_start)
        self._weighed_s = 0
        self.samples = Samples()
        self.lag_s = 0.0
        self.stale_reports = 0
        self._restarts = 0
        self._policy = policy
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._observe = observe
        self._publish = publish
        self._on_failure = on_failure
        self._effects = EffectRunner(
            budget,
            journal,
            self.inbox.put,
            hook=hook,
            clock=clock,
            wall=wall,
            jitter=self._jitter,
            on_failure=on_failure,
        )
        self._checked_at: float | None = None
        self._success_rate = measurements.success_rate(clock())
        self._is_soft_drained = False
        self._share_of_window = 1.0
        self._fleet: Fleet | None = None
        self._fleet_usual = FleetUsual()
        self._baseline = NO_BASELINE
        self._beat_error = ""
        self._last_cull: CullEvidence | None = None
        self._next_check = 0.0
        self._not_before = 0.0
        self._has_news = False
        self._evidence_now: Evidence | None = None
        self._saved_latch = container.latch
        self._unwritten_latch: Latch | None = None
        self._publish_snapshot(clock())

    # -- what readers see -------------------------------------------------------------------------------------

    def _publish_snapshot(self, now: float) -> None:
        """Show the readers what is now, unless the latch of a grant that they would see is not on disk yet."""
        if self._unwritten_latch is not None and self._unwritten_latch == self.container.latch:
            return
        self.snapshot = Snapshot(
            now,
            self.container,
            self._evidence(now),
            self._checked_at,
            self.weight.percent,
            self._success_rate,
            due_at(lifespan(self.container), self._policy),
            self.measurements.load(now),
            self._is_soft_drained,
            self._baseline,
            self._beat_error,
            self._last_cull,
            self._wall(),
            self._policy.enforce,
        )
        self._publish(self.snapshot)

    def _evidence(self, now: float) -> Evidence:
        """What the window holds; summed up once for all that a turn asks between two changes of the counts."""
        if self._evidence_now is None:
            self._evidence_now = self.measurements.evidence(now)
        return self._evidence_now

    # -- the loop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Control the container until cancelled."""
        async with self._effects.open():
            if self._policy.lifetime_s > 0:
                self._carry_out(
                    SaveMemory(), self._clock()
                )  # without it each kill would make the container young again
            while True:
                now = self._clock()
                wake_at = self._wake_at(now)
                messages = await self.inbox.take(wake_at - now)
                self.advance(messages, self._clock(), wake_at)

    def advance(self, messages: Sequence[Message] | deque[Message], now: float, wake_at: float) -> None:
        """Take one turn: handle ``messages`` and do what is due at ``now``; ``wake_at`` is when the turn was due."""
        if now >= wake_at:
            self.lag_s = now - wake_at
        self._evidence_now = None
        self._guarded(self._pass_second, now)
        self._has_news = False
        for message in messages:
            self._guarded(self._handle, message, now)
        if now >= self._next_check:
            self._guarded(self._check, now)
        elif self._has_news and self._pace.on_report and self.container.state in _WELL:
            self._guarded(self._judge_news, now)
        elif (now >= self._due() or self._is_drained()) and not self._guarded(self._judge, now):
            self._not_before = now + 1.0
        self._guarded(self._publish_snapshot, now)

    def _wake_at(self, now: float) -> float:
        """When the next turn is due: at the next check or transition, and earlier if the next second changes anything.

        Each wake-up costs more than the turn itself, and most sidecars have nothing to count most of the time.
        """
        wake_at = min(self._next_check, self._due())
        if not self._is_quiet():
            wake_at = min(wake_at, int(now) + 1.0)
        return max(now, wake_at)

    def _is_quiet(self) -> bool:
        """Whether no second before the next check changes what readers see. In other states they see what time is left.

        The success rate is the last to be forgotten, minutes after the window is empty.
        """
        return (
            self.container.state is State.UP
            and self.measurements.is_empty
            and self._success_rate is None
            and self.weight.percent == FULL
        )

    def _due(self) -> float:
        """When a transition is due; after a step that failed not at once again, or the loop would spin."""
        due = self.container.due
        return inf if due is None else max(due, self._not_before)

    def _is_drained(self) -> bool:
        return self._has_news and is_drained(self.container, self.measurements.idle_at, self._policy)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> bool:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - one bad step must not end the sidecar
            self._on_failure(error)
            return False
        return True

    def _pass_second(self, now: float) -> None:
        """Make this second the current one in the window, and change the weight for the time since the last second."""
        now_s = int(now)
        self.measurements.turn(now_s)
        if now_s > self._weighed_s:
            self._success_rate = self.measurements.success_rate(now)
            self._drain_softly(now_s - self._weighed_s)
            if not self._is_soft_drained:
                self.weight = self.weight.step(self._success_rate, now_s - self._weighed_s)
            self._weighed_s = now_s
            self._restarts = 0

    def _drain_softly(self, elapsed_s: int = 0) -> None:
        """Lower the weight of a suspect at once, as far as the other containers can make up for it."""
        was, presence = self._is_soft_drained, self.container.presence
        percent = soft_drain(
            presence, self._success_rate, self._fleet, self._policy, is_announced=self.container.is_announced
        )
        self._is_soft_drained = percent < FULL
        if self._is_soft_drained:
            self.weight = self.weight.lowered(percent)
            elapsed_s, window_s = elapsed_s if was else 0, self.measurements.errors.seconds
            self._share_of_window = share_of_window(self._share_of_window, self.weight.percent, elapsed_s, window_s)
            return
        self._share_of_window = 1.0
        if was and presence is Presence.SUSPECT and self._success_rate is None:
            self.weight = self.weight.fresh()

    # -- judging ----------------------------------------------------------------------------------------------

    def _check(self, now: float) -> None:
        jitter = self._pace.jitter
        first = self._checked_at is None and jitter > 0
        spread = self._rng.random() if first else 1 + jitter * self._rng.uniform(-1, 1)
        self._next_check = now + self._policy.check_interval_s * spread
        self._judge(now, is_check=True)
        self._checked_at = now

    def _judge(self, now: float, *, is_check: bool = False) -> None:
        verdict = self._verdict(now)
        if is_check and self.container.state in _WELL and verdict.judgement is Judgement.FINE and not verdict.spared:
            self.measurements.usual.sample(self._evidence(now), now)
            self._compare(now)
        self._step(self._judged(verdict, now), now)

    def _judge_news(self, now: float) -> None:
        """Judge what was just reported. Under a flood this happens once a turn, and only a bad verdict is a step."""
        verdict = self._verdict(now)
        if verdict.judgement is not Judgement.FINE:
            self._step(self._judged(verdict, now), now)

    def _verdict(self, now: float) -> Verdict:
        """The verdict on the window. A softly drained container has only a part of its load, and of its errors.

        In shadow mode it has all of them.
        """
        baseline = self._baseline
        if self._is_soft_drained and self._policy.enforce:
            baseline = replace(baseline, share=self._share_of_window)
        return judge(self._evidence(now), self._policy, baseline)

    def _judged(self, verdict: Verdict, now: float) -> Judged:
        return Judged(verdict, self._jitter(), self.measurements.idle_at, self.measurements.load(now))

    def _compare(self, now: float) -> None:
        """Update the baseline from what is known of the fleet and of this app."""
        self._baseline = Baseline.of(self._fleet_usual, self.measurements.usual.rates(now))

    def _jitter(self) -> float:
        return self._rng.random() if self._pace.jitter else 0.0

    # -- messages ---------------------------------------------------------------------------------------------

    def _handle(self, message: Message, now: float) -> None:
        if isinstance(message, (ClaimAnswered, LeaseAnswered)):
            if self.container.asking or self.container.leasing:
                self._guarded(self._judge, now)  # the window may have emptied while the answer was on its way
            self._step(message, now)
        elif isinstance(message, (BeatAnswered, BeatUnanswered)):
            self._process_beat(message, now)
        elif isinstance(message, (CullOrdered, StopRequested)):
            self._step(message, now)
        elif isinstance(message, LatchWritten):
            if message.latch == self._unwritten_latch:
                self._unwritten_latch = None
        elif isinstance(message, ReviveOrdered):
            self._step(replace(message, incarnation=self._word(REVIVED), identity=self._identity()), now)
        else:
            self._receive(message, now)

    def _process_beat(self, message: BeatAnswered | BeatUnanswered, now: float) -> None:
        """Take in the fleet as it is now. A suspect that was announced may claim, unless it has recovered meanwhile."""
        self._fleet = message.fleet
        self._beat_error = message.error if isinstance(message, BeatUnanswered) else ""
        if isinstance(message, BeatAnswered):
            self._learn(message.fleet, now)
            message = replace(message, jitter=self._jitter())
        if self.container.state is State.SUSPECT:
            self._guarded(self._judge, now)
        self._step(message, now)

    def _learn(self, fleet: Fleet, now: float) -> None:
        self._fleet_usual = self._fleet_usual.updated(fleet, now, self._policy.error_limit)
        self._compare(now)

    def _receive(self, reports: Sequence[Report], now: float) -> None:
        for report in reports:
            if isinstance(report, AppExited):
                self._end_incarnation(now)
            elif (name := incarnation_id(report)) and not self._is_current(name, now):
                self.stale_reports += 1
            else:
                self.measurements.take(report, now)
                self._evidence_now = None
                if isinstance(report, ErrorReport):
                    self.samples.take(report, now)
        self._has_news = True

    def _end_incarnation(self, now: float) -> None:
        """The app has exited. What reports next is another incarnation, whose id is not known yet."""
        self.ids.begin(None)
        self._step(AppRestarted(None, self._word("after"), self._identity()), now)

    def _is_current(self, name: str, now: float) -> bool:
        """Whether a report of this incarnation counts; the first report of a new incarnation begins its life."""
        socket, status = self.ids.socket, self.ids.status(name)
        if status is IdStatus.NEW:
            if self._restarts >= RESTARTS_A_SECOND:
                return False
            self._restarts += 1
            self.ids.begin(name)
            self._step(AppRestarted(name, identity=self._identity()), now)
        elif self.ids.socket != socket:
            # The next sidecar, too, has to tell this incarnation from the next: without its socket it could not.
            self._guarded(self._carry_out, SaveMemory(), now)
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
            self._guarded(self._carry_out, effect, now)
        self._drain_softly()
        record = Record(events, self.container, self._evidence(now))
        if isinstance(trigger, ClaimAnswered) and any(isinstance(event, Culled) for event in events):
            self._last_cull = CullEvidence(trigger.claim_id, trigger.at, self.samples.newest(), trigger.capture)
            record = replace(record, cull_evidence=self._last_cull)
        self._guarded(self._observe, record)

    def _carry_out(self, effect: Effect, now: float) -> None:
        container = self.container
        if isinstance(effect, ClaimToken):
            self._effects.claim(self._claim(effect.claim_id, now), self._hook_reason())
        elif isinstance(effect, RequestLease):
            slots, timeout_s = self._policy.retire_slots, self._policy.retire_timeout_s
            self._effects.lease(LeaseRequest(effect.holder, container.instance, container.life, slots, timeout_s))
        elif isinstance(effect, ReleaseLease):
            self._effects.release_lease(container.instance, effect.holder)
        elif isinstance(effect, ReturnToken):
            self._effects.return_token(container.instance, effect.claim_id)
        elif isinstance(effect, SaveMemory):
            self._remember()
        elif isinstance(effect, ClearWindow):
            self._clear(effect, now)

    def _remember(self) -> None:
        memory = self.memory()
        latch, saved = memory.latch, self._saved_latch
        self._saved_latch = latch
        if latch is None or latch == saved:
            self._effects.remember(memory)
        elif self._effects.remember_latch(memory, latch):
            self._unwritten_latch = latch

    def _clear(self, effect: ClearWindow, now: float) -> None:
        self.measurements.clear(heart=effect.heart)
        self._evidence_now = None
        if effect.heart:
            self.samples.clear()
            self.weight, self._success_rate = self.weight.fresh(), None
            self._compare(now)
        self._effects.withdraw()

    def memory(self) -> Memory:
        """What has to survive this process."""
        container = self.container
        born = self._wall() - (self._clock() - container.born)
        return Memory(
            container.app,
            container.app_start,
            container.incarnation,
            container.latch,
            born,
            container.identity,
            self.ids.socket,
        )

    def _claim(self, claim_id: str, now: float) -> Claim:
        container = self.container
        kind = MANUAL if container.order else complaint(container.verdict, self._evidence(now))
        return Claim(claim_id, container.instance, container.life, kind, container.identity.holder)

    def _hook_reason(self) -> str:
        """The reason that the hook is called with; empty in shadow mode, where it is not called."""
        if not self._policy.enforce:
            return ""
        return reasons.verdict(self.container.verdict) or reasons.ORDERED
