"""Whether a fleet can keep up with its retirements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.claims import WINDOW_ONLY, S, lease
from sidecar.core.fleet.decide import decide
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.fleet.view import Request, View
from sidecar.core.types import Granted

HALF = Share(500, is_part=True)
ONE, TENTH = Share(1), Share(100, is_part=True)


@pytest.mark.parametrize(
    ("plan", "containers", "numbers"),
    [
        (RotationPlan(21_600.0, ONE, 60.0), 359, None),
        (RotationPlan(21_600.0, ONE, 60.0), 360, "360 containers, 1 at once and 1m each take 6h,"),
        (RotationPlan(21_600.0, ONE, 60.0), 400, "400 containers, 1 at once and 1m each take 6h 40m,"),
        (RotationPlan(21_600.0, Share(2), 60.0), 400, None),
        (RotationPlan(21_600.0, TENTH, 60.0), 10_000, None),
        (RotationPlan(600.0, TENTH, 60.0), 100, "100 containers, 10 at once and 1m each take 10m,"),
        (RotationPlan(600.0, TENTH, 60.0), 9, None),
        (RotationPlan(500.0, TENTH, 60.0), 9, "9 containers, 1 at once and 1m each take 9m,"),
        (RotationPlan(100.0, Share(5), 90.0), 2, None),
        (RotationPlan(60.0, Share(5), 90.0), 2, "2 containers, 2 at once and 1m 30s each take 1m 30s,"),
        (RotationPlan(0.0, ONE, 60.0), 10_000, None),
        (RotationPlan(21_600.0, ONE, 60.0), 0, None),
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
    plan: RotationPlan, containers: int, numbers: str | None
) -> None:
    sentence = plan.shortfall(containers)
    assert (numbers or "") in sentence
    assert bool(sentence) is (numbers is not None)


LONELY = RotationPlan(60.0, ONE, 90.0)
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
            RotationPlan(600.0, Share(50), 120.0, MOST),
            100,
            "retirements cannot keep up: 100 containers, 20 at once (80 have to stay in service) and 2m each take 10m, "
            "which is not less than their lifetime of 10m",
            id="fewer may be away than there are slots",
        ),
        pytest.param(
            RotationPlan(21_600.0, ONE, 60.0, MOST),
            4,
            "no container can be retired: there are 4 containers, and 4 have to stay in service "
            "(ARBITER_MIN_HEALTHY), so all outlive their lifetime of 6h",
            id="a part that is rounded up to all",
        ),
        pytest.param(
            RotationPlan(21_600.0, ONE, 60.0, Share(3)),
            2,
            "no container can be retired: there are 2 containers, and 3 have to stay in service "
            "(ARBITER_MIN_HEALTHY), so all outlive their lifetime of 6h",
            id="more than there are",
        ),
        pytest.param(RotationPlan(21_600.0, ONE, 60.0, MOST), 5, "", id="one of five may go"),
        pytest.param(RotationPlan(21_600.0, ONE, 60.0, HALF), 2, "", id="one of two may go"),
        pytest.param(RotationPlan(21_600.0, ONE, 60.0, Share(3)), 1, "", id="who is alone may go"),
    ],
)
def test_fleet_keeps_its_floor_when_it_is_renewed(plan: RotationPlan, containers: int, sentence: str) -> None:
    assert plan.shortfall(containers) == sentence


@given(
    containers=st.integers(2, 12),
    floor=st.builds(Share, st.integers(0, 14)) | st.builds(Share, st.integers(0, 1000), is_part=st.just(value=True)),
    slots=st.integers(1, 12),
)
def test_as_many_go_at_once_as_the_fleet_s_rules_let_go(*, containers: int, floor: Share, slots: int) -> None:
    terms = replace(WINDOW_ONLY, min_healthy=str(floor))
    names = [f"web-{number}" for number in range(containers)]
    view, gone = View(S, alive=containers), 0
    for name in names:
        view = replace(view, incarnation="1", seen_us=S)
        answer, edits = decide(view, Request(lease(name, slots=str(slots)), terms))
        gone += isinstance(answer, Granted)
        culls = dict(view.culls) | {name: cull for name, cull in edits.culls.items() if cull is not None}
        leases = dict(view.leases) | {name: slot for name, slot in edits.leases.items() if slot is not None}
        view = replace(view, culls=culls, leases=leases, beating=dict.fromkeys(culls, "1"))
    plan = RotationPlan(1.0, Share(slots), 60.0, floor)
    assert (f" {gone} at once" in plan.shortfall(containers)) is (gone > 0)
    assert plan.shortfall(containers).startswith("no container can be retired") is (gone == 0)
