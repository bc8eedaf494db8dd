"""What each step says to have happened, in stories that bring about every kind of event."""

from __future__ import annotations

import pytest

from harness.containers import (
    AGING,
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    LATCH,
    LEASE,
    ORDERED,
    POLICY,
    RETIRING,
    REVIVED,
    SICK,
    STARTING,
    SUSPECT,
    UNKNOWN,
    WHY,
    answered,
    asking,
    begun,
    leased,
    retired,
    retiring,
)
from sidecar.core.life import events
from sidecar.core.life.container import Container, resume
from sidecar.core.life.culling import HONOUR_S
from sidecar.core.life.events import (
    AppRestarted,
    Checked,
    Culled,
    Event,
    Moved,
    NotHonoured,
    OrderIgnored,
    OrderTaken,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    StopRequested,
    Suspected,
    TokenAnswered,
    Trigger,
    WentDown,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.transitions import step
from sidecar.core.types import Policy, State

SHADOW, SHADOW_AGING = POLICY._replace(enforce=False), AGING._replace(enforce=False)
UP = step(begun(), FINE, 0.0, POLICY).container
WOULD = step(asking(SHADOW), answered(asking(), GRANTED), 4.0, SHADOW).container
VERDICT = SICK.verdict
DOWN_CULLED = resume(begun(), LATCH, 0.0, 50.0, POLICY)

STORIES: list[tuple[str, Container, list[tuple[float, Trigger]], Policy, list[Event]]] = [
    ("judged", begun(), [(0, FINE)], POLICY, [Moved(was=STARTING, state=State.UP)]),
    ("suspected", begun(), [(0, SICK)], POLICY, [Suspected(was=STARTING, state=SUSPECT, verdict=VERDICT)]),
    ("recovers", asking(), [(4, answered(asking(), DENIED)), (5, FINE)], POLICY, [
        TokenAnswered("web/alloc/one", DENIED, 0.0), Recovered(was=SUSPECT, state=State.UP, suspect_s=5.0)]),
    ("culled", asking(), [(4, answered(asking(), GRANTED)), (14, SICK)], POLICY, [
        TokenAnswered("web/alloc/one", GRANTED, 0.0),
        Culled(was=SUSPECT, state=DRAINING, why=WHY, verdict=VERDICT, order=None, suspect_s=4.0),
        WentDown(was=DRAINING, state=DOWN)]),
    ("answer to another claim", UP, [(4, answered(UP, UNKNOWN))], POLICY, [
        TokenAnswered("web/alloc/one", UNKNOWN, 0.0, is_late=True)]),
    ("would be culled", asking(SHADOW), [(4, answered(asking(), GRANTED))], SHADOW, [
        TokenAnswered("web/alloc/one", GRANTED, 0.0), WouldCull(VERDICT)]),
    ("would recover", WOULD, [(9, FINE)], SHADOW, [
        Recovered(was=SUSPECT, state=State.UP, suspect_s=9.0, would_down_s=5.0)]),
    ("ordered", UP, [(6, ORDERED)], POLICY, [
        OrderTaken(ORDERED), Suspected(was=State.UP, state=SUSPECT, verdict=FINE.verdict, by_order=True)]),
    ("ordered twice", step(UP, ORDERED, 6.0, POLICY).container, [(7, ORDERED)], POLICY, [OrderIgnored(ORDERED)]),
    ("nothing to cull or revive", begun(), [(7, REVIVED)], POLICY, [OrderIgnored(REVIVED)]),
    ("not honoured", DOWN_CULLED, [(HONOUR_S - 51, SICK), (HONOUR_S - 50, SICK), (HONOUR_S, SICK)], POLICY, [
        NotHonoured("web/alloc/one", HONOUR_S)]),
    ("a lease is not a cull", resume(begun(AGING), LEASE, 0.0, 20.0, AGING), [(39, FINE)], AGING, []),
    ("revived", DOWN_CULLED, [(10, REVIVED)], POLICY, [
        Revived(was=DOWN, state=State.UP, out_s=60.0, order=REVIVED)]),
    ("restarted", DOWN_CULLED, [(10, AppRestarted("two"))], POLICY, [
        Restarted(was=DOWN, state=STARTING, app_start="two", out_s=60.0)]),
    ("restarted without a cull", begun(), [(10, AppRestarted("two"))], POLICY, [
        Restarted(was=STARTING, state=STARTING, app_start="two", out_s=None)]),
    ("first id", begun(app_start=None), [(10, AppRestarted("two"))], POLICY, []),
    ("stopped", UP, [(10, StopRequested())], POLICY, [
        Moved(was=State.UP, state=State.STOPPING)]),
    ("retires", retiring(), [(100, leased(DENIED)), (100, leased(GRANTED, "x"))], AGING, [
        RetirementAnswered(DENIED), RetirementAnswered(GRANTED)]),
    ("retired", retiring(), [(100, leased(GRANTED))], AGING, [
        RetirementAnswered(GRANTED),
        Retired(was=RETIRING, state=DRAINING, why="retired at age 1m 40s, its lifetime is 1m 40s")]),
    ("not replaced", retired(), [(110, FINE), (160, FINE)], AGING, [
        WentDown(was=DRAINING, state=DOWN),
        Revived(was=DOWN, state=State.UP, out_s=60.0, order=None)]),
    ("would be retired", begun(SHADOW_AGING), [(0, FINE), (100, FINE), (101, FINE)], SHADOW_AGING, [
        Moved(was=STARTING, state=State.UP), WouldRetire()]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("container", "triggers", "policy", "expected"), [row[1:] for row in STORIES], ids=[row[0] for row in STORIES]
)
def test_step_says_what_has_happened(
    container: Container, triggers: list[tuple[float, Trigger]], policy: Policy, expected: list[Event]
) -> None:
    happened: list[Event] = []
    for now, trigger in triggers:
        container, _, of_step = step(container, trigger, now, policy)
        happened += [event for event in of_step if not isinstance(event, Checked)]
    assert happened == expected


def test_stories_have_every_kind_of_event() -> None:
    every = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
    assert {type(event) for *_, happened in STORIES for event in happened} | {Checked} == every - {Event}
    assert step(begun(), FINE, 0.0, POLICY).events[0] == Checked(FINE.verdict)
