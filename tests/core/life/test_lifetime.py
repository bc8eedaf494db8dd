"""When a life is due for its age, who may wait, and whether a fleet can keep up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.claims import WINDOW_ONLY, S, lease
from sidecar.core.fleet.decide import decide
from sidecar.core.fleet.terms import Share
from sidecar.core.fleet.view import Request, View
from sidecar.core.life.lifetime import Life, Plan, due_at, is_busy, is_due
from sidecar.core.types import Granted, Load, Policy

HOURS = Policy(lifetime_s=21_600.0, lifetime_jitter=0.1)
EXACT = replace(HOURS, lifetime_jitter=0.0)
PATIENT = replace(EXACT, lifetime_max_s=36_000.0, busy_load=0.5)
BUSY, IDLE = Load(0.8, 5.0), Load(0.5, 5.0)
MIDDLE = Life(1_000.0)


@pytest.mark.parametrize(
    ("policy", "life", "due"),
    [
        (Policy(), MIDDLE, None),
        (EXACT, MIDDLE, 22_600.0),
        (EXACT, Life(1_000.0, 0.0), 22_600.0),
        (HOURS, Life(1_000.0, 0.0), 20_440.0),
        (HOURS, Life(1_000.0, 0.5), 22_600.0),
        (HOURS, Life(1_000.0, 1.0), 24_760.0),
        (HOURS, Life(1_000.0, 0.5, 30_000.0), 30_000.0),
        (HOURS, Life(1_000.0, 0.5, 2_000.0), 22_600.0),
        (EXACT, Life(-50_000.0), -28_400.0),
    ],
    ids=[
        "never without a lifetime",
        "at its lifetime",
        "without jitter chance has no part",
        "the earliest",
        "the middle",
        "the latest",
        "not in its respite",
        "a respite that is over",
        "born long before the clock began",
    ],
)
def test_life_is_due_at_its_own_age(policy: Policy, life: Life, due: float | None) -> None:
    assert due_at(life, policy) == (due if due is None else pytest.approx(due))


@pytest.mark.parametrize(
    ("policy", "now", "load", "expected"),
    [
        (EXACT, 22_599.9, None, False),
        (EXACT, 22_600.0, None, True),
        (EXACT, 22_600.0, BUSY, True),
        (PATIENT, 22_600.0, None, True),
        (PATIENT, 22_600.0, IDLE, True),
        (PATIENT, 22_600.0, BUSY, False),
        (PATIENT, 22_600.0, Load(0.8, 60.0), False),
        (PATIENT, 22_600.0, Load(0.8, 60.1), True),
        (PATIENT, 36_999.9, BUSY, False),
        (PATIENT, 37_000.0, BUSY, True),
        (PATIENT, 10_000.0, IDLE, False),
        (Policy(), 1e9, None, False),
    ],
    ids=[
        "too young",
        "old enough",
        "nobody waits without a maximum",
        "a load that nobody told is none",
        "just at the mark is idle",
        "busy waits",
        "word of a minute ago counts",
        "older word does not",
        "busy waits to the last",
        "and no longer",
        "idle but young",
        "without a lifetime nobody goes",
    ],
)
def test_busy_waits_and_idle_goes(policy: Policy, now: float, load: Load | None, expected: object) -> None:
    assert is_due(MIDDLE, load, now, policy) is expected


def test_of_a_fleet_that_began_together_the_idle_go_before_the_busy() -> None:
    now = MIDDLE.born + 1.2 * PATIENT.lifetime_s
    fleet = {"idle": IDLE, "busy": BUSY, "silent": None}
    assert [name for name, load in fleet.items() if is_due(MIDDLE, load, now, PATIENT)] == ["idle", "silent"]


@pytest.mark.parametrize(("load", "expected"), [(None, False), (Load(0.0, 0.0), False), (Load(0.01, 0.0), True)])
def test_by_default_every_load_is_busy(load: Load | None, expected: object) -> None:
    assert is_busy(load, Policy()) is expected


@given(part=st.floats(0, 1), jitter=st.floats(0, 0.5), age=st.floats(0, 1e6), load=st.sampled_from([None, BUSY, IDLE]))
def test_no_life_ends_outside_its_jitter(part: float, jitter: float, age: float, load: Load | None) -> None:
    policy = replace(PATIENT, lifetime_jitter=jitter)
    due = is_due(Life(0.0, part), load, age, policy)
    if age < policy.lifetime_s * (1 - jitter) - 1e-6:
        assert not due
    if age > policy.lifetime_max_s * (1 + jitter) + 1e-6:
        assert due


HALF = Share(500, is_part=True)
ONE, TENTH = Share(1), Share(100, is_part=True)


@pytest.mark.parametrize(
    ("plan", "containers", "numbers"),
    [
        (Plan(21_600.0, ONE, 60.0), 359, None),
        (Plan(21_600.0, ONE, 60.0), 360, "360 containers, 1 at once and 1m each take 6h,"),
        (Plan(21_600.0, ONE, 60.0), 400, "400 containers, 1 at once and 1m each take 6h 40m,"),
        (Plan(21_600.0, Share(2), 60.0), 400, None),
        (Plan(21_600.0, TENTH, 60.0), 10_000, None),
        (Plan(600.0, TENTH, 60.0), 100, "100 containers, 10 at once and 1m each take 10m,"),
        (Plan(600.0, TENTH, 60.0), 9, None),
        (Plan(500.0, TENTH, 60.0), 9, "9 containers, 1 at once and 1m each take 9m,"),
        (Plan(100.0, Share(5), 90.0), 2, None),
        (Plan(60.0, Share(5), 90.0), 2, "2 containers, 2 at once and 1m 30s each take 1m 30s,"),
        (Plan(0.0, ONE, 60.0), 10_000, None),
        (Plan(21_600.0, ONE, 60.0), 0, None),
    ],
    ids=[
        "just in time",
        "just not",
        "far from it",
        "two at once",
        "a part of the fleet grows with it",
        "and may be too small all the same",
        "a part of few",
        "is one at least",
        "more slots than containers",
        "do not replace one in less time",
        "no lifetime, no end",
        "nobody",
    ],
)
def test_fleet_has_to_be_through_before_the_first_is_due_again(
    plan: Plan, containers: int, numbers: str | None
) -> None:
    sentence = plan.shortfall(containers)
    assert (numbers or "") in sentence
    assert bool(sentence) is (numbers is not None)


LONELY = Plan(60.0, ONE, 90.0)
MOST = Share(800, is_part=True)


@pytest.mark.parametrize(
    ("plan", "containers", "sentence"),
    [
        pytest.param(
            LONELY,
            1,
            "retirements cannot keep up: 1 container, 1 at once and 1m 30s each takes 1m 30s, which is not less than "
            "its lifetime of 1m",
            id="numbers agree with their nouns",
        ),
        pytest.param(
            Plan(600.0, Share(50), 120.0, MOST),
            100,
            "retirements cannot keep up: 100 containers, 20 at once (80 have to stay in service) and 2m each take 10m, "
            "which is not less than their lifetime of 10m",
            id="fewer may be away than there are slots",
        ),
        pytest.param(
            Plan(21_600.0, ONE, 60.0, MOST),
            4,
            "nobody can be retired: there are 4 containers, and 4 have to stay in service (ARBITER_MIN_HEALTHY), so "
            "all outlive their lifetime of 6h",
            id="a part that is rounded up to all",
        ),
        pytest.param(
            Plan(21_600.0, ONE, 60.0, Share(3)),
            2,
            "nobody can be retired: there are 2 containers, and 3 have to stay in service (ARBITER_MIN_HEALTHY), so "
            "all outlive their lifetime of 6h",
            id="more than there are",
        ),
        pytest.param(Plan(21_600.0, ONE, 60.0, MOST), 5, "", id="one of five may go"),
        pytest.param(Plan(21_600.0, ONE, 60.0, HALF, never_last=True), 2, "", id="one of two may go"),
        pytest.param(Plan(21_600.0, ONE, 60.0, Share(3), never_last=True), 1, "", id="who is alone may go"),
    ],
)
def test_fleet_keeps_its_floor_when_it_is_renewed(plan: Plan, containers: int, sentence: str) -> None:
    assert plan.shortfall(containers) == sentence


@given(
    containers=st.integers(2, 12),
    floor=st.builds(Share, st.integers(0, 14)) | st.builds(Share, st.integers(0, 1000), is_part=st.just(value=True)),
    never_last=st.booleans(),
    slots=st.integers(1, 12),
)
def test_as_many_go_at_once_as_the_fleet_s_rules_let_go(
    *, containers: int, floor: Share, never_last: bool, slots: int
) -> None:
    terms = replace(WINDOW_ONLY, min_healthy=str(floor), never_last=never_last)
    names = [f"web-{number}" for number in range(containers)]
    view, gone = View(S, alive=containers), 0
    for name in names:
        view = replace(view, life="1", seen_us=S)
        answer, edits = decide(view, Request(lease(name, slots=str(slots)), terms))
        gone += isinstance(answer, Granted)
        culls = dict(view.culls) | {name: cull for name, cull in edits.culls.items() if cull is not None}
        leases = dict(view.leases) | {name: slot for name, slot in edits.leases.items() if slot is not None}
        view = replace(view, culls=culls, leases=leases, beating=dict.fromkeys(culls, "1"))
    plan = Plan(1.0, Share(slots), 60.0, floor, never_last)
    assert (f" {gone} at once" in plan.shortfall(containers)) is (gone > 0)
    assert plan.shortfall(containers).startswith("nobody can be retired") is (gone == 0)
