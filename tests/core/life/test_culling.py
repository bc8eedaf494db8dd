"""Stories of orders: what a person may ask for, what that still depends on, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.containers import (
    APP,
    DENIED,
    DRAINING,
    FINE,
    GRANTED,
    LATCH,
    ORDERED,
    POLICY,
    REVIVED,
    SICK,
    SUSPECT,
    UNKNOWN,
    UP,
    WHY,
    answered,
    asks,
    begun,
    heard,
    step,
    step_and_beat,
)
from sidecar.core.explain import reasons
from sidecar.core.explain.reasons import ORDERED as PUBLIC
from sidecar.core.life.container import Container, CullOrder, resume
from sidecar.core.life.triggers import (
    ClaimToken,
    ClearWindow,
    CullOrdered,
    GiveBack,
    SaveMemory,
    Trigger,
)
from sidecar.core.types import Answer, Latch, Policy

WARM_UP = replace(POLICY, grace_s=30.0)
SHADOW = replace(POLICY, enforce=False)


def up(policy: Policy = POLICY) -> Container:
    return step(begun(policy), FINE, 0.0, policy)[0]


def settling() -> Container:
    return step_and_beat(up(), SICK, 5.0, POLICY)[0]


@pytest.mark.parametrize("event", [SICK, ORDERED], ids=["due", "ordered"])
def test_claim_waits_a_quarter_of_a_second_at_a_time_for_the_answer_to_a_request_for_a_lease(event: Trigger) -> None:
    waiting, effects = step(replace(settling(), leasing=True), event, 8.0, POLICY)
    assert (waiting.due, waiting.asking, effects) == (8.25, False, ())
    assert step(waiting, SICK, 8.2, POLICY)[1] == ()
    assert asks(step(replace(waiting, leasing=False), SICK, 8.25, POLICY)[1]) == [f"{APP}/one"]


OLD = replace(SICK, verdict=replace(SICK.verdict, is_old=True))


def refused() -> Container:
    """A suspect whose claim was denied at 8.0; it asks again at 18.0."""
    asked, _ = step(settling(), SICK, 8.0, POLICY)
    return step(asked, answered(asked, DENIED), 8.0, POLICY)[0]


@pytest.mark.parametrize(("suspect", "due"), [(settling(), 8.0), (refused(), 18.0)], ids=["settled", "refused before"])
def test_suspect_with_old_errors_claims_nothing_until_another_error(suspect: Container, due: float) -> None:
    waiting = suspect
    for now in (due, due + 1.0, due + 2.0):
        waiting, effects = step(waiting, OLD, now, POLICY)
        assert (waiting.state, waiting.asking, waiting.due, effects) == (SUSPECT, False, now + 1.0, ())
        assert reasons.reason_word(waiting.answer or UNKNOWN) == "old_errors"
    assert asks(step(waiting, SICK, due + 3.0, POLICY)[1]) == [f"{APP}/one"]
    assert step(waiting, FINE, due + 2.5, POLICY)[0].state is UP


def test_order_of_a_person_needs_no_error() -> None:
    waiting, _ = step(settling(), OLD, 8.0, POLICY)
    assert asks(step(waiting, ORDERED, 8.5, POLICY)[1]) == [f"{APP}/one"]


@pytest.mark.parametrize(("wait_s", "due"), [(0.0, 8.0), (4.0, 9.0), (2.0, 8.0)])
def test_announced_suspect_claims_when_it_has_settled_and_the_store_is_back(wait_s: float, due: float) -> None:
    suspect, _ = step(up(), SICK, 5.0, POLICY)
    planned, effects = step(suspect, replace(heard(suspect), wait_s=wait_s), 5.0, POLICY)
    assert (planned.due, effects) == (due, ())


@pytest.mark.parametrize(
    ("container", "policy"),
    [(begun(WARM_UP), WARM_UP), (up(), POLICY), (settling(), POLICY)],
    ids=["starting", "up", "settling"],
)
def test_order_claims_at_once(container: Container, policy: Policy) -> None:
    ordered, effects = step(container, ORDERED, 6.0, policy)
    assert (ordered.state, ordered.asking) == (SUSPECT, True)
    assert effects == (SaveMemory(), ClaimToken(f"{APP}/one"))
    assert ordered.order == CullOrder("ann", "it leaks", container.state, container.due)


@pytest.mark.parametrize("look", [FINE, SICK], ids=["fine", "sick"])
def test_evidence_does_not_cancel_an_order(look: object) -> None:
    ordered, _ = step(up(), ORDERED, 6.0, POLICY)
    ordered, _ = step(ordered, look, 7.0, POLICY)  # type: ignore[arg-type]  # a look
    culled, effects = step(ordered, answered(ordered, GRANTED), 8.0, POLICY)
    assert (culled.state, effects, culled.due) == (DRAINING, (SaveMemory(),), 18.0)
    assert culled.order == ordered.order
    said = PUBLIC if look is FINE else f"{PUBLIC}; {WHY}"
    assert culled.latch == Latch(f"{APP}/one", 1_000.0, said)


def test_what_a_person_wrote_is_not_in_the_latch_that_the_public_door_shows() -> None:
    ordered, _ = step(up(), CullOrdered("ann", "password is 1234"), 6.0, POLICY)
    culled, _ = step(ordered, answered(ordered, GRANTED), 8.0, POLICY)
    assert culled.latch is not None
    assert "1234" not in culled.latch.reason
    assert "ann" not in culled.latch.reason


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


# -- revival --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drained_for_s", [0.0, 99.0], ids=["draining", "down"])
def test_revived_container_is_up_as_another_life_of_the_same_app(drained_for_s: float) -> None:
    old = replace(resume(begun(), LATCH, 0.0, drained_for_s, POLICY), answer=GRANTED)
    revived, effects = step(old, REVIVED, 20.0, POLICY)
    assert effects == (ClearWindow(heart=False), SaveMemory())
    assert (revived.state, revived.latch, revived.answer, revived.verdict) == (UP, None, None, None)
    assert (revived.app_start, revived.born, revived.due) == ("one", 0.0, None)
    assert revived.claim_id == f"{APP}/revived-1"
    assert (revived.haproxy_up, revived.nomad_up) == (True, True)
