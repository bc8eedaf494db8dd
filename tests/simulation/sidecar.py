"""The sidecar of one container: the real witness, detectors and arbiter, moved by the timeline instead of the hall.

It does what ``sidecar/loop.py`` does with them: a check every ten seconds, a look at every error that may cross the
limit, a judgement before every answer, a beat at every change; a lease is asked for and given back as it does it, and
what it would write to disk outlives it. A check that has nothing to judge is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from sidecar.core import arbiter, retiring
from sidecar.core.arbiter import (
    Answered,
    Ask,
    AskLease,
    Forget,
    Judged,
    Leased,
    Remember,
    Resign,
    Restarted,
    Standing,
    Stopped,
)
from sidecar.core.detectors import judge
from sidecar.core.retirement import due_at
from sidecar.core.witness import Witness
from sidecar.core.words import Answer, Claim, Judgement, Lease, Lot, Ping, Results, State
from simulation.container import Container
from simulation.network import Network
from simulation.post import Post
from simulation.rules import Rules

WINDOW_S: Final = 60
_WELL: Final = (State.UP, State.RETIRING)


class Sidecar:
    """One sidecar. ``on_move`` is called with itself and the state before, whenever the state has changed.

    ``remembered`` is what one that was killed in this place had written down: this one begins there.
    """

    def __init__(
        self,
        container: Container,
        rules: Rules,
        network: Network,
        on_move: Callable[[Sidecar, State], None],
        remembered: Standing | None = None,
    ) -> None:
        self.instance = container.instance
        self.rules = rules
        self.is_killed = False
        self.kind = "unknown"
        self.crossed_at: float | None = None
        self._network = network
        self._timeline = network.timeline
        self._rng = network.rng
        self._container = container
        self._on_move = on_move
        now = self._timeline.now
        self._phase = now + self._rng.uniform(0, rules.policy.check_interval_s)
        self._check_at = 0.0
        self._ends_at: float | None = None
        self._post = Post(self, rules, network)
        self._witness = Witness(WINDOW_S, int(now))
        self.standing = self._begin(remembered)
        self.remembered = self.standing if rules.policy.lifetime_s else remembered
        self._plan_wake()
        self._plan_end()
        self._post.beat()

    def _begin(self, remembered: Standing | None) -> Standing:
        now, policy, app = self._timeline.now, self.rules.policy, f"web/{self.instance}"
        if remembered is None:
            container, lot = self._container, self._lot()
            return arbiter.start(app, now, policy, app_start=container.app_start, born=container.born, lot=lot)
        standing = arbiter.start(
            app,
            now,
            policy,
            app_start=remembered.app_start,
            asked_under=remembered.incarnation,
            born=remembered.born,
            lot=remembered.lot,
        )
        latch = remembered.latch
        return arbiter.resume(standing, latch, now, self._wall_s() - latch.at, policy) if latch else standing

    # -- what happens to it ---------------------------------------------------------------------------------------

    def receive(self, errors: int, kind: str) -> None:
        """Take in errors of the app."""
        now = self._timeline.now
        self._witness.turn(int(now))
        self._witness.take(Ping(errors, kind=kind), now)
        if self.crossed_at is None and self._witness.errors.total >= self.rules.policy.error_limit:
            self.crossed_at = now
        self._plan_check()
        if self.rules.on_ping and self.standing.state in _WELL and self.crossed_at is not None:
            self._judge(is_check=False)

    def restarted(self, app_start: str) -> None:
        """The app is another incarnation."""
        self._step(Restarted(app_start, lot=self._lot()))

    def stopped(self) -> None:
        """The sidecar ends, and says goodbye."""
        self._step(Stopped())

    def killed(self) -> None:
        """The sidecar ends at once. What it has sent still arrives."""
        self.is_killed = True

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

    def _plan_end(self) -> None:
        """The first look at its age, once that is due."""
        ends_at = due_at(retiring.life(self.standing), self.rules.policy)
        if ends_at is not None and ends_at != self._ends_at:
            self._ends_at = ends_at
            self._timeline.at(ends_at, self._plan_check)

    def _check(self) -> None:
        if self.is_killed:
            return
        if self.standing.state in (*_WELL, State.SUSPECT):
            self._judge(is_check=True)
        if self._witness.errors.total or self._is_old():
            self._plan_check()

    def _is_old(self) -> bool:
        """It is due, and another look may tell whether it goes; who waits for its lease asks by itself."""
        if self._ends_at is None or self._timeline.now < self._ends_at:
            return False
        may_wait = self.rules.policy.lifetime_max_s > 0 and self.standing.state is State.RETIRING
        return may_wait or self.standing.state in (State.STARTING, State.UP, State.SUSPECT)

    def _judge(self, *, is_check: bool) -> None:
        now = self._timeline.now
        self._witness.turn(int(now))
        evidence = self._witness.evidence(now)
        verdict = judge(evidence, self.rules.policy)
        if verdict.judgement is Judgement.FINE:
            self.crossed_at = None
        else:
            self.kind = max(evidence.kinds, key=lambda kind: (evidence.kinds[kind], kind), default="unknown")
        if self._container.load is not None:
            self._witness.take(Results(load=self._container.load), now)
        self._step(Judged(verdict, is_check, self._jitter(), load=self._witness.load(now)))

    def _wake(self) -> None:
        if self.standing.due is not None and self._timeline.now >= self.standing.due:
            self._judge(is_check=False)

    def _plan_wake(self) -> None:
        if self.standing.due is not None:
            self._timeline.at(self.standing.due, self._wake)

    def _jitter(self) -> float:
        return self._rng.random() if self.rules.jitter else 0.0

    def _lot(self) -> Lot:
        lots = self._network.lots
        return Lot(f"lease-{lots.getrandbits(64):016x}", lots.random())

    def _wall_s(self) -> float:
        return self._timeline.wall_us / 1e6

    # -- moving ---------------------------------------------------------------------------------------------------

    def _step(self, event: arbiter.Event) -> None:
        if self.is_killed:
            return
        before = self.standing
        self.standing, effects = arbiter.step(before, event, self._timeline.now, self.rules.policy)
        for effect in effects:
            self._carry_out(effect)
        if self.standing.due != before.due:
            self._plan_wake()
        self._plan_end()
        if self.standing.state is not before.state:
            if self.standing.presence is not before.presence:
                self._post.beat()
            self._on_move(self, before.state)

    def _carry_out(self, effect: arbiter.Effect) -> None:
        if isinstance(effect, Ask):
            claim = Claim(effect.claim_id, self.instance, self.standing.life, self.kind)
            self._post.claim(claim, partial(self._answered, effect.claim_id))
        elif isinstance(effect, AskLease):
            self._ask_lease(effect.holder)
        elif isinstance(effect, Resign):
            self._post.resign(effect.holder)
        elif isinstance(effect, Remember):
            self.remembered = self.standing
        elif isinstance(effect, Forget):
            self._witness.clear(heart=effect.heart)
            self.crossed_at = None

    # -- the bucket -----------------------------------------------------------------------------------------------

    def _answered(self, claim_id: str, answer: Answer) -> None:
        self._look_again()
        self._step(Answered(claim_id, answer, self._wall_s(), self._jitter()))

    def _ask_lease(self, holder: str) -> None:
        policy = self.rules.policy
        lease = Lease(holder, self.instance, self.standing.life, policy.retire_slots, policy.retire_timeout_s)
        self._post.retire(lease, partial(self._leased, holder, self._timeline.now))

    def _leased(self, holder: str, asked_at: float, answer: Answer) -> None:
        self._look_again()
        self._step(Leased(holder, answer, self._wall_s(), self._jitter(), self._timeline.now - asked_at))

    def _look_again(self) -> None:
        """The window may have emptied while the answer was on its way."""
        if self.standing.asking or self.standing.leasing:
            self._judge(is_check=False)
