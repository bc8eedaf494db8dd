"""Every pair of state and event, what a step wishes for, and who bears which name."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import cast

import pytest

from harness.cases import cases
from harness.containers import (
    AGING,
    APP,
    BUSY,
    DENIED,
    FINE,
    GRANTED,
    LATCH,
    LEASE,
    ORDERED,
    POLICY,
    REPLAYED,
    RETIRING,
    REVIVED,
    SICK,
    STARTING,
    SUSPECT,
    TRIGGERS,
    UNKNOWN,
    UP,
    WHY,
    answered,
    asking,
    asks,
    begun,
    claim,
    lease,
    leased,
    reachable,
    retired,
    step,
    step_and_beat,
)
from sidecar.core.claims import MANUAL, Answer, Claim, Denied, Fleet, Presence
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, resume, start
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    Checked,
    ClearWindow,
    CullOrder,
    CullOrdered,
    GiveBack,
    Judged,
    ReviveOrdered,
    SaveIncarnation,
    StopRequested,
    TokenAnswered,
    Trigger,
)
from sidecar.core.life.transitions import TRANSITIONS
from sidecar.core.types import Hold, Policy, Reason, State, Verdict

CLAIM, ASK_LEASE = claim(asking()), lease()
HELD = DENIED._replace(reason="hold", hold=Hold("ann", "deploy", 1_000.0))

# -- every pair -----------------------------------------------------------------------------------------------


def containers(state: State) -> list[Container]:
    """One of every kind that could be found in this state, and some that should not be."""
    backs = (STARTING, UP, SUSPECT, RETIRING) if state is SUSPECT else ()
    kinds = product(
        [None, "one"],
        [None, 5.0],
        [None, CLAIM, ASK_LEASE],
        [False, True],
        [None, LATCH, LEASE],
        [FINE.verdict, SICK.verdict],
        [None, *(CullOrder("ann", "it leaks", back) for back in backs)],
    )
    return [
        begun(AGING, app_start=name)._replace(
            state=state,
            grace_ends=due or 0.0,
            ask_at=due,
            drain_ends=due or 0.0,
            outstanding=outstanding,
            is_announced=is_announced,
            latch=latch,
            lease_ends=50.0 if latch is LEASE else None,
            verdict=verdict,
            order=order,
        )
        for name, due, outstanding, is_announced, latch, verdict, order in kinds
    ]


def variants(event: type, container: Container) -> list[Trigger]:
    answers = [answered(container, value) for value in (GRANTED, REPLAYED, DENIED, UNKNOWN)]
    leases = [leased(value, holder) for value in (GRANTED, DENIED, UNKNOWN) for holder in ("lease-1", "foreign")]
    events: dict[type, list[Trigger]] = {
        Judged: [FINE, SICK, BUSY, FINE._replace(idle_at=5.0)],
        CullOrdered: [ORDERED],
        ReviveOrdered: [REVIVED],
        Answered: [*answers, *(answer._replace(request=Claim("foreign")) for answer in answers), *leases],
        BeatAnswered: [
            BeatAnswered(presence, life, Fleet(3)) for presence in Presence for life in (container.life, "x")
        ],
        BeatUnanswered: [BeatUnanswered("timeout")],
        AppRestarted: [AppRestarted("two")],
        StopRequested: [StopRequested()],
    }
    return events[event]


@pytest.mark.parametrize(("state", "event"), list(product(State, TRIGGERS)), ids=lambda it: getattr(it, "__name__", it))
def test_event_leads_to_every_state_that_the_table_names_and_to_no_other(state: State, event: type) -> None:
    steps = [
        (container, *step(container, variant, now, policy))
        for container in containers(state)
        for variant in variants(event, container)
        for now in (0.0, 100.0)
        for policy in (POLICY, AGING, AGING._replace(enforce=False), AGING._replace(settle_s=0.0, drain_s=0.0))
    ]
    assert {after.state for _, after, _ in steps} | {state} == reachable(state, event)
    if (state, event) not in TRANSITIONS:
        assert all(after is before and not effects for before, after, effects in steps)


@pytest.mark.parametrize("state", State)
def test_check_is_counted_in_every_state(state: State) -> None:
    for container in containers(state):
        assert transitions.step(container, SICK, 0.0, POLICY).events[0] == Checked(SICK.verdict)


def test_verdict_is_seen_while_the_sidecar_stops() -> None:
    stopping, _ = step(begun(), StopRequested(), 0.0, POLICY)
    assert step(stopping, SICK, 1.0, POLICY) == (stopping._replace(verdict=SICK.verdict), ())


WARM_UP = POLICY._replace(grace_s=30.0)


# -- back-off -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("retry_after_s", "delay_s"), [(-5.0, 1.0), (0.25, 1.0), (4.0, 4.0), (3600.0, 10.0)])
def test_refused_container_asks_again_when_it_is_of_use_but_neither_at_once_nor_after_the_next_check(
    retry_after_s: float, delay_s: float
) -> None:
    container, _ = step(asking(), answered(asking(), Denied("spacing", 1, 10, retry_after_s)), 100.0, POLICY)
    assert container.due == 100.0 + delay_s


def sick(*numbers: tuple[float, float]) -> Judged:
    """Excessive by these rules, each with its number and the limit it met."""
    reasons = tuple(Reason("rule", value, limit, WHY) for value, limit in numbers)
    return Judged(Verdict(reasons))


@cases(
    "numbers, part",
    {
        "at the limit": ([(5, 5)], 1.0),
        "ten times": ([(50, 5)], 0.1),
        "a ratio": ([(0.75, 0.5)], 2 / 3),
        "worst of three": ([(6, 5), (12, 3), (4, 4)], 0.25),
        "no limit": ([(7, 0)], 1.0),
    },
)
def test_jitter_shrinks_the_further_the_worst_number_is_beyond_its_limit(
    numbers: list[tuple[float, float]], part: float
) -> None:
    """Settling and retrying alike."""
    look = sick(*numbers)
    suspect, _ = step_and_beat(begun(), look, 0.0, POLICY, jitter=1.0)
    assert suspect.due == pytest.approx(3.0 * (1 + 0.25 * part))
    container = asking()._replace(verdict=look.verdict)
    refused, _ = step(container, answered(container, DENIED, jitter=1.0), 100.0, POLICY)
    assert refused.due == pytest.approx(100.0 + 10.0 * (1 + 0.25 * part))


# -- beats ----------------------------------------------------------------------------------------------------


def suspected(policy: Policy = POLICY, app_start: str | None = "one") -> Container:
    """Sick at 0 s, and the fleet has not heard of it yet."""
    return step(begun(policy, app_start), SICK, 0.0, policy)[0]


def beat(presence: Presence = Presence.SUSPECT, life: str = "one") -> BeatAnswered:
    return BeatAnswered(presence, life, Fleet(3))


UNANSWERED = BeatUnanswered("timeout")
Happened = tuple[float, Trigger, float | None]
"""Second, what happens, and when the claim is due after it; None: not at all."""


@cases(
    "happened",
    {
        "however long it takes": [(5, SICK, None), (600, SICK, None), (601, beat(), 604), (603, SICK, 604)],
        "a beat that said something else": [
            (1, beat(Presence.WELL), None),
            (2, beat(Presence.DOWN), None),
            (3, beat(), 6),
        ],
        "a beat of another life": [(1, beat(life="zero"), None), (2, beat(life="one#2"), None), (3, beat(), 6)],
        "the first of several": [(1, beat(), 4), (2, beat(), 4), (3, beat(), 4)],
        "after beats without an answer all begins anew": [
            (1, beat(), 4),
            (2, UNANSWERED, None),
            (9, SICK, None),
            (10, UNANSWERED, None),
            (20, beat(), 23),
        ],
        "and after a recovery": [(1, beat(), 4), (2, FINE, None), (3, SICK, None), (30, SICK, None), (31, beat(), 34)],
    },
)
def test_suspect_settles_from_the_first_answered_beat_that_said_so(happened: list[Happened]) -> None:
    container = suspected()
    for now, event, due in happened:
        container, effects = step(container, event, now, POLICY)
        assert (container.due, effects) == (due, ()), f"at {now} s"
    assert container.due is not None
    assert asks(step(container, SICK, container.due, POLICY)[1]) == [f"{APP}/one"]


def test_name_that_comes_while_it_settles_has_to_be_heard_first() -> None:
    container, _ = step(suspected(app_start=None), beat(life="-"), 1.0, POLICY)
    container, _ = step(container, AppRestarted("two"), 2.0, POLICY)
    assert (container.due, container.life) == (None, "two")
    assert step(container, beat(life="-"), 2.5, POLICY)[0].due is None
    assert step(container, beat(life="two"), 2.5, POLICY)[0].due == 5.5


@cases(
    "answers, refused, repeated",
    {
        "denied once": ([DENIED, UNKNOWN], ("window",), [False, False]),
        "again": ([DENIED, DENIED], ("window",), [False, True]),
        "for another reason": ([DENIED, HELD, DENIED], ("window", "hold"), [False, False, True]),
    },
)
def test_suspect_knows_why_it_was_refused_until_it_recovers(
    answers: list[Answer], refused: tuple[str, ...], repeated: list[bool]
) -> None:
    container, told, now = asking(), [], 3.0
    for answer in answers:
        container, _, (event, *_) = transitions.step(container, answered(container, answer), now, POLICY)
        assert isinstance(event, TokenAnswered)
        told.append(event.is_repeated)
        now += 60.0
        container, _ = step(container, SICK, now, POLICY)
    assert (container.refused, told) == (refused, repeated)
    container, _ = step(container._replace(outstanding=None), FINE, now, POLICY)
    assert (container.refused, container.answer, container.answered_at) == ((), answers[-1], now - 60.0)
    assert step(container, SICK, now, POLICY)[0].answer is None, "an answer to the last suspicion"


@cases(
    "answers, may_have",
    {
        "denied": ([DENIED], False),
        "an unclear answer": ([UNKNOWN], True),
        "then denied": ([UNKNOWN, DENIED], False),
        "then denied for a hold, before the store looked": ([UNKNOWN, HELD], True),
        "denied for a hold alone": ([HELD], False),
    },
)
def test_suspect_that_recovers_gives_back_a_token_that_it_may_have(answers: list[Answer], *, may_have: bool) -> None:
    container, now = asking(), 3.0
    for answer in answers:
        container, _ = step(container, SICK, now, POLICY)
        container, _ = step(container, answered(container, answer), now, POLICY)
        now += 60.0
    returned: list[object] = []
    for look in (FINE, SICK, FINE):
        container, effects = step(container, look, now, POLICY)
        returned += effects
    assert returned == [GiveBack(f"{APP}/one")] * may_have, "once"


def test_second_answer_takes_nothing_from_a_container_that_is_out_of_balance_or_would_be() -> None:
    would_be, by_claim = asking(SHADOW), answered(asking(SHADOW), GRANTED)
    would_be, _ = step(would_be, by_claim, 4.0, SHADOW)
    for container, granted, policy in ((would_be, by_claim, SHADOW), (retired(), leased(GRANTED), AGING)):
        assert step(container, granted, 200.0, policy) == (container, ())


# -- the cause --------------------------------------------------------------------------------------------------

MYSQL = Judged(SICK.verdict._replace(cause="mysql"))
SHADOW = POLICY._replace(enforce=False)


@cases(
    "triggers, policy, causes",
    {
        "that of the last verdict": ([SICK, MYSQL], POLICY, ["redis", "mysql"]),
        "another suspicion": ([SICK, FINE, MYSQL], POLICY, ["redis", "", "mysql"]),
        "of a cull that of its claim": ([SICK, GRANTED, MYSQL, FINE], POLICY, ["redis", "redis", "redis", "redis"]),
        "also of one in shadow mode": ([SICK, GRANTED, MYSQL, FINE], SHADOW, ["redis", "redis", "redis", ""]),
        "a person's order": ([SICK, ORDERED, MYSQL, GRANTED], POLICY, ["redis", MANUAL, MANUAL, MANUAL]),
        "a refused order": ([SICK, ORDERED, DENIED], POLICY, ["redis", MANUAL, "redis"]),
        "a refused order of a container that is well": (
            [FINE, ORDERED, MYSQL, DENIED],
            POLICY,
            ["", MANUAL, MANUAL, ""],
        ),
        "it is revived": ([SICK, ORDERED, GRANTED, REVIVED], POLICY, ["redis", MANUAL, MANUAL, ""]),
        "it is replaced": ([SICK, GRANTED, AppRestarted("two")], POLICY, ["redis", "redis", ""]),
    },
)
def test_cause_is_that_of_the_suspicion_and_stays_until_the_container_is_back(
    triggers: list[Trigger | Answer], policy: Policy, causes: list[str]
) -> None:
    container, found = begun(policy), []
    for now, trigger in enumerate(triggers):
        if isinstance(trigger, Answer):
            container = container._replace(outstanding=claim(container))
            trigger = answered(container, trigger)  # noqa: PLW2901 - the answer to the claim of now
        container, _ = step_and_beat(container, trigger, 100.0 * now, policy)
        found.append(container.cause)
    assert found == causes


def test_suspect_whose_window_empties_while_it_asks_keeps_its_cause() -> None:
    assert step(asking(), FINE, 4.0, POLICY)[0].cause == "redis"


# -- edges ----------------------------------------------------------------------------------------------------


def test_errors_of_the_grace_do_not_count_when_it_is_over() -> None:
    """The window reaches back into the warm-up: unless it is emptied, its errors cull the app at the grace's end."""
    container, effects = step(begun(WARM_UP), SICK, 30.0, WARM_UP)
    assert (container.state, container.verdict, effects) == (UP, None, (ClearWindow(heart=False),))


