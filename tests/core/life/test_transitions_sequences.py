"""What no sequence of triggers may bring about: neither answers nor ids nor time, in whatever order they come."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.containers import (
    APP,
    BUSY,
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    LATCH,
    ORDERED,
    REPLAYED,
    RETIRING,
    SICK,
    STARTING,
    STOPPING,
    SUSPECT,
    UNKNOWN,
    UP,
    reachable,
)
from harness.strategies import built
from sidecar.core.claims import Answer, Claim, Denied, Fleet, Granted, LeaseRequest, Presence, RandomIdentity
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    Effect,
    GiveBack,
    Judged,
    Moved,
    ReviveOrdered,
    StopRequested,
    Trigger,
)
from sidecar.core.types import Policy

policies = built(
    Policy,
    check_interval_s=st.just(10.0),
    grace_s=st.sampled_from([0.0, 30.0]),
    settle_s=st.sampled_from([0.0, 3.0]),
    drain_s=st.sampled_from([0.0, 10.0]),
    lifetime_s=st.sampled_from([0.0, 15.0, 15.0]),
    busy_load=st.sampled_from([0.0, 0.5]),
    retire_timeout_s=st.sampled_from([20.0, 60.0]),
    enforce=st.sampled_from([True, True, False]),
)
answers = st.sampled_from([GRANTED, GRANTED, REPLAYED, DENIED, UNKNOWN])
pauses = st.sampled_from([0.0, 0.001, 1.0, 3.0, 10.0, 37.5, 1e6, -1.0]) | st.floats(0, 100)
jitters = st.floats(0, 1)
looks = st.sampled_from([FINE, FINE, BUSY, SICK, SICK])


class AnyLife(RuleBasedStateMachine):
    """Walks through incarnations of an app, with a simpler account of what has happened in the current one.

    ``asked``: claim ids of this incarnation, the outstanding one in ``claiming``. ``granted``: what it was or may have
    been granted, and has not given back; ``used``: the claims of its culls, in shadow mode of those that would have
    been. ``heard_at``: when the fleet heard that it is suspect, None if it has not.
    """

    container: Container

    @initialize(
        policy=policies,
        app_start=st.sampled_from([None, "one"]),
        drained_for_s=st.sampled_from([None, None, 0, 15, 99]),
        was_retired=st.booleans(),
    )
    def begin(self, policy: Policy, app_start: str | None, drained_for_s: float | None, *, was_retired: bool) -> None:
        self.policy, self.now, self.lives = policy, 0.0, 0
        self.claims_of_others, self.holders_of_others = {"foreign"}, {"lease-of-nobody"}
        self.container = start(APP, 0.0, policy, app_start=app_start, identity=self.identity())
        self.live()
        if drained_for_s is not None and policy.enforce:
            latch = replace(LATCH, lease=self.container.identity.holder if was_retired else "")
            self.container = resume(self.container, latch, 0.0, drained_for_s, policy)
            self.granted.add(latch.lease or latch.claim_id)

    def identity(self) -> RandomIdentity:
        return RandomIdentity(f"lease-{self.lives}")

    def live(self) -> None:
        """Begin the account of another incarnation."""
        self.claiming = self.leasing = ""
        self.asked: list[str] = []
        self.granted: set[str] = set()
        self.used: set[str] = set()
        self.is_sick = self.is_ordered = self.was_answered = False
        self.heard_at: float | None = None
        self.born = self.now

    def feel(self, trigger: Trigger) -> tuple[Container, tuple[Effect, ...]]:
        before = self.container
        after, effects, events = transitions.step(before, trigger, self.now, self.policy)
        self.container = after
        moves = [(event.was, event.state) for event in events if isinstance(event, Moved)]
        has_moved = after.state is not before.state
        assert [move for move in moves if move != (STARTING, STARTING)] == [(before.state, after.state)] * has_moved
        assert after.state in reachable(before.state, type(trigger))
        if after.state is not SUSPECT or before.state is not SUSPECT or after.life != before.life:
            self.heard_at = None
        for effect in effects:
            self.check_effect(effect, before)
        return before, effects

    def check_effect(self, effect: Effect, before: Container) -> None:
        if isinstance(effect, Claim):
            self.check_claim(effect.claim_id)
        elif isinstance(effect, LeaseRequest):
            assert (self.policy.enforce, self.container.state, self.claiming, self.leasing) == (True, RETIRING, "", "")
            assert self.now >= self.born + 0.9 * self.policy.lifetime_s > self.born
            assert effect.holder == self.container.identity.holder not in self.holders_of_others
            self.leasing = effect.holder
        elif isinstance(effect, GiveBack):
            assert effect.holder not in self.in_use(), "what it is out of balance under"
            assert effect.holder in {before.claim_id, before.identity.holder, before.lease} | self.claims_of_others | (
                self.holders_of_others | set(self.asked)
            )
            self.granted.discard(effect.holder)

    def check_claim(self, claim_id: str) -> None:
        assert self.is_sick or self.is_ordered
        assert (self.claiming, self.leasing, claim_id) == ("", "", self.container.claim_id)
        if not self.is_ordered:
            assert self.heard_at is not None, "the fleet has not heard of it"
            assert self.was_answered or self.now >= self.heard_at + self.policy.settle_s - 1e-6
        assert claim_id not in self.claims_of_others
        self.claiming = claim_id
        self.asked += [claim_id] * (claim_id not in self.asked)
        assert len(self.asked) == 1 + self.container.would_culls
        assert self.asked[-1] == claim_id

    def in_use(self) -> set[str]:
        """What the container is out of balance under, or would be in shadow mode."""
        container, latch = self.container, self.container.latch
        return {latch.lease or latch.claim_id} if latch else {container.claim_id} if container.would_down else set()

    # what may happen

    @rule(look=looks, pause=pauses)
    def judge(self, look: Judged, pause: float) -> None:
        self.now += pause
        self.is_sick = look.verdict == SICK.verdict
        self.feel(look)

    @precondition(lambda self: self.container.due is not None)
    @rule(look=looks, late_s=st.sampled_from([-0.001, 0.0, 0.001]))
    def judge_when_due(self, look: Judged, late_s: float) -> None:
        self.now = cast("float", self.container.due)
        self.judge(look, late_s)

    @precondition(lambda self: self.container.state in {STARTING, UP})
    @rule()
    def fall_sick(self) -> None:
        """The way to a claim, which is too long to be found often by chance."""
        for _ in range(2):
            self.judge(SICK, 50.0)
        self.beat(0.0, None, is_own=True, jitter=0.0)
        self.judge(SICK, 5.0)

    @precondition(lambda self: self.claiming and self.container.state is SUSPECT)
    @rule(answer=answers, pause=pauses, jitter=jitters)
    def answer(self, answer: Answer, pause: float, jitter: float) -> None:
        self.now += pause
        claim_id, self.claiming = self.claiming, ""
        self.note(answer, claim_id)
        has_to_go = isinstance(answer, Granted) and (self.is_sick or self.is_ordered)
        self.used |= {claim_id} if has_to_go else set()
        before, _ = self.feel(Answered(cast("Claim", self.container.outstanding), answer, self.now, jitter))
        self.was_answered, self.is_ordered = True, False
        if has_to_go and self.policy.enforce:
            assert (self.container.state, self.container.lease) == (DRAINING if self.policy.drain_s else DOWN, "")
        assert self.container.would_culls - before.would_culls == (has_to_go and not self.policy.enforce)

    @precondition(lambda self: self.leasing)
    @rule(answer=answers, pause=pauses, jitter=jitters, took_s=st.sampled_from([0.0, 1.0]))
    def answer_lease(self, answer: Answer, pause: float, jitter: float, took_s: float) -> None:
        self.now += pause
        holder, self.leasing = self.leasing, ""
        self.note(answer, holder)
        request = cast("LeaseRequest", self.container.outstanding)
        before, _ = self.feel(Answered(request, answer, self.now, jitter, took_s))
        assert bool(self.container.lease) is (before.state is RETIRING and isinstance(answer, Granted))

    def note(self, answer: Answer, holder: str) -> None:
        """Note what may be granted; a refusal says that nothing is."""
        self.granted = self.granted - {holder} if isinstance(answer, Denied) else self.granted | {holder}

    @rule(data=st.data(), answer=answers, of_lease=st.booleans())
    def answer_something_else(self, data: st.DataObject, answer: Answer, *, of_lease: bool) -> None:
        """An answer that comes too late changes nothing, and what it may have granted is given back."""
        others = self.holders_of_others if of_lease else {*self.claims_of_others, *self.asked}
        holder = data.draw(st.sampled_from(sorted(others)))
        if holder == self.claiming or (holder in self.granted and holder not in self.in_use()):
            return
        request = LeaseRequest(holder, "", "", "1", 60.0) if of_lease else Claim(holder)
        before, effects = self.feel(Answered(request, answer, self.now))
        is_kept = isinstance(answer, Denied) or holder in self.in_use()
        assert (self.container, effects) == (before, () if is_kept else (GiveBack(holder),))

    @rule(pause=pauses, presence=st.sampled_from([None, None, None, *Presence]), is_own=st.booleans(), jitter=jitters)
    def beat(self, pause: float, presence: Presence | None, *, is_own: bool, jitter: float) -> None:
        """A beat of the current state is answered, or one of another state or incarnation."""
        self.now += pause
        before = self.container
        life = before.life if is_own or presence is None else "another"
        trigger = BeatAnswered(presence or before.presence, life, Fleet(3), jitter)
        is_heard = (trigger.presence, life, before.would_down) == (Presence.SUSPECT, before.life, False)
        if self.heard_at is None and before.state is SUSPECT and is_heard:
            self.heard_at, self.was_answered = self.now, False
        self.feel(trigger)

    @rule(pause=pauses)
    def miss_a_beat(self, pause: float) -> None:
        self.now += pause
        before, effects = self.feel(BeatUnanswered("timeout"))
        self.heard_at = None
        assert (self.container.state, self.container.asking, effects) == (before.state, before.asking, ())

    @rule(pause=pauses)
    def order(self, pause: float) -> None:
        self.now += pause
        before, was_ordered = self.container, self.is_ordered
        is_ignored = before.state in {DRAINING, DOWN, STOPPING} or before.order is not None or before.would_down
        self.is_ordered = was_ordered or not is_ignored
        _, effects = self.feel(ORDERED)
        if is_ignored:
            assert (self.container, effects) == (before, ())
        else:
            assert self.claiming or before.outstanding

    # other incarnations

    def live_again(self, trigger: AppRestarted | ReviveOrdered) -> None:
        """Another incarnation begins: nothing is left of this one but what others have to give back."""
        claiming, leased = self.claiming, {self.container.identity.holder, self.container.lease}
        before, effects = self.feel(trigger)
        is_lost = before.state is SUSPECT and (claiming or before.claim_id in self.granted - self.in_use())
        given_back = [effect.holder for effect in effects if isinstance(effect, GiveBack)]
        assert claiming in ("", *given_back) or before.state is not SUSPECT
        assert not is_lost or given_back == [before.claim_id] or before.would_down
        self.claims_of_others |= set(self.asked)
        self.holders_of_others |= leased - {"", self.container.identity.holder}
        self.live()

    @rule(pause=pauses)
    def restart(self, pause: float) -> None:
        """The app names another incarnation, or the current one for the first time."""
        self.now += pause
        self.lives += 1
        trigger = AppRestarted(f"life-{self.lives}", identity=self.identity())
        before = self.container
        if before.state is STOPPING or (before.app_start is None and before.latch is None):
            self.feel(trigger)
            unchanged = ("state", "outstanding", "identity", "latch", "answer")
            assert [getattr(self.container, name) for name in unchanged] == [
                getattr(before, name) for name in unchanged
            ]
            return
        self.live_again(trigger)
        fresh = start(APP, self.now, self.policy, app_start=trigger.app_start, identity=trigger.identity)
        assert self.container == fresh

    @precondition(lambda self: self.container.state in {DRAINING, DOWN})
    @rule(pause=pauses)
    def revive(self, pause: float) -> None:
        self.now += pause
        self.lives += 1
        born = self.born
        self.live_again(ReviveOrdered("ann", "it was me", f"revived-{self.lives}", self.identity()))
        self.born = born
        assert (self.container.state, self.container.life) == (UP, f"revived-{self.lives}")

    @precondition(lambda self: self.lives > 1)
    @rule()
    def stop(self) -> None:
        self.feel(StopRequested())

    # what always holds

    @invariant()
    def only_a_grant_to_this_incarnation_puts_it_down(self) -> None:
        assert self.container.state in {DRAINING, DOWN, STOPPING} or self.container.latch is None
        assert self.container.state not in {DRAINING, DOWN} or self.container.latch is not None
        assert self.in_use() <= self.granted

    @invariant()
    def whatever_is_not_used_is_given_back(self) -> None:
        if self.container.state not in {SUSPECT, RETIRING}:
            assert self.granted - self.in_use() - self.used == set()

    @invariant()
    def one_request_at_a_time(self) -> None:
        container = self.container
        assert isinstance(container.outstanding, LeaseRequest) is bool(self.leasing)
        if container.state is SUSPECT:
            assert container.asking is bool(self.claiming)

    @invariant()
    def haproxy_goes_at_the_drain_and_nomad_only_at_down(self) -> None:
        container = self.container
        assert container.haproxy_up is (container.state in {STARTING, UP, SUSPECT, RETIRING})
        assert container.nomad_up or (container.latch is not None and container.state in {DOWN, STOPPING})
        assert container.state is not DOWN or not container.nomad_up

    @invariant()
    def shadow_stays_healthy(self) -> None:
        if not self.policy.enforce:
            assert self.container.nomad_up
            assert self.container.state not in {RETIRING, DRAINING, DOWN}

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        container = self.container
        if container.state in {STARTING, DRAINING}:
            assert container.due is not None
        if container.state is DOWN and container.lease:
            assert container.due == container.lease_ends is not None
        if container.state is RETIRING:
            assert (container.outstanding is None) is (container.due is not None)
        if container.state is SUSPECT:
            assert container.is_announced is (self.heard_at is not None)
            is_waiting = self.heard_at is None and container.order is None
            assert container.due is None or not is_waiting
            is_asking = container.outstanding is not None
            assert [is_asking, container.due is not None, container.would_down].count(True) == (
                is_asking or container.would_down or not is_waiting
            )


AnyLife.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyLife = AnyLife.TestCase
