"""Stories of culls and orders: at this second this happens and leads there, with or without a claim."""

from __future__ import annotations

import pytest

from harness.cases import cases
from harness.containers import (
    AGING,
    APP,
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    LATCH,
    ORDERED,
    POLICY,
    RETIRING,
    REVIVED,
    SICK,
    STARTING,
    SUSPECT,
    UNKNOWN,
    UP,
    WHY,
    answered,
    asks,
    begun,
    claim,
    heard,
    lease,
    leased,
    retiring,
    step,
    step_and_beat,
)
from sidecar.core.claims import Answer, Claim
from sidecar.core.explain import reasons
from sidecar.core.life.container import Container, resume
from sidecar.core.life.culling import honour_s
from sidecar.core.life.events import (
    BeatUnanswered,
    ClearWindow,
    CullOrder,
    GiveBack,
    Judged,
    SaveIncarnation,
    Trigger,
)
from sidecar.core.life.grant_request import unknown_delay
from sidecar.core.types import Latch, Policy, State

Row = tuple[float, Trigger | Answer, State | type[Claim]]
"""Second, what happens, and the state it leads to; ``Claim``: suspect, and a claim goes out."""

SETTLED: list[Row] = [(0, FINE, UP), (5, SICK, SUSPECT), (8, SICK, Claim)]
"""Up, sick at 5 s, asked at 8 s."""

CULLED: list[Row] = [*SETTLED, (9, GRANTED, DRAINING)]
WARM_UP = POLICY._replace(grace_s=30.0)
OLD = SICK._replace(verdict=SICK.verdict._replace(is_old=True))


def idle(at: float) -> Judged:
    """A look at an app that said at this second that nothing was in flight."""
    return SICK._replace(idle_at=at)


@cases(
    "policy, rows",
    {
        "nothing counts in the grace": (WARM_UP, [(0, SICK, STARTING), (29.999, SICK, STARTING), (30, FINE, UP)]),
        "first look comes late": (WARM_UP, [(1_000, FINE, UP), (1_001, SICK, SUSPECT)]),
        "down after the drain": (POLICY, [*CULLED, (18.999, SICK, DRAINING), (19, SICK, DOWN)]),
        "down until somebody acts": (POLICY, [*CULLED, (500, FINE, DOWN), (9_999, FINE, DOWN)]),
        "late replies change nothing": (POLICY, [*CULLED, (10, DENIED, DRAINING), (10, UNKNOWN, DRAINING)]),
        "idle ends the drain once every balancer has let go": (
            POLICY,
            [*CULLED, (11.999, idle(11.999), DRAINING), (12, idle(12), DOWN)],
        ),
        "idle before that may have been between two requests": (
            POLICY,
            [*CULLED, (15, idle(8), DRAINING), (18, idle(11.999), DRAINING), (19, SICK, DOWN)],
        ),
        "a drain shorter than that has its own end": (
            POLICY._replace(drain_s=2.0),
            [*CULLED, (10, idle(10), DRAINING), (11, idle(11), DOWN)],
        ),
        "unknown asks again after a second": (
            POLICY,
            [*SETTLED, (9, UNKNOWN, SUSPECT), (9.999, SICK, SUSPECT), (10, SICK, Claim)],
        ),
        "denied asks again at the next check": (
            POLICY,
            [*SETTLED, (9, DENIED, SUSPECT), (18.999, SICK, SUSPECT), (19, SICK, Claim)],
        ),
    },
)
def test_container_goes_its_way(policy: Policy, rows: list[Row]) -> None:
    """The fleet hears of every suspect at once."""
    container = begun(policy)
    for now, happened, expected in rows:
        event = answered(container, happened) if isinstance(happened, Answer) else happened
        container, effects = step_and_beat(container, event, now, policy)
        state = SUSPECT if expected is Claim else expected
        assert (container.state, bool(asks(effects))) == (state, expected is Claim), f"at {now} s"


# -- what a claim waits for -----------------------------------------------------------------------------------


def up(policy: Policy = POLICY) -> Container:
    return step(begun(policy), FINE, 0.0, policy)[0]


def settling() -> Container:
    return step_and_beat(up(), SICK, 5.0, POLICY)[0]


@pytest.mark.parametrize("event", [SICK, ORDERED], ids=["due", "ordered"])
def test_claim_waits_for_the_answer_to_a_request_for_a_lease_and_no_longer(event: Trigger) -> None:
    waiting, effects = step(settling()._replace(outstanding=lease()), event, 8.0, POLICY)
    assert (waiting.due, waiting.asking, effects) == (None, False, ())
    assert step(waiting, SICK, 9.0, POLICY)[1] == ()
    answered_late, _ = step(waiting, leased(DENIED), 9.5, POLICY)
    assert answered_late.due == 8.0
    assert asks(step(answered_late, SICK, 9.5, POLICY)[1]) == [f"{APP}/one"]


def test_order_waits_for_an_answer_about_a_lease_but_not_for_a_beat_and_a_refusal_lets_the_retirement_go_on() -> None:
    ordered, _ = step(retiring(), ORDERED, 101.0, AGING)
    ordered, _ = step(ordered, BeatUnanswered("timeout"), 102.0, AGING)
    ordered, _ = step(ordered, leased(DENIED), 103.0, AGING)
    assert ordered.due == 101.0
    ordered, effects = step(ordered, FINE, 103.0, AGING)
    assert asks(effects) == [f"{APP}/one"]
    back, _ = step(ordered, answered(ordered, DENIED), 104.0, AGING)
    assert (back.state, back.due) == (RETIRING, 104.0)


