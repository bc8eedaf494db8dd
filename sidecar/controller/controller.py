"""The controller: the only writer of state.

Messages come in through one inbox (pings from the doors, answers to claims and to beats, the order to stop) and time
through ``run``; each is turned into events for the arbiter, whose wishes are carried out here. Nothing in it waits for
the budget, the disk or a door: what it asks of them goes to ``petitions``, and a reply is a message like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from sidecar.controller.effects import Bucket, EffectRunner
from sidecar.controller.evidence_capture import Inquest
from sidecar.controller.inbox import Inbox, Message
from sidecar.controller.incarnation_ids import Names, Place, name_of
from sidecar.controller.journal import Journal, Memory
from sidecar.core.explain import reasons
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, is_drained
from sidecar.core.life.detectors import complaint, judge
from sidecar.core.life.events import (
    Answered,
    Ask,
    AskLease,
    BeatAnswered,
    BeatUnanswered,
    ClearWindow,
    CullOrdered,
    Effect,
    Event,
    Judged,
    Leased,
    Remember,
    Resign,
    Restarted,
    ReturnToken,
    Revived,
    Stopped,
)
from sidecar.core.life.lifetime import due_at
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.outlier import NO_BASELINE, Baseline, FleetUsual
from sidecar.core.life.retiring import life
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.life.weight import FULL, Weight, soft_drain
from sidecar.core.types import (
    MANUAL,
    AppExited,
    Claim,
    Evidence,
    Fleet,
    Judgement,
    Lease,
    Ping,
    Policy,
    Presence,
    RandomIdentity,
    Report,
    State,
    Verdict,
)

_WELL: Final = (State.UP, State.RETIRING)


@dataclass(frozen=True, slots=True)
class Pace:
    """When the controller looks: at every check, and at once after a ping if ``on_ping``.

    A check comes by up to ``jitter`` of its interval earlier or later; without jitter nothing else is spread either.
    """

    jitter: float = 0.1
    on_ping: bool = True


class Controller:
    """Holds standing and witness of one app, and lets the arbiter move the one by the evidence of the other.

    ``clock`` gives monotonic seconds, ``wall`` Unix seconds. ``weight`` is where the app begins. ``observe`` is called
    once a step, ``on_failure`` with every exception that a step or an observer let out; neither may block.

    ``fleet``: as it was last heard of, None if that is not known. ``each_second`` is called once a second.
    """

    def __init__(
        self,
        container: Container,
        *,
        policy: Policy,
        pace: Pace,
        measurements: Measurements,
        weight: Weight,
        budget: Bucket,
        journal: Journal,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Random,
        observe: Callable[[Record], None],
        on_failure: Callable[[Exception], None],
        inquest: Inquest | None = None,
    ) -> None:
        self.container = container
        self.weight = weight
        self.success_rate: float | None = None
        self.checked_at: float | None = None
        self.lag_s = 0.0
        self.stale_reports = 0
        self.fleet: Fleet | None = None
        self.baseline: Baseline = NO_BASELINE
        self.beat_error = ""
        self.is_soft_drained = False
        self.each_second: Callable[[], None] = lambda: None
        self.measurements = measurements
        self.names = Names(container.app_start)
        self.weighed_s = 0
        self.inquest = inquest or Inquest(clock, wall, on_failure)
        self.inbox = Inbox()
        self._policy = policy
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._observe = observe
        self._on_failure = on_failure
        self._effects = EffectRunner(
            budget, journal, self.inbox.put, clock=clock, wall=wall, jitter=self._jitter, on_failure=on_failure
        )
        self._next_check = 0.0
        self._not_before = 0.0
        self._has_news = False
        self._fleet_usual = FleetUsual()

    # -- what the doors see -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state of affairs now; costs some microseconds and waits for nothing."""
        now = self._clock()
        evidence = self.measurements.evidence(now)
        return Snapshot(
            now,
            self.container,
            evidence,
            self.checked_at,
            self.weight.percent,
            self.success_rate,
            due_at(life(self.container), self._policy),
            self.measurements.load(now),
            self.is_soft_drained,
            self.baseline,
            self.beat_error,
        )

    def evidence(self) -> Evidence:
        """What the window holds."""
        return self.measurements.evidence(self._clock())

    @property
    def capture(self) -> str | None:
        """What the hook printed at the last cull."""
        return self.inquest.kept.capture if self.inquest.kept else None

    # -- the loop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self._effects.open():
            if self._policy.lifetime_s > 0:
                self._carry_out(Remember(), self._clock())  # or who is killed often would be for ever young
            while True:
                now = self._clock()
                wake_at = self._wake_at(now)
                messages = await self.inbox.take(wake_at - now)
                self.advance(messages, self._clock(), wake_at)

    def advance(self, messages: Sequence[Message] | deque[Message], now: float, wake_at: float) -> None:
        """Take in what has come and do what is due at ``now``; ``wake_at`` is when the clock was to wake us."""
        if now >= wake_at:
            self.lag_s = now - wake_at
        self._guarded(self._turn, now)
        self._has_news = False
        for message in messages:
            self._guarded(self._handle, message, now)
        if now >= self._next_check:
            self._guarded(self._check, now)
        elif self._has_news and self._pace.on_ping and self.container.state in _WELL:
            self._guarded(self._glance, now)
        elif (now >= self._due(now) or self._is_drained()) and not self._guarded(self._judge, now):
            self._not_before = now + 1.0

    def _wake_at(self, now: float) -> float:
        """The next whole second turns the ring; a check or the arbiter may want to be earlier."""
        return max(now, min(int(now) + 1.0, self._next_check, self._due(now)))

    def _due(self, now: float) -> float:
        """When the arbiter wants to be stepped; after a failed step not again at once, which would spin."""
        due = self.container.due
        return now + 1.0 if due is None else max(due, self._not_before)

    def _is_drained(self) -> bool:
        return self._has_news and is_drained(self.container, self.measurements.idle_at, self._policy)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> bool:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - one bad step must not end the sidecar
            self._on_failure(error)
            return False
        return True

    def _turn(self, now: float) -> None:
        """Once a second turn the ring and weigh the app; in between there is nothing to do."""
        now_s = int(now)
        self.measurements.turn(now_s)
        if now_s > self.weighed_s:
            self.success_rate = self.measurements.success_rate(now)
            self._drain_softly()
            if not self.is_soft_drained:
                self.weight = self.weight.step(self.success_rate, now_s - self.weighed_s)
            self.weighed_s = now_s
            self.each_second()

    def _drain_softly(self) -> None:
        """Set the weight of a suspect at once, to what the others can make up for."""
        was, presence = self.is_soft_drained, self.container.presence
        percent = soft_drain(presence, self.success_rate, self.fleet, self._policy, is_heard=self.container.is_heard)
        self.is_soft_drained = percent < FULL
        if self.is_soft_drained:
            self.weight = self.weight.lowered(percent)
        elif was and presence is Presence.SUSPECT and self.success_rate is None:
            self.weight = self.weight.fresh()

    def _check(self, now: float) -> None:
        jitter = self._pace.jitter
        first = self.checked_at is None and jitter > 0
        spread = self._rng.random() if first else 1 + jitter * self._rng.uniform(-1, 1)
        self._next_check = now + self._policy.check_interval_s * spread
        self._judge(now, is_check=True)
        self.checked_at = now

    def _judge(self, now: float, *, is_check: bool = False) -> None:
        evidence = self.measurements.evidence(now)
        verdict = judge(evidence, self._policy, self._compared_with())
        if is_check and self.container.state in _WELL and verdict.judgement is Judgement.FINE and not verdict.spared:
            self.measurements.usual.sample(evidence, now)
            self._compare(now)
        self._step(self._judged(verdict, now, is_check=is_check), now)

    def _compared_with(self) -> Baseline:
        """The baseline; a container that is drained softly is sent only a part of its load, and of its errors."""
        if not self.is_soft_drained:
            return self.baseline
        return replace(self.baseline, share=self.weight.percent / FULL)

    def _compare(self, now: float) -> None:
        """Take the baseline anew from what is known of the fleet and of this app."""
        self.baseline = Baseline.of(self._fleet_usual, self.measurements.usual.rates(now))

    def _judged(self, verdict: Verdict, now: float, *, is_check: bool = False) -> Judged:
        return Judged(verdict, is_check, self._jitter(), self.measurements.idle_at, self.measurements.load(now))

    def _glance(self, now: float) -> None:
        """Judge what has just been reported. Under a flood this is done once a turn: only what speaks is a step."""
        verdict = judge(self.measurements.evidence(now), self._policy, self._compared_with())
        if verdict.judgement is not Judgement.FINE:
            self._step(self._judged(verdict, now), now)

    def _jitter(self) -> float:
        return self._rng.random() if self._pace.jitter else 0.0

    # -- messages ---------------------------------------------------------------------------------------------

    def _handle(self, message: Message, now: float) -> None:
        if isinstance(message, (Answered, Leased)):
            if self.container.asking or self.container.leasing:
                self._guarded(self._judge, now)  # the window may have emptied while the answer was on its way
            self._step(message, now, claim_s=self._effects.took_s(now))
        elif isinstance(message, (BeatAnswered, BeatUnanswered)):
            self._hear(message, now)
        elif isinstance(message, (CullOrdered, Stopped)):
            self._step(message, now)
        elif isinstance(message, Revived):
            self._step(replace(message, incarnation=self._word("revived"), identity=self._identity()), now)
        else:
            self._receive(message, now)

    def _hear(self, message: BeatAnswered | BeatUnanswered, now: float) -> None:
        """Know the fleet as it is now; a suspect that has been heard may claim, unless it has recovered meanwhile."""
        self.fleet = message.fleet
        self.beat_error = message.error if isinstance(message, BeatUnanswered) else ""
        if isinstance(message, BeatAnswered):
            self._fleet_usual = self._fleet_usual.heard(message.fleet, now, self._policy.error_limit)
            self._compare(now)
            message = replace(message, jitter=self._jitter())
        if self.container.state is State.SUSPECT:
            self._guarded(self._judge, now)
        self._step(message, now)

    def _receive(self, reports: Sequence[Report], now: float) -> None:
        for report in reports:
            if isinstance(report, AppExited):
                self._bury(now)
            elif (name := name_of(report)) and not self._is_alive(name, now):
                self.stale_reports += 1
            else:
                self.measurements.take(report, now)
                if isinstance(report, Ping):
                    self.inquest.samples.take(report, now)
        self._has_news = True

    def _bury(self, now: float) -> None:
        """The app has ended. Who comes next is another incarnation, though we do not know its name yet."""
        self._step(Restarted(None, self._word("after"), self._identity()), now)
        self.names.begin(None)

    def _is_alive(self, name: str, now: float) -> bool:
        """Whether a report of this incarnation counts; the first one of a new incarnation begins its life."""
        place = self.names.place(name)
        if place is Place.NEW:
            self._step(Restarted(name, identity=self._identity()), now)
            self.names.begin(name)
        return place is not Place.ENDED

    def _word(self, what: str) -> str:
        """A word for a life that has no name, or not one of its own."""
        return f"{what}-{self._rng.getrandbits(64):016x}"

    def _identity(self) -> RandomIdentity:
        return RandomIdentity(self._word("lease"), self._rng.random())

    # -- steps and wishes -------------------------------------------------------------------------------------

    def _step(self, event: Event, now: float, claim_s: float | None = None) -> None:
        before = self.container
        self.container, effects = transitions.step(before, event, now, self._policy)
        for effect in effects:
            self._guarded(self._carry_out, effect, now)
        self._drain_softly()
        self._guarded(self._observe, Record(event, before, self.container, self.measurements.evidence(now), claim_s))

    def _carry_out(self, effect: Effect, now: float) -> None:
        if isinstance(effect, Ask):
            self._effects.claim(self._claim(effect.claim_id, now), now, self._hold_inquest)
        elif isinstance(effect, AskLease):
            self._effects.lease(self._lease(effect.holder), now)
        elif isinstance(effect, Resign):
            self._effects.resign(self.container.instance, effect.holder)
        elif isinstance(effect, ReturnToken):
            self._effects.return_token(self.container.instance, effect.claim_id)
        elif isinstance(effect, Remember):
            self._effects.remember(self.memory())
        elif isinstance(effect, ClearWindow):
            self._forget(effect, now)

    def _forget(self, effect: ClearWindow, now: float) -> None:
        self.measurements.clear(heart=effect.heart)
        if effect.heart:
            self.inquest.samples.clear()
            self.weight, self.success_rate = self.weight.fresh(), None
            self._compare(now)
        self._effects.withdraw()

    def memory(self) -> Memory:
        """What must survive us."""
        container = self.container
        born = self._wall() - (self._clock() - container.born)
        return Memory(
            container.app, container.app_start, container.incarnation, container.latch, born, container.identity
        )

    def _claim(self, claim_id: str, now: float) -> Claim:
        container = self.container
        kind = MANUAL if container.order else complaint(container.verdict, self.measurements.evidence(now))
        return Claim(claim_id, container.instance, container.life, kind)

    def _lease(self, holder: str) -> Lease:
        container, policy = self.container, self._policy
        return Lease(holder, container.instance, container.life, policy.retire_slots, policy.retire_timeout_s)

    async def _hold_inquest(self, claim: Claim) -> float:
        """The seconds it took: none in shadow mode, nor for one that is out of balance already."""
        container = self.container
        if not self._policy.enforce or container.latch is not None:
            return 0.0
        return await self.inquest.hold(claim, reasons.verdict(container.verdict) or reasons.ORDERED)