def test_stopping_when_down_stays_down_for_nomad() -> None:
    down = resume(begun(), LATCH, 0.0, 99.0, POLICY)
    stopping, _ = step(down, StopRequested(), 10.0, POLICY)
    assert not stopping.nomad_up


def test_answer_that_is_none_of_the_three_is_not_a_token() -> None:
    container = asking()
    after, _ = step(container, answered(container, cast("Answer", None)), 9.0, POLICY)
    assert after.haproxy_up
    assert after.latch is None


def test_first_claim_of_a_life_is_written_down_before_it_is_made() -> None:
    suspect, _ = step_and_beat(begun(), SICK, 0.0, POLICY)
    suspect, effects = step(suspect, SICK, 3.0, POLICY)
    assert effects == (SaveIncarnation(), claim(suspect))
    suspect, _ = step(suspect, answered(suspect, DENIED), 4.0, POLICY)
    _, effects = step(suspect, SICK, 14.0, POLICY)
    assert effects == (claim(suspect),)


def test_claim_made_without_a_name_is_still_the_claim_of_that_life_after_a_kill() -> None:
    """Asked as "-", killed before the reply, back again, and only now the app names itself: still one token."""
    suspect, _ = step_and_beat(begun(app_start=None), SICK, 0.0, POLICY)
    killed, effects = step(suspect, SICK, 3.0, POLICY)
    assert asks(effects) == [f"{APP}/-"]
    assert SaveIncarnation() in effects
    back = start(APP, 5.0, POLICY, app_start=killed.app_start, asked_under=killed.incarnation)
    assert step(back, AppRestarted("one"), 6.0, POLICY)[0].claim_id == killed.claim_id


# -- the diagram in ``deploy/states.md`` is what the table of transitions gives --------------------------------------


PAGE = Path(__file__).parents[3] / "deploy" / "states.md"


def diagram() -> str:
    """The table as a Mermaid diagram. What leads to ``stopping`` from everywhere is drawn once."""
    reasons: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, _), transition in TRANSITIONS.items():
        for other, reason in transition.to.items():
            reasons[state, other].append(reason)
    edges = [
        f"    {state} --> {other}: {', or '.join(reasons[state, other])}"
        for state in State
        for other in State
        if (state, other) in reasons and other is not State.STOPPING
    ]
    stops = {reason for (_, other), found in reasons.items() if other is State.STOPPING for reason in found}
    assert {state for state, other in reasons if other is State.STOPPING} == set(State) - {State.STOPPING}
    ends = f"    any --> stopping: {', or '.join(sorted(stops))}"
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> starting", *edges, ends, "```"])


def test_page_has_the_diagram_of_the_table() -> None:
    assert diagram() in PAGE.read_text(), f"put this into {PAGE.name}:\n{diagram()}"


def test_page_names_every_state() -> None:
    assert all(f"| `{state}` |" in PAGE.read_text() for state in State)
