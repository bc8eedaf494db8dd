"""Whether a fleet can keep up with its retirements."""

from __future__ import annotations

import pytest

from sidecar.core.fleet.fleet_settings import RotationPlan, Share

ONE, TENTH = Share(1), Share(100, is_part=True)


@pytest.mark.parametrize(
    ("plan", "containers", "numbers"),
    [
        (RotationPlan(21_600.0, ONE, 60.0), 359, None),
        (RotationPlan(21_600.0, ONE, 60.0), 360, "360 containers, 1 at once and 1m each take 6h,"),
        (RotationPlan(21_600.0, Share(2), 60.0), 400, None),
        (RotationPlan(21_600.0, TENTH, 60.0), 10_000, None),
        (RotationPlan(600.0, TENTH, 60.0), 100, "100 containers, 10 at once and 1m each take 10m,"),
        (RotationPlan(500.0, TENTH, 60.0), 9, "9 containers, 1 at once and 1m each take 9m,"),
        (RotationPlan(60.0, Share(5), 90.0), 2, "2 containers, 2 at once and 1m 30s each take 1m 30s,"),
        (RotationPlan(0.0, ONE, 60.0), 10_000, None),
        (RotationPlan(21_600.0, ONE, 60.0), 0, None),
    ],
)
def test_fleet_has_to_be_through_before_the_first_is_due_again(
    plan: RotationPlan, containers: int, numbers: str | None
) -> None:
    sentence = plan.shortfall(containers)
    assert (numbers or "") in sentence
    assert bool(sentence) is (numbers is not None)


MOST = Share(800, is_part=True)


@pytest.mark.parametrize(
    ("plan", "containers", "sentence"),
    [
        pytest.param(
            RotationPlan(60.0, ONE, 90.0),
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
        pytest.param(RotationPlan(21_600.0, ONE, 60.0, MOST), 5, "", id="one of five may go"),
        pytest.param(RotationPlan(21_600.0, ONE, 60.0, Share(3)), 1, "", id="who is alone may go"),
    ],
)
def test_fleet_keeps_its_floor_when_it_is_renewed(plan: RotationPlan, containers: int, sentence: str) -> None:
    assert plan.shortfall(containers) == sentence
