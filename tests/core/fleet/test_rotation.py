"""Whether retirements keep up: a fleet has to be replaced before the first container is due again."""

from __future__ import annotations

import pytest

from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.rotation import RotationPlan

ONE, TENTH, MOST = Share(1), Share(100, is_part=True), Share(800, is_part=True)
NONE_CAN = (
    "no container can be retired: 4 of a fleet of 4 have to stay in service (ARBITER_MIN_HEALTHY), so all outlive"
)


def takes(plan: str, time: str, lifetime: str) -> str:
    compared = f"takes {time}, which is not less than the lifetime of {lifetime}"
    return f"retirements cannot keep up: to replace {plan}, {compared}"


@pytest.mark.parametrize(
    ("plan", "containers", "sentence"),
    [
        (RotationPlan(21_600.0, ONE, 60.0), 359, ""),
        (RotationPlan(21_600.0, ONE, 60.0), 360, takes("a fleet of 360, 1 at once and 1m each", "6h", "6h")),
        (RotationPlan(21_600.0, Share(2), 60.0), 400, ""),
        (RotationPlan(21_600.0, TENTH, 60.0), 10_000, ""),
        (RotationPlan(600.0, TENTH, 60.0), 100, takes("a fleet of 100, 10 at once and 1m each", "10m", "10m")),
        (RotationPlan(500.0, TENTH, 60.0), 9, takes("a fleet of 9, 1 at once and 1m each", "9m", "8m 20s")),
        (RotationPlan(60.0, Share(5), 90.0), 2, takes("a fleet of 2, 2 at once and 1m 30s each", "1m 30s", "1m")),
        (RotationPlan(0.0, ONE, 60.0), 10_000, ""),
        (RotationPlan(21_600.0, ONE, 60.0), 0, ""),
        (
            RotationPlan(600.0, Share(50), 120.0, MOST),
            100,
            takes("a fleet of 100, 20 at once (80 have to stay in service) and 2m each", "10m", "10m"),
        ),
        (RotationPlan(21_600.0, ONE, 60.0, MOST), 4, f"{NONE_CAN} their lifetime of 6h"),
        (RotationPlan(21_600.0, ONE, 60.0, MOST), 5, ""),
        (RotationPlan(21_600.0, ONE, 60.0, Share(3)), 1, ""),
    ],
)
def test_fleet_has_to_be_replaced_before_the_first_is_due_again(
    plan: RotationPlan, containers: int, sentence: str
) -> None:
    assert plan.shortfall(containers) == sentence
