"""No sequence of events: what neither answers nor names nor time may bring about, whatever comes in whatever order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest
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
    asks,
    reachable,
)
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.events import Moved
from sidecar.core.life.triggers import (
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    ClaimAnswered,
    ClearWindow,
    Effect,
    GiveBack,
    Judged,
    LeaseAnswered,
    RequestLease,
    ReviveOrdered,
    SaveMemory,
    StopRequested,
    Trigger,
)
from sidecar.core.types import Answer, Denied, Fleet, Granted, Policy, Presence, RandomIdentity, Unknown

policies = st.builds(
    Policy,
    check_interval_s=st.just(10.0),
    grace_s=st.sampled_from([0.0, 30.0]),
    settle_s=st.sampled_from([0.0, 3.0]),
    drain_s=st.sampled_from([0.0, 10.0]),
    lifetime_s=st.sampled_from([0.0, 15.0, 15.0]),
    lifetime_max_s=st.sampled_from([0.0, 40.0]),
    retire_timeout_s=st.sampled_from([20.0, 60.0]),
    enforce=st.sampled_from([True, True, False]),
)
answers = st.sampled_from([GRANTED, GRANTED, REPLAYED, DENIED, UNKNOWN])
pauses = st.sampled_from([0.0, 0.001, 1.0, 3.0, 10.0, 37.5, 1e6, -1.0]) | st.floats(0, 100)
jitters = st.floats(0, 1)
looks = st.sampled_from([FINE, FINE, BUSY, SICK, SICK])


class AnyLife(RuleBasedStateMachine):
    """Walks through incarnations of an app, with a simpler account of what has happened in the current one.

    ``latched`` is what put it out of balance: a token, a lease, or nothing. ``heard_at``: when the fleet heard that
    this life is suspect, None if it has not. ``is_unclear``: the last claim may have been granted.
    """

    container: Container

    @initialize(
        policy=policies,
        app_start=st.sampled_from([None, "one"]),
        drained_for_s=st.sampled_from([None, None, 0, 15, 99]),
        was_retired=st.booleans(),
    )
    def begin(self, policy: Policy, app_start: str | None, drained_for_s: float | None, *, was_retired: bool) -> None:
        self.policy, self.now, self.names = policy, 0.0, 0
        self.ever_asked = {"foreign"}
        self.ended_holders = ["lease-of-nobody"]
        self.live(start(APP, 0.0, policy, app_start=app_start, identity=self.identity()))
        if drained_for_s is not None and policy.enforce:
            latch = replace(LATCH, lease=self.container.identity.holder if was_retired else "")
            self.container = resume(self.container, latch, 0.0, drained_for_s, policy)
            self.latched, self.drain_ends = "lease" if was_retired else "token", policy.drain_s - drained_for_s
            self.lease_ends = policy.retire_timeout_s - drained_for_s

    def identity(self) -> RandomIdentity:
        return RandomIdentity(f"lease-{self.names}")

    def live(self, container: Container) -> None:
        self.container = container
        self.outstanding: str | None = None
        self.leasing: str | None = None
        self.asked: list[str] = []
        self.latched, self.drain_ends, self.lease_ends = "", 0.0, math.inf
        self.is_ordered = self.is_unclear = self.was_answered = False
        self.heard_at: float | None = None
        self.is_sick = False
        self.born = self.now
        self.unknowns = self.would_culls = 0

    def feel(self, event: Trigger) -> tuple[Container, tuple[Effect, ...]]:
        before = self.container
        self.container, effects, events = transitions.step(before, event, self.now, self.policy)
        moves = [(event.was, event.state) for event in events if isinstance(event, Moved)]
        has_moved = self.container.state is not before.state
        assert [move for move in moves if move != (STARTING, STARTING)] == (
            [(before.state, self.container.state)] if has_moved else []
        ), "each change of state is one event"
        assert self.container.state in reachable(before.state, type(event))
        if self.container.state is not SUSPECT or before.state is not SUSPECT or self.container.life != before.life:
            self.heard_at = None
        if holders := [effect.holder for effect in effects if isinstance(effect, RequestLease)]:
            self.ask_lease(event, before, holders)
        assert GiveBack(self.container.lease) not in effects, "the lease that it is under"
        return before, effects

    def ask_lease(self, event: Trigger, before: Container, holders: list[str]) -> None:
        assert isinstance(event, Judged)
        assert self.policy.enforce
        assert self.policy.lifetime_s
        assert self.container.state is RETIRING
        assert self.now >= self.born + 0.9 * self.policy.lifetime_s
        assert (self.outstanding, self.leasing, before.asking, before.leasing) == (None, None, False, False)
        assert holders == [self.container.identity.holder]
        assert holders[0] not in self.ended_holders, "a word of another life"
        self.leasing = holders[0]

    # what may happen

    @rule(look=looks, pause=pauses)
    def judge(self, look: Judged, pause: float) -> None:
        self.now += pause
        self.look(look)

    @precondition(lambda self: self.container.due is not None)
    @rule(look=looks, late_s=st.sampled_from([-0.001, 0.0, 0.001]))
    def judge_when_due(self, look: Judged, late_s: float) -> None:
        self.now = cast("float", self.container.due) + late_s
        self.look(look)

    def look(self, look: Judged) -> None:
        self.is_sick = look.verdict == SICK.verdict
        before, effects = self.feel(look)
        if self.container.state is DOWN:
            assert self.now >= self.drain_ends or before.state is DOWN
        if before.state is DOWN and self.container.state is UP:
            self.come_back(before, effects)
            return
        if before.state in {UP, SUSPECT} and not self.is_sick and self.outstanding is None and not self.is_ordered:
            assert self.container.state in {UP, RETIRING}
            returned = (GiveBack(before.claim_id),) if before.state is SUSPECT and self.is_unclear else ()
            assert tuple(effect for effect in effects if isinstance(effect, GiveBack)) == returned
            self.unknowns, self.is_unclear = 0, False
        if self.container.state is SUSPECT and before.state is not SUSPECT:
            self.unknowns = 0
        if ids := asks(effects):
            self.ask(before, ids)

    def come_back(self, before: Container, effects: tuple[Effect, ...]) -> None:
        """Nobody has replaced it."""
        assert self.latched == "lease"
        assert self.now >= self.lease_ends
        assert effects == (ClearWindow(heart=False), GiveBack(before.lease), SaveMemory())
        self.latched, self.lease_ends = "", math.inf
        self.is_sick, self.unknowns = False, 0

    def ask(self, before: Container, ids: list[str]) -> None:
        assert self.is_sick or self.is_ordered
        assert not before.asking
        assert (self.outstanding, self.leasing) == (None, None)
        if not self.is_ordered:
            assert self.heard_at is not None, "the fleet has not heard of it"
            assert self.was_answered or self.now >= self.heard_at + self.policy.settle_s - 1e-6
        assert ids == [self.container.claim_id]
        self.outstanding = ids[0]
        if ids[0] not in self.asked:
            assert ids[0] not in self.ever_asked, "a claim id of another life"
            self.asked.append(ids[0])
            self.ever_asked.add(ids[0])
        assert len(self.asked) == 1 + self.would_culls
        assert self.asked[-1] == ids[0]

    @precondition(lambda self: self.outstanding is not None and self.container.state is SUSPECT)
    @rule(answer=answers, pause=pauses, jitter=jitters)
    def answer(self, answer: Answer, pause: float, jitter: float) -> None:
        self.now += pause
        claim_id = cast("str", self.outstanding)
        before, effects = self.feel(ClaimAnswered(claim_id, answer, self.now, jitter))
        self.outstanding = None
        self.was_answered = True
        assert asks(effects) == []
        self.is_unclear = isinstance(answer, Unknown)
        was_ordered, self.is_ordered = self.is_ordered, False
        if isinstance(answer, Granted):
            self.grant(claim_id, effects, was_ordered=was_ordered)
        elif before.order is not None and before.order.back is not SUSPECT:
            returned = (GiveBack(claim_id),) if self.is_unclear else ()
            assert (self.container.state, effects) == (before.order.back, returned)
            self.unknowns, self.is_unclear = 0, False
        else:
            self.refuse(answer)

    def grant(self, claim_id: str, effects: tuple[Effect, ...], *, was_ordered: bool) -> None:
        self.unknowns = 0
        if not self.is_sick and not was_ordered:
            assert (self.container.state, effects) == (UP, (GiveBack(claim_id),))
        elif not self.policy.enforce:
            self.would_culls += 1
            assert (self.container.state, self.container.would_culls, effects) == (SUSPECT, self.would_culls, ())
        else:
            self.latched, self.drain_ends = "token", self.now + self.policy.drain_s
            assert self.container.state is (DRAINING if self.policy.drain_s else DOWN)
            assert self.container.lease == ""
            assert effects == (SaveMemory(),)

    def refuse(self, answer: Answer) -> None:
        assert self.container.haproxy_up
        assert self.container.latch is None
        delay_s = 10.0 if isinstance(answer, Denied) else min(30.0, 2.0**self.unknowns)
        self.unknowns = 0 if isinstance(answer, Denied) else self.unknowns + 1
        if self.container.state is SUSPECT and self.heard_at is not None:
            wait_s = cast("float", self.container.due) - self.now
            assert delay_s - 1e-6 <= wait_s <= 1.25 * delay_s + 1e-6

    @rule(data=st.data(), answer=answers)
    def answer_something_else(self, data: st.DataObject, answer: Answer) -> None:
        claim_id = data.draw(st.sampled_from(sorted(self.ever_asked)))
        if claim_id != self.outstanding:
            before, effects = self.feel(ClaimAnswered(claim_id, answer, self.now))
            is_in_use = claim_id == before.claim_id and (self.latched == "token" or before.would_down)
            is_in_use = is_in_use or (before.latch is not None and before.latch.claim_id == claim_id)
            returned = () if isinstance(answer, Denied) or is_in_use else (GiveBack(claim_id),)
            assert (self.container, effects) == (before, returned)

    # beats

    @rule(pause=pauses, presence=st.sampled_from([None, None, None, *Presence]), is_own=st.booleans(), jitter=jitters)
    def beat(self, pause: float, presence: Presence | None, *, is_own: bool, jitter: float) -> None:
        """The answer to this claim, or a late one."""
        self.now += pause
        life = self.container.life if is_own or presence is None else "another"
        event = BeatAnswered(presence or self.container.presence, life, Fleet(3), jitter)
        before = self.container
        if (
            self.heard_at is None
            and before.state is SUSPECT
            and (event.presence, life, before.would_down) == (Presence.SUSPECT, before.life, False)
        ):
            heard_at: float | None = self.now
            self.was_answered = False
        else:
            heard_at = self.heard_at
        before, effects = self.feel(event)
        self.heard_at = heard_at
        if ids := asks(effects):
            self.ask(before, ids)

    @rule(pause=pauses)
    def miss_a_beat(self, pause: float) -> None:
        self.now += pause
        before, effects = self.feel(BeatUnanswered("timeout"))
        self.heard_at = None
        assert (self.container.state, self.container.asking, effects) == (before.state, before.asking, ())

    # leases

    @precondition(lambda self: self.leasing is not None)
    @rule(answer=answers, pause=pauses, jitter=jitters, took_s=st.sampled_from([0.0, 1.0]))
    def answer_lease(self, answer: Answer, pause: float, jitter: float, took_s: float) -> None:
        self.now += pause
        holder = cast("str", self.leasing)
        before, effects = self.feel(LeaseAnswered(holder, answer, self.now, jitter, took_s))
        self.leasing = None
        assert not self.container.leasing
        if before.state is not RETIRING:
            assert effects == (() if isinstance(answer, Denied) else (GiveBack(holder),))
            assert (self.container.state, self.container.latch) == (before.state, before.latch)
        elif isinstance(answer, Granted):
            self.latched, self.drain_ends = "lease", self.now + self.policy.drain_s
            self.lease_ends = self.now - took_s + self.policy.retire_timeout_s
            assert self.container.state is (DRAINING if self.policy.drain_s else DOWN)
            assert (self.container.lease, self.container.asked) == (holder, before.asked)
            assert effects == (SaveMemory(),)
        else:
            assert (self.container.state, effects) == (RETIRING, ())

    @rule(data=st.data(), answer=answers)
    def answer_lease_of_another_life(self, data: st.DataObject, answer: Answer) -> None:
        holder = data.draw(st.sampled_from(self.ended_holders))
        before, effects = self.feel(LeaseAnswered(holder, answer, self.now))
        assert self.container == before
        assert effects == (() if isinstance(answer, Denied) else (GiveBack(holder),))

    # people

    @rule(pause=pauses)
    def order(self, pause: float) -> None:
        self.now += pause
        before, effects = self.feel(ORDERED)
        if before.state in {DRAINING, DOWN, STOPPING} or before.order is not None or before.would_down:
            assert (self.container, effects) == (before, ())
            return
        self.is_ordered = True
        if before.state is not SUSPECT:
            self.unknowns = 0
        if ids := asks(effects):
            self.ask(before, ids)
        else:
            assert before.asking or before.leasing

    @rule(pause=pauses)
    def revive(self, pause: float) -> None:
        self.now += pause
        self.names += 1
        event = ReviveOrdered("ann", "it was me", f"revived-{self.names}", self.identity())
        before, effects = self.feel(event)
        if before.state not in {DRAINING, DOWN}:
            assert (self.container, effects) == (before, ())
            return
        assert (self.container.state, self.container.life) == (UP, event.incarnation)
        assert [effect for effect in effects if isinstance(effect, GiveBack)] == (
            [GiveBack(before.lease)] if self.latched == "lease" else []
        )
        assert SaveMemory() in effects
        self.ended_holders.append(before.identity.holder)
        born = self.born
        self.live(self.container)
        self.born = born

    # lives

    def returned(self) -> tuple[GiveBack, ...]:
        """What a suspect gives back that is no more."""
        is_lost = self.container.state is SUSPECT and (self.outstanding is not None or self.is_unclear)
        return (GiveBack(self.container.claim_id),) if is_lost else ()

    @rule(pause=pauses)
    def name(self, pause: float) -> None:
        self.now += pause
        self.names += 1
        returned = self.returned()
        before, effects = self.feel(AppRestarted(f"life-{self.names}", identity=self.identity()))
        if before.state is STOPPING:
            assert (self.container, effects) == (before, ())
        elif before.app_start is None and not self.latched:
            assert (self.container.state, self.container.asking) == (before.state, before.asking)
            assert self.container.identity == before.identity
            assert effects == (SaveMemory(),)
        else:
            fresh = start(APP, self.now, self.policy, app_start=f"life-{self.names}", identity=self.identity())
            assert self.container == fresh
            assert effects == (ClearWindow(), *returned, SaveMemory())
            self.ended_holders.append(before.identity.holder)
            self.live(self.container)

    @rule(pause=pauses)
    def go(self, pause: float) -> None:
        self.now += pause
        self.names += 1
        returned = self.returned()
        before, effects = self.feel(AppRestarted(None, f"after-{self.names}", self.identity()))
        if before.state is STOPPING:
            assert (self.container, effects) == (before, ())
            return
        fresh = start(APP, self.now, self.policy, identity=self.identity())
        assert self.container == replace(fresh, incarnation=f"after-{self.names}")
        assert effects == (ClearWindow(), *returned, SaveMemory())
        self.ended_holders.append(before.identity.holder)
        self.live(self.container)

    @precondition(lambda self: self.names > 1)
    @rule()
    def stop(self) -> None:
        returned = () if self.outstanding else self.returned()
        before, effects = self.feel(StopRequested())
        is_lost = before.state is RETIRING and not before.leasing
        assert effects == (*((GiveBack(before.identity.holder),) if is_lost else ()), *returned)
        self.is_unclear = False

    # what always holds

    @invariant()
    def only_a_grant_to_this_life_puts_it_down_and_only_a_lease_ends_by_itself(self) -> None:
        if self.latched:
            assert self.container.state in {DRAINING, DOWN, STOPPING}
        else:
            assert self.container.state not in {DRAINING, DOWN}
        assert (self.container.latch is not None) is bool(self.latched)
        assert bool(self.container.lease) is (self.latched == "lease")

    @invariant()
    def one_request_at_a_time(self) -> None:
        container = self.container
        assert not (container.asking and container.leasing)
        assert container.leasing is (self.leasing is not None)

    @invariant()
    def haproxy_goes_at_the_drain_and_nomad_only_at_down(self) -> None:
        container = self.container
        assert container.haproxy_up is (container.state in {STARTING, UP, SUSPECT, RETIRING})
        if not container.nomad_up:
            assert self.latched
            assert container.state in {DOWN, STOPPING}
        if container.state is DOWN:
            assert not container.nomad_up

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
        if container.state is DOWN and self.latched == "lease":
            assert container.due == container.lease_ends == pytest.approx(self.lease_ends)
        if container.state is RETIRING:
            assert container.leasing is (container.due is None)
        if container.state is SUSPECT:
            assert container.asking is (self.outstanding is not None)
            assert container.is_announced is (self.heard_at is not None)
            is_waiting = self.heard_at is None and container.order is None
            assert container.due is None or not is_waiting
            assert [container.asking, container.due is not None, container.would_down].count(True) == (
                container.asking or container.would_down or not is_waiting
            )


AnyLife.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyLife = AnyLife.TestCase
