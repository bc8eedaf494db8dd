"""No sequence of events: what neither answers nor names nor time may bring about, whatever comes in whatever order."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.lives import (
    APP,
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    FINE_PING,
    GRANTED,
    LATCH,
    LEGAL,
    REPLAYED,
    SICK,
    SICK_PING,
    STARTING,
    STOPPING,
    SUSPECT,
    UNKNOWN,
    UP,
    asks,
)
from sidecar.core.arbiter import (
    Answered,
    Effect,
    Event,
    Forget,
    Judged,
    Remember,
    Restarted,
    Standing,
    Stopped,
    resume,
    start,
    step,
)
from sidecar.core.words import Answer, Denied, Granted, Policy

policies = st.builds(
    Policy,
    check_interval_s=st.just(10.0),
    grace_s=st.sampled_from([0.0, 30.0]),
    settle_s=st.sampled_from([0.0, 3.0]),
    drain_s=st.sampled_from([0.0, 10.0]),
    confirm=st.sampled_from([1, 1, 2, 3]),
    min_age_s=st.sampled_from([0.0, 20.0]),
    enforce=st.booleans(),
)
answers = st.sampled_from([GRANTED, GRANTED, REPLAYED, DENIED, UNKNOWN])
pauses = st.sampled_from([0.0, 0.001, 1.0, 3.0, 10.0, 37.5, 1e6, -1.0]) | st.floats(0, 100)
jitters = st.floats(0, 1)
looks = st.sampled_from([FINE, SICK, SICK, FINE_PING, SICK_PING])


class AnyLife(RuleBasedStateMachine):
    """Walks through lives of an app, with an own and simpler account of what has happened in the present one."""

    standing: Standing

    @initialize(policy=policies, app_start=st.sampled_from([None, "one"]), drained_for_s=st.sampled_from([None, 0, 99]))
    def begin(self, policy: Policy, app_start: str | None, drained_for_s: float | None) -> None:
        self.policy, self.now, self.names = policy, 0.0, 0
        self.ever_asked = {"foreign"}
        self.live(start(APP, 0.0, policy, app_start=app_start))
        if drained_for_s is not None and policy.enforce:
            self.standing = resume(self.standing, LATCH, 0.0, drained_for_s, policy)
            self.is_latched, self.drain_ends = True, policy.drain_s - drained_for_s

    def live(self, standing: Standing) -> None:
        self.standing = standing
        self.outstanding: str | None = None
        self.asked: list[str] = []
        self.is_latched, self.drain_ends = False, 0.0
        self.is_sick, self.bad_checks = False, 0
        self.born = self.now
        self.unknowns = self.would_culls = 0

    def feel(self, event: Event) -> tuple[Standing, tuple[Effect, ...]]:
        before = self.standing
        self.standing, effects = step(before, event, self.now, self.policy)
        assert self.standing.state in LEGAL[before.state, type(event)]
        return before, effects

    # what may happen

    @rule(look=looks, pause=pauses)
    def judge(self, look: Judged, pause: float) -> None:
        self.now += pause
        self.look(look)

    @precondition(lambda self: self.standing.due is not None)
    @rule(look=looks, late_s=st.sampled_from([-0.001, 0.0, 0.001]))
    def judge_when_due(self, look: Judged, late_s: float) -> None:
        self.now = cast("float", self.standing.due) + late_s
        self.look(look)

    def look(self, look: Judged) -> None:
        self.is_sick = look.verdict == SICK.verdict
        self.bad_checks = self.bad_checks + look.is_check if self.is_sick else 0
        before, effects = self.feel(look)
        if self.standing.state is DOWN:
            assert self.now >= self.drain_ends or before.state is DOWN
        if before.state in {UP, SUSPECT} and not self.is_sick and self.outstanding is None:
            assert self.standing.state is UP
            self.unknowns = 0
        if self.standing.state is SUSPECT and before.state is not SUSPECT and self.policy.confirm > 1:
            assert self.bad_checks >= self.policy.confirm
        if ids := asks(effects):
            self.ask(before, ids)

    def ask(self, before: Standing, ids: list[str]) -> None:
        assert self.is_sick
        assert not before.asking
        assert self.outstanding is None
        assert before.asked or self.now >= self.born + self.policy.min_age_s
        assert ids == [self.standing.claim_id]
        self.outstanding = ids[0]
        if ids[0] not in self.asked:
            assert ids[0] not in self.ever_asked, "a claim id of another life"
            self.asked.append(ids[0])
            self.ever_asked.add(ids[0])
        assert len(self.asked) == 1 + self.would_culls
        assert self.asked[-1] == ids[0]

    @precondition(lambda self: self.outstanding is not None and self.standing.state is SUSPECT)
    @rule(answer=answers, pause=pauses, jitter=jitters)
    def answer(self, answer: Answer, pause: float, jitter: float) -> None:
        self.now += pause
        _, effects = self.feel(Answered(cast("str", self.outstanding), answer, self.now, jitter))
        self.outstanding = None
        assert asks(effects) == []
        if isinstance(answer, Granted):
            self.grant(effects)
        else:
            self.refuse(answer)

    def grant(self, effects: tuple[Effect, ...]) -> None:
        self.unknowns = 0
        if not self.is_sick:
            assert (self.standing.state, effects) == (UP, ())
        elif not self.policy.enforce:
            self.would_culls += 1
            assert (self.standing.state, self.standing.would_culls, effects) == (SUSPECT, self.would_culls, ())
        else:
            self.is_latched, self.drain_ends = True, self.now + self.policy.drain_s
            assert self.standing.state is (DRAINING if self.policy.drain_s else DOWN)
            assert effects == (Remember(),)

    def refuse(self, answer: Answer) -> None:
        assert self.standing.haproxy_up
        assert self.standing.latch is None
        delay_s = 10.0 if isinstance(answer, Denied) else min(30.0, 2.0**self.unknowns)
        self.unknowns = 0 if isinstance(answer, Denied) else self.unknowns + 1
        if self.standing.state is SUSPECT:
            wait_s = cast("float", self.standing.due) - self.now
            assert delay_s - 1e-6 <= wait_s <= 1.25 * delay_s + 1e-6

    @rule(data=st.data(), answer=answers)
    def answer_something_else(self, data: st.DataObject, answer: Answer) -> None:
        claim_id = data.draw(st.sampled_from(sorted(self.ever_asked)))
        if claim_id != self.outstanding:
            before, effects = self.feel(Answered(claim_id, answer, self.now))
            assert (self.standing, effects) == (before, ())

    @rule(pause=pauses)
    def name(self, pause: float) -> None:
        self.now += pause
        self.names += 1
        before, effects = self.feel(Restarted(f"life-{self.names}"))
        if before.state is STOPPING:
            assert (self.standing, effects) == (before, ())
        elif before.app_start is None and not self.is_latched:
            assert (self.standing.state, self.standing.asking) == (before.state, before.asking)
            assert effects == (Remember(),)
        else:
            assert self.standing == start(APP, self.now, self.policy, app_start=f"life-{self.names}")
            assert effects == (Forget(), Remember())
            self.live(self.standing)

    @rule(pause=pauses)
    def go(self, pause: float) -> None:
        self.now += pause
        self.names += 1
        before, effects = self.feel(Restarted(None, f"after-{self.names}"))
        if before.state is STOPPING:
            assert (self.standing, effects) == (before, ())
            return
        fresh = start(APP, self.now, self.policy)
        assert self.standing == replace(fresh, incarnation=f"after-{self.names}")
        assert effects == (Forget(), Remember())
        self.live(self.standing)

    @precondition(lambda self: self.names > 1)
    @rule()
    def stop(self) -> None:
        _, effects = self.feel(Stopped())
        assert effects == ()

    # what always holds

    @invariant()
    def only_a_token_of_this_life_puts_it_down_and_nothing_brings_it_back(self) -> None:
        if self.is_latched:
            assert self.standing.state in {DRAINING, DOWN, STOPPING}
        else:
            assert self.standing.state not in {DRAINING, DOWN}
        assert (self.standing.latch is not None) is self.is_latched

    @invariant()
    def haproxy_goes_at_the_drain_and_nomad_only_at_down(self) -> None:
        standing = self.standing
        assert standing.haproxy_up is (standing.state in {STARTING, UP, SUSPECT})
        if not standing.nomad_up:
            assert self.is_latched
            assert standing.state in {DOWN, STOPPING}
        if standing.state is DOWN:
            assert not standing.nomad_up

    @invariant()
    def shadow_stays_healthy(self) -> None:
        if not self.policy.enforce:
            assert self.standing.nomad_up
            assert self.standing.state not in {DRAINING, DOWN}

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        standing = self.standing
        if standing.state in {STARTING, DRAINING}:
            assert standing.due is not None
        if standing.state is SUSPECT:
            assert standing.asking is (self.outstanding is not None)
            assert [standing.asking, standing.due is not None, standing.would_down].count(True) == 1


AnyLife.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestAnyLife = AnyLife.TestCase