def test_suspect_with_old_errors_claims_nothing_until_another_error_or_an_order() -> None:
    waiting = settling()
    for now in (8.0, 9.0, 10.0):
        waiting, effects = step(waiting, OLD, now, POLICY)
        assert (waiting.state, waiting.asking, waiting.due, effects) == (SUSPECT, False, now + 1.0, ())
        assert (reasons.reason_word(waiting.answer or UNKNOWN), waiting.answered_at) == ("old_errors", now)
    for event, now in ((SICK, 11.0), (ORDERED, 10.5)):
        assert asks(step(waiting, event, now, POLICY)[1]) == [f"{APP}/one"]
    assert step(waiting, FINE, 10.5, POLICY)[0].state is UP


@pytest.mark.parametrize(("wait_s", "due"), [(0.0, 8.0), (4.0, 9.0), (2.0, 8.0)])
def test_announced_suspect_claims_when_it_has_settled_and_the_store_is_back(wait_s: float, due: float) -> None:
    suspect, _ = step(up(), SICK, 5.0, POLICY)
    planned, effects = step(suspect, heard(suspect)._replace(wait_s=wait_s), 5.0, POLICY)
    assert (planned.due, effects) == (due, ())


# -- orders ---------------------------------------------------------------------------------------------------


@cases(
    "container, policy",
    {
        "starting": (begun(WARM_UP), WARM_UP),
        "up": (up(), POLICY),
        "settling": (settling(), POLICY),
    },
)
def test_order_claims_at_once(container: Container, policy: Policy) -> None:
    ordered, effects = step(container, ORDERED, 6.0, policy)
    assert (ordered.state, ordered.asking) == (SUSPECT, True)
    assert effects == (SaveIncarnation(), claim(ordered))
    assert ordered.order == CullOrder("ann", "it leaks", container.state)


@pytest.mark.parametrize(
    ("look", "said"), [(FINE, reasons.ORDERED), (SICK, f"{reasons.ORDERED}; {WHY}")], ids=["fine", "sick"]
)
def test_evidence_does_not_cancel_an_order_and_the_latch_that_anyone_may_read_has_no_word_of_a_person(
    look: Judged, said: str
) -> None:
    ordered, _ = step(up(), ORDERED, 6.0, POLICY)
    ordered, _ = step(ordered, look, 7.0, POLICY)
    culled, effects = step(ordered, answered(ordered, GRANTED), 8.0, POLICY)
    assert (culled.state, effects, culled.due) == (DRAINING, (SaveIncarnation(),), 18.0)
    assert culled.order == ordered.order
    assert culled.latch == Latch(f"{APP}/one", 1_000.0, said)


@pytest.mark.parametrize("answer", [DENIED, UNKNOWN], ids=["denied", "unknown"])
@pytest.mark.parametrize(("container", "policy"), [(begun(WARM_UP), WARM_UP), (up(), POLICY)], ids=["starting", "up"])
def test_refused_order_leads_back_and_is_not_tried_again(container: Container, policy: Policy, answer: Answer) -> None:
    ordered, _ = step(container, ORDERED, 6.0, policy)
    back, effects = step(ordered, answered(ordered, answer), 7.0, policy)
    assert (back.state, back.due, back.order, back.answer) == (container.state, container.due, None, answer)
    assert (back.unknowns, effects) == (0, (GiveBack(f"{APP}/one"),) if answer is UNKNOWN else ())
    for now in (8.0, 20.0, 40.0, 100.0):
        back, effects = step(back, FINE, now, policy)
        assert asks(effects) == []
    assert back.state is UP


@pytest.mark.parametrize("drained_for_s", [0.0, 99.0], ids=["draining", "down"])
def test_revived_container_is_up_as_another_life_of_the_same_app(drained_for_s: float) -> None:
    old = resume(begun(), LATCH, 0.0, drained_for_s, POLICY)._replace(answer=GRANTED)
    revived, effects = step(old, REVIVED, 20.0, POLICY)
    assert effects == (ClearWindow(heart=False), SaveIncarnation())
    assert (revived.state, revived.latch, revived.answer, revived.verdict) == (UP, None, None, None)
    assert (revived.app_start, revived.born, revived.due) == ("one", 0.0, None)
    assert (revived.claim_id, revived.haproxy_up, revived.nomad_up) == (f"{APP}/revived-1", True, True)


# -- how long the next step may wait ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("unknowns", "delay_s"), [(0, 1), (1, 2), (4, 16), (5, 30), (10_000, 30)])
def test_back_off_of_unknown_doubles_up_to_half_a_minute(unknowns: int, delay_s: float) -> None:
    assert unknown_delay(unknowns) == delay_s


@pytest.mark.parametrize(("drain_s", "seconds"), [(100, 300), (101, 303), (600, 1_800)])
def test_cull_is_honoured_within_five_minutes_or_three_drains(drain_s: float, seconds: float) -> None:
    assert honour_s(drain_s) == seconds
