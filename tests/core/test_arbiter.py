"""Every pair of state and event, the timings as stories, and what no sequence of events may bring about."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import cast, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.core.arbiter import (
    TRANSITIONS,
    Answered,
    Ask,
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
    unknown_delay,
)
from sidecar.core.words import Answer, Denied, Granted, Judgement, Latch, Policy, Reason, State, Unknown, Verdict

STARTING, UP, SUSPECT = State.STARTING, State.UP, State.SUSPECT
DRAINING, DOWN, STOPPING = State.DRAINING, State.DOWN, State.STOPPING

POLICY = Policy(check_interval_s=10.0, grace_s=0.0, settle_s=3.0, drain_s=10.0)
APP = "web/alloc"
WHY = "5 server errors"
FINE = Judged(Verdict(Judgement.FINE))
SICK = Judged(Verdict(Judgement.EXCESSIVE, (Reason("errors", 5, 5, WHY),)))
GRANTED, REPLAYED = Granted(1, 10), Granted(1, 10, replayed=True)
DENIED, UNKNOWN = Denied("window", 10, 10, 200.0), Unknown("timeout")
LATCH = Latch(f"{APP}/one", 1_000.0, WHY)


def begun(policy: Policy = POLICY, app_start: str | None = "one") -> Standing:
    return start(APP, 0.0, policy, app_start=app_start)


def asking(policy: Policy = POLICY, app_start: str | None = "one") -> Standing:
    """Standing with a claim on its way, at the second when it settled."""
    standing, _ = step(begun(policy, app_start), SICK, 0.0, policy)
    standing, _ = step(standing, SICK, policy.settle_s, policy)
    assert standing.asking
    return standing


def answered(standing: Standing, answer: Answer, jitter: float = 0.0) -> Answered:
    return Answered(standing.claim_id, answer, 1_000.0, jitter)


def asks(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.claim_id for effect in effects if isinstance(effect, Ask)]


# -- every pair -----------------------------------------------------------------------------------------------

EVENTS = get_args(Event)

LEGAL = {
    (STARTING, Judged): {STARTING, UP, SUSPECT},
    (STARTING, Answered): {STARTING},
    (STARTING, Restarted): {STARTING},
    (UP, Judged): {UP, SUSPECT},
    (UP, Answered): {UP},
    (UP, Restarted): {UP, STARTING},
    (SUSPECT, Judged): {SUSPECT, UP},
    (SUSPECT, Answered): {SUSPECT, UP, DRAINING, DOWN},
    (SUSPECT, Restarted): {SUSPECT, STARTING},
    (DRAINING, Judged): {DRAINING, DOWN},
    (DRAINING, Answered): {DRAINING},
    (DRAINING, Restarted): {STARTING},
    (DOWN, Judged): {DOWN},
    (DOWN, Answered): {DOWN},
    (DOWN, Restarted): {STARTING},
    **{(state, Stopped): {STOPPING} for state in State},
    **{(STOPPING, event): {STOPPING} for event in EVENTS},
}
"""Where a pair may lead."""


def test_every_pair_of_state_and_event_stands_in_the_table() -> None:
    assert set(TRANSITIONS) == set(product(State, EVENTS)) == set(LEGAL)


def standings(state: State) -> list[Standing]:
    """One of every kind that could be found in this state, and some that should not be."""
    kinds = product([None, "one"], [None, 5.0], [False, True], [None, LATCH], [None, FINE.verdict, SICK.verdict])
    return [
        replace(begun(app_start=name), state=state, due=due, asking=is_asking, latch=latch, verdict=verdict)
        for name, due, is_asking, latch, verdict in kinds
    ]


def variants(event: type, standing: Standing) -> list[Event]:
    answers = [answered(standing, value) for value in (GRANTED, REPLAYED, DENIED, UNKNOWN)]
    events: dict[type, list[Event]] = {
        Judged: [FINE, SICK],
        Answered: [*answers, *(replace(answer, claim_id="foreign") for answer in answers)],
        Restarted: [Restarted("two")],
        Stopped: [Stopped()],
    }
    return events[event]


@pytest.mark.parametrize(("state", "event"), list(LEGAL), ids=lambda it: getattr(it, "__name__", it))
def test_pair_leads_to_a_legal_state(state: State, event: type) -> None:
    reached = {
        step(standing, variant, now, policy)[0].state
        for standing in standings(state)
        for variant in variants(event, standing)
        for now in (0.0, 5.0, 100.0)
        for policy in (POLICY, replace(POLICY, enforce=False), replace(POLICY, settle_s=0.0, drain_s=0.0))
    }
    assert reached
    assert reached <= LEGAL[state, event]


@pytest.mark.parametrize("state", [STARTING, UP, DRAINING, DOWN, STOPPING])
def test_answer_means_nothing_outside_of_suspect(state: State) -> None:
    for standing in standings(state):
        for event in variants(Answered, standing):
            assert step(standing, event, 5.0, POLICY) == (standing, ())


@pytest.mark.parametrize(
    ("state", "latch", "doors"),
    [
        (STARTING, None, (True, True)),
        (UP, None, (True, True)),
        (SUSPECT, None, (True, True)),
        (DRAINING, LATCH, (False, True)),
        (DOWN, LATCH, (False, False)),
        (STOPPING, None, (False, True)),
    ],
)
def test_each_state_has_an_answer_for_haproxy_and_nomad(
    state: State, latch: Latch | None, doors: tuple[bool, bool]
) -> None:
    standing = replace(begun(), state=state, latch=latch)
    assert (standing.haproxy_up, standing.nomad_up) == doors


# -- stories: at this second this happens and leads there, with or without a claim -----------------------------

Row = tuple[float, Event | Answer, State | type[Ask]]
"""Second, what happens, and the state it leads to; ``Ask``: suspect, and a claim goes out."""


def tell(rows: list[Row], policy: Policy) -> Standing:
    standing = begun(policy)
    for now, happened, expected in rows:
        event = answered(standing, happened) if isinstance(happened, Answer) else happened
        standing, effects = step(standing, event, now, policy)
        state = SUSPECT if expected is Ask else expected
        assert (standing.state, bool(asks(effects))) == (state, expected is Ask), f"at {now} s"
    return standing


SETTLED: list[Row] = [(0, FINE, UP), (5, SICK, SUSPECT), (8, SICK, Ask)]
"""Up, sick at 5 s, asked at 8 s."""

WARM_UP = replace(POLICY, grace_s=30.0)
IMPATIENT = replace(POLICY, settle_s=0.0)
SHADOW = replace(POLICY, enforce=False)


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (POLICY, [(0, FINE, UP)]),
        (POLICY, [(0, SICK, SUSPECT)]),
        (WARM_UP, [(0, SICK, STARTING), (29.999, SICK, STARTING), (30, FINE, UP)]),
        (WARM_UP, [(1_000, FINE, UP), (1_001, SICK, SUSPECT)]),
    ],
    ids=["without grace the first look counts", "sick at once", "nothing counts in the grace", "first look comes late"],
)
def test_starting_app_is_left_alone_until_its_grace_is_over(policy: Policy, rows: list[Row]) -> None:
    tell(rows, policy)


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (POLICY, SETTLED),
        (POLICY, [(5, SICK, SUSPECT), (6, SICK, SUSPECT), (7.999, SICK, SUSPECT)]),
        (POLICY, [(5, SICK, SUSPECT), (8, FINE, UP)]),
        (POLICY, [(5, SICK, SUSPECT), (6, FINE, UP), (7, SICK, SUSPECT), (9, SICK, SUSPECT)]),
        (POLICY, [(5, SICK, SUSPECT), (6, FINE, UP), (7, SICK, SUSPECT), (10, SICK, Ask)]),
        (POLICY, [*SETTLED, (9, SICK, SUSPECT), (100, SICK, SUSPECT)]),
        (IMPATIENT, [(5, SICK, Ask)]),
        (IMPATIENT, [(0, FINE, UP), (5, SICK, Ask)]),
    ],
    ids=[
        "asks when settled",
        "more of the same does not hurry it",
        "recovers while settling",
        "settles anew after a recovery",
        "and asks when that is over",
        "asks once while the claim is on its way",
        "without settling asks at the first look",
        "without settling asks at the crossing",
    ],
)
def test_suspect_settles_before_it_asks(policy: Policy, rows: list[Row]) -> None:
    tell(rows, policy)


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (POLICY, [(9, GRANTED, DRAINING), (18.999, SICK, DRAINING), (19, SICK, DOWN)]),
        (POLICY, [(9, REPLAYED, DRAINING), (19, SICK, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (10, FINE, DRAINING), (19, FINE, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (500, FINE, DOWN), (9_999, FINE, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (10, DENIED, DRAINING), (10, UNKNOWN, DRAINING)]),
        (replace(POLICY, drain_s=0.0), [(9, GRANTED, DOWN), (10, FINE, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (10, Restarted("two"), STARTING), (11, FINE, UP)]),
        (POLICY, [(9, GRANTED, DRAINING), (19, SICK, DOWN), (60, Restarted("two"), STARTING)]),
        (POLICY, [(9, GRANTED, DRAINING), (10, Stopped(), STOPPING), (99, FINE, STOPPING)]),
    ],
    ids=[
        "down after the drain",
        "a replay drains as well",
        "recovering in the drain changes nothing",
        "down until somebody acts",
        "late replies change nothing",
        "without a drain down at once",
        "replaced in the drain",
        "replaced when down",
        "stopped in the drain",
    ],
)
def test_granted_container_drains_and_goes_down(policy: Policy, rows: list[Row]) -> None:
    tell([*SETTLED, *rows], policy)


@pytest.mark.parametrize(
    "rows",
    [
        [(9, DENIED, SUSPECT), (18.999, SICK, SUSPECT), (19, SICK, Ask)],
        [(9, DENIED, SUSPECT), (19, SICK, Ask), (20, DENIED, SUSPECT), (30, SICK, Ask)],
        [(9, DENIED, SUSPECT), (10, FINE, UP)],
        [(9, UNKNOWN, SUSPECT), (9.999, SICK, SUSPECT), (10, SICK, Ask)],
        [(9, UNKNOWN, SUSPECT), (10, SICK, Ask), (11, UNKNOWN, SUSPECT), (13, SICK, Ask)],
        [(9, UNKNOWN, SUSPECT), (9.5, FINE, UP)],
        [
            (9, UNKNOWN, SUSPECT),
            (9, FINE, UP),
            (9, SICK, SUSPECT),
            (12, SICK, Ask),
            (13, UNKNOWN, SUSPECT),
            (14, SICK, Ask),
        ],
        [(9, UNKNOWN, SUSPECT), (10, SICK, Ask), (11, GRANTED, DRAINING)],
        [(9, DENIED, SUSPECT), (19, SICK, Ask), (20, GRANTED, DRAINING)],
    ],
    ids=[
        "denied asks again at the next check",
        "denied again",
        "recovered after a denial",
        "unknown asks again after a second",
        "unknown again after two",
        "recovered after an unknown",
        "a recovery ends the back-off",
        "granted after an unknown",
        "granted after a denial",
    ],
)
def test_container_without_a_token_stays_up_and_asks_again(rows: list[Row]) -> None:
    tell([*SETTLED, *rows], POLICY)


@pytest.mark.parametrize(
    "rows",
    [
        [(9, GRANTED, UP)],
        [(9, SICK, SUSPECT), (9, GRANTED, DRAINING)],
        [(9, DENIED, SUSPECT), (10, FINE, UP)],
        [(9, UNKNOWN, SUSPECT), (9.5, FINE, UP)],
        [(9, GRANTED, UP), (50, SICK, SUSPECT), (53, SICK, Ask), (54, REPLAYED, DRAINING)],
    ],
    ids=["granted too late", "well and sick again in flight", "denied", "unknown", "the late token is used later"],
)
def test_recovery_while_the_claim_was_in_flight(rows: list[Row]) -> None:
    tell([*SETTLED, (8.5, FINE, SUSPECT), *rows], POLICY)


@pytest.mark.parametrize(
    "rows",
    [
        [(9, GRANTED, SUSPECT), (100, SICK, SUSPECT)],
        [(9, GRANTED, SUSPECT), (70, FINE, UP), (80, SICK, SUSPECT), (83, SICK, Ask)],
        [(9, DENIED, SUSPECT), (19, SICK, Ask)],
    ],
    ids=["granted is only said", "and said again for the next time", "denied asks again"],
)
def test_shadow_asks_and_never_acts(rows: list[Row]) -> None:
    standing = tell([*SETTLED, *rows], SHADOW)
    assert standing.haproxy_up
    assert standing.nomad_up
    assert standing.latch is None


def test_shadow_counts_would_be_culls_and_asks_for_each_under_its_own_id() -> None:
    standing = asking(SHADOW)
    first = standing.claim_id
    standing, _ = step(standing, answered(standing, GRANTED), 4.0, SHADOW)
    assert (standing.would_culls, standing.would_down) == (1, True)
    standing, _ = step(standing, FINE, 5.0, SHADOW)
    assert (standing.would_culls, standing.would_down) == (1, False)
    standing, _ = step(standing, SICK, 6.0, SHADOW)
    standing, effects = step(standing, SICK, 9.0, SHADOW)
    assert asks(effects) == [standing.claim_id]
    assert standing.claim_id != first


# -- wishes and names -----------------------------------------------------------------------------------------


def test_cull_is_latched_with_its_claim_and_reason_and_remembered() -> None:
    standing, effects = step(asking(), answered(asking(), GRANTED), 9.0, POLICY)
    assert standing.latch == Latch(f"{APP}/one", 1_000.0, WHY)
    assert effects == (Remember(),)


@pytest.mark.parametrize("state", [STARTING, UP, SUSPECT, DRAINING, DOWN])
def test_another_incarnation_starts_clean(state: State) -> None:
    old = replace(asking(), state=state, latch=LATCH, answer=GRANTED, unknowns=3, would_culls=2, would_down=True)
    fresh = start(APP, 50.0, WARM_UP, app_start="two")
    assert fresh.due == 80.0
    assert step(old, Restarted("two"), 50.0, WARM_UP) == (fresh, (Forget(), Remember()))


def test_claim_of_an_ended_incarnation_says_nothing_about_the_next() -> None:
    old = asking()
    fresh, _ = step(old, Restarted("two"), 10.0, POLICY)
    fresh, _ = step(fresh, SICK, 11.0, POLICY)
    fresh, effects = step(fresh, SICK, 14.0, POLICY)
    assert asks(effects) == [f"{APP}/two"]
    assert step(fresh, answered(old, GRANTED), 15.0, POLICY) == (fresh, ())


@pytest.mark.parametrize(
    ("standing", "incarnation"),
    [
        (begun(app_start=None), "two"),
        (asking(app_start=None), "-"),
        (step(asking(app_start=None), answered(asking(app_start=None), DENIED), 4.0, POLICY)[0], "-"),
    ],
    ids=["has not asked yet", "claim on its way", "was denied"],
)
def test_first_name_belongs_to_the_life_that_is_watched(standing: Standing, incarnation: str) -> None:
    named, effects = step(standing, Restarted("two"), 5.0, POLICY)
    assert named == replace(standing, app_start="two", incarnation=incarnation)
    assert named.claim_id == f"{APP}/{incarnation}"
    assert effects == (Remember(),)


# -- back-off -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unknowns", "delay_s"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (6, 30), (50, 30), (10_000, 30)]
)
def test_back_off_of_unknown_doubles_up_to_half_a_minute(unknowns: int, delay_s: float) -> None:
    assert unknown_delay(unknowns) == delay_s


@pytest.mark.parametrize(("answer", "delay_s"), [(UNKNOWN, 1.0), (DENIED, 10.0)], ids=["unknown", "denied"])
@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 1.0), (0.5, 1.125), (1.0, 1.25)])
def test_jitter_delays_the_next_claim_by_at_most_a_quarter(
    answer: Answer, delay_s: float, jitter: float, factor: float
) -> None:
    standing, _ = step(asking(), answered(asking(), answer, jitter), 100.0, POLICY)
    assert standing.due == pytest.approx(100.0 + delay_s * factor)


@pytest.mark.parametrize("answer", [DENIED, GRANTED], ids=["denied", "granted too late"])
def test_clear_answer_ends_the_back_off(answer: Answer) -> None:
    standing = replace(asking(), unknowns=4, verdict=FINE.verdict)
    assert step(standing, answered(standing, answer), 9.0, POLICY)[0].unknowns == 0


# -- coming back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drain_s", "drained_for_s", "state", "due"),
    [
        (10, 0, DRAINING, 110),
        (10, 4, DRAINING, 106),
        (10, 9.5, DRAINING, 100.5),
        (10, 10, DOWN, None),
        (10, 11, DOWN, None),
        (10, 10**9, DOWN, None),
        (0, 0, DOWN, None),
        (0, 5, DOWN, None),
    ],
)
def test_latched_sidecar_comes_back_in_the_rest_of_its_drain(
    drain_s: float, drained_for_s: float, state: State, due: float | None
) -> None:
    policy = replace(POLICY, drain_s=drain_s)
    standing = resume(begun(policy), LATCH, 100.0, drained_for_s, policy)
    assert (standing.state, standing.due, standing.latch) == (state, due, LATCH)
    assert step(standing, FINE, 110.0, policy)[0].state is DOWN


# -- no sequence of events ------------------------------------------------------------------------------------

policies = st.builds(
    Policy,
    check_interval_s=st.just(10.0),
    grace_s=st.sampled_from([0.0, 30.0]),
    settle_s=st.sampled_from([0.0, 3.0]),
    drain_s=st.sampled_from([0.0, 10.0]),
    enforce=st.booleans(),
)
answers = st.sampled_from([GRANTED, GRANTED, REPLAYED, DENIED, UNKNOWN])
pauses = st.sampled_from([0.0, 0.001, 1.0, 3.0, 10.0, 37.5, 1e6, -1.0]) | st.floats(0, 100)
jitters = st.floats(0, 1)
looks = st.sampled_from([FINE, SICK])


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
        self.is_sick = False
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
        self.is_sick = look is SICK
        before, effects = self.feel(look)
        if self.standing.state is DOWN:
            assert self.now >= self.drain_ends or before.state is DOWN
        if before.state in {UP, SUSPECT} and not self.is_sick and self.outstanding is None:
            assert self.standing.state is UP
            self.unknowns = 0
        if ids := asks(effects):
            self.ask(before, ids)

    def ask(self, before: Standing, ids: list[str]) -> None:
        assert self.is_sick
        assert not before.asking
        assert self.outstanding is None
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


# -- edges ----------------------------------------------------------------------------------------------------


def test_errors_of_the_grace_do_not_count_when_it_is_over() -> None:
    """The window reaches back into the warm-up: unless it is emptied, its errors cull the app at the grace's end."""
    standing, effects = step(begun(WARM_UP), SICK, 30.0, WARM_UP)
    assert (standing.state, standing.verdict, effects) == (UP, None, (Forget(),))


