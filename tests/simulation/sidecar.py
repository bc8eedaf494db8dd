"""The sidecar of one container: the real witness, detectors and arbiter, moved by the timeline instead of the hall.

It does what ``sidecar/loop.py`` does with them: a check every ten seconds, a look at every error that may cross the
limit, a judgement before every answer, a beat at every change. A check that has nothing to judge is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from sidecar.core import arbiter
from sidecar.core.arbiter import Answered, Ask, Forget, Judged, Restarted, Stopped
from sidecar.core.birth import Mark
from sidecar.core.detectors import judge
from sidecar.core.witness import Witness
from sidecar.core.words import Answer, Beat, Claim, Judgement, Ping, Presence, State
from simulation.network import Network
from simulation.rules import Rules

WINDOW_S: Final = 60
STEADY_BEATS: Final = 2.5
"""So many beats apart come those of the steady: the work of most is spared, and three would have them struck off."""


class Sidecar:
    """One sidecar. ``on_move`` is called with itself and the state before, whenever the state has changed."""

    def __init__(
        self,
        instance: str,
        app_start: str,
        rules: Rules,
        network: Network,
        on_move: Callable[[Sidecar, State], None],
    ) -> None:
        self.instance = instance
        self.rules = rules
        self.kind = "unknown"
        self.crossed_at: float | None = None
        self._network = network
        self._timeline = network.timeline
        self._rng = network.rng
        self._on_move = on_move
        now = self._timeline.now
        self._phase = now + self._rng.uniform(0, rules.policy.check_interval_s)
        self._check_at = 0.0
        self._beat_at = 0.0
        self._is_heard = False
        self._mark = Mark()
        self._witness = Witness(WINDOW_S, int(now))
        self.standing = arbiter.start(f"web/{instance}", now, rules.policy, app_start=app_start)
        self._plan_wake()
        self._beat_now()

    # -- what happens to it ---------------------------------------------------------------------------------------

    def receive(self, errors: int, kind: str) -> None:
        """Take in errors of the app."""
        now = self._timeline.now
        self._witness.turn(int(now))
        self._witness.take(Ping(errors, kind=kind), now)
        if self.crossed_at is None and self._witness.errors.total >= self.rules.policy.error_limit:
            self.crossed_at = now
        self._plan_check()
        if self.rules.on_ping and self.standing.state is State.UP and self.crossed_at is not None:
            self._judge(is_check=False)

    def restarted(self, app_start: str) -> None:
        """The app is another incarnation."""
        self._step(Restarted(app_start))

    def stopped(self) -> None:
        """The sidecar ends, and says goodbye."""
        self._step(Stopped())

    # -- looking --------------------------------------------------------------------------------------------------

    def _plan_check(self) -> None:
        """The next look by the clock, if there is none yet."""
        now, interval = self._timeline.now, self.rules.policy.check_interval_s
        if self._check_at > now:
            return
        turns = ceil((now - self._phase) / interval) + (self._check_at == now)
        spread = self.rules.jitter * self._rng.uniform(-1, 1) if self.rules.jitter else 0.0
        self._check_at = max(now, self._phase + interval * (turns + spread))
        self._timeline.at(self._check_at, self._check)

    def _check(self) -> None:
        if self.standing.state in (State.UP, State.SUSPECT):
            self._judge(is_check=True)
        if self._witness.errors.total:
            self._plan_check()

    def _judge(self, *, is_check: bool) -> None:
        now = self._timeline.now
        self._witness.turn(int(now))
        evidence = self._witness.evidence(now)
        verdict = judge(evidence, self.rules.policy)
        if verdict.judgement is Judgement.FINE:
            self.crossed_at = None
        else:
            self.kind = max(evidence.kinds, key=lambda kind: (evidence.kinds[kind], kind), default="unknown")
        self._step(Judged(verdict, is_check, self._jitter()))

    def _wake(self) -> None:
        if self.standing.due is not None and self._timeline.now >= self.standing.due:
            self._judge(is_check=False)

    def _plan_wake(self) -> None:
        if self.standing.due is not None:
            self._timeline.at(self.standing.due, self._wake)

    def _jitter(self) -> float:
        return self._rng.random() if self.rules.jitter else 0.0

    # -- moving ---------------------------------------------------------------------------------------------------

    def _step(self, event: arbiter.Event) -> None:
        before = self.standing
        self.standing, effects = arbiter.step(before, event, self._timeline.now, self.rules.policy)
        for effect in effects:
            self._carry_out(effect)
        if self.standing.due != before.due:
            self._plan_wake()
        if self.standing.state is not before.state:
            if self.standing.presence is not before.presence:
                self._beat_now()
            self._on_move(self, before.state)

    def _carry_out(self, effect: arbiter.Effect) -> None:
        if isinstance(effect, Ask):
            claim = Claim(effect.claim_id, self.instance, self.standing.life, self.kind)
            self._network.after_delay(partial(self._claim, claim))
        elif isinstance(effect, Forget):
            self._witness.clear(heart=effect.heart)
            self.crossed_at = None

    # -- the bucket -----------------------------------------------------------------------------------------------

    def _claim(self, claim: Claim) -> None:
        receive = partial(self._answered, claim.claim_id)
        self._mark = self._network.claim(self.rules.terms, claim, self._mark, receive)

    def _answered(self, claim_id: str, answer: Answer) -> None:
        if self.standing.asking:
            self._judge(is_check=False)  # the window may have emptied while the answer was on its way
        self._step(Answered(claim_id, answer, self._timeline.wall_us / 1e6, self._jitter()))

    def _beat_now(self) -> None:
        """Tell the change; the next beat by the clock follows from there."""
        if self.rules.beats:
            self._beat_at = self._network.after_delay(self._beat)

    def _beat(self) -> None:
        now = self._timeline.now
        if now != self._beat_at:
            return  # a change has been told since
        latch = self.standing.latch
        beat = Beat(
            self.instance,
            self.standing.life,
            self.standing.presence,
            self.kind,
            latch.claim_id if latch else "",
            first=not self._is_heard,
        )
        self._mark, self._is_heard = self._network.beat(self.rules.terms, beat, self._mark), True
        if beat.presence is not Presence.GONE:
            self._beat_at = now + self._beat_every_s() * (1 + 0.1 * self._rng.uniform(-1, 1))
            self._timeline.at(self._beat_at, self._beat)

    def _beat_every_s(self) -> float:
        """Who has been well for longer than any probation has nothing to tell but that it is there."""
        terms, standing = self.rules.terms, self.standing
        well_s = self._timeline.now - standing.since if standing.state is State.UP else 0.0
        is_steady = well_s * 1e6 > terms.probation_us + terms.expiry_us
        return terms.beat_us / 1e6 * (STEADY_BEATS if is_steady else 1)