def test_stopping_in_the_drain_does_not_cut_the_drain_short_for_nomad() -> None:
    draining, _ = step(asking(), answered(asking(), GRANTED), 9.0, POLICY)
    stopping, _ = step(draining, Stopped(), 10.0, POLICY)
    assert not stopping.haproxy_up
    assert stopping.nomad_up


def test_stopping_when_down_stays_down_for_nomad() -> None:
    down = resume(begun(), LATCH, 0.0, 99.0, POLICY)
    stopping, _ = step(down, Stopped(), 10.0, POLICY)
    assert not stopping.nomad_up


def test_answer_that_is_none_of_the_three_is_not_a_token() -> None:
    standing = asking()
    after, _ = step(standing, answered(standing, cast("Answer", None)), 9.0, POLICY)
    assert after.haproxy_up
    assert after.latch is None


def test_first_claim_of_a_life_is_written_down_before_it_is_made() -> None:
    suspect, _ = step(begun(), SICK, 0.0, POLICY)
    suspect, effects = step(suspect, SICK, 3.0, POLICY)
    assert effects == (Remember(), Ask(f"{APP}/one"))
    suspect, _ = step(suspect, answered(suspect, DENIED), 4.0, POLICY)
    _, effects = step(suspect, SICK, 14.0, POLICY)
    assert effects == (Ask(f"{APP}/one"),)


def test_claim_made_without_a_name_is_still_the_claim_of_that_life_after_a_kill() -> None:
    """Asked as "-", killed before the reply, back again, and only now the app names itself: still one token."""
    suspect, _ = step(begun(app_start=None), SICK, 0.0, POLICY)
    killed, effects = step(suspect, SICK, 3.0, POLICY)
    assert asks(effects) == [f"{APP}/-"]
    assert Remember() in effects
    back = start(APP, 5.0, POLICY, app_start=killed.app_start, asked_under=killed.incarnation)
    assert step(back, Restarted("one"), 6.0, POLICY)[0].claim_id == killed.claim_id
