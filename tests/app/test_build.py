"""The rotation plan of a configuration."""

from __future__ import annotations

import pytest

from sidecar.app.build_store import rotation_plan
from sidecar.config.load import load
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.rotation import RotationPlan

HALF = Share(500, is_part=True)


@pytest.mark.parametrize(
    ("flags", "plan"),
    [
        ({}, RotationPlan(0.0, Share(1), 60.0, HALF)),
        (
            {"lifetime": "6h", "redis_url": "redis://a", "retire_slots": "2"},
            RotationPlan(21_600.0, Share(2), 60.0, HALF),
        ),
        (
            {"drain": "90s", "retire_slots": "10%"},
            RotationPlan(0.0, Share(100, is_part=True), 90.0, HALF),
        ),
        ({"min_healthy": "3"}, RotationPlan(0.0, Share(1), 60.0, Share(3))),
    ],
    ids=["never", "two at once", "a part at once, and none is replaced before it has drained", "another floor"],
)
def test_plan_is_that_of_the_settings(flags: dict[str, str], plan: RotationPlan) -> None:
    assert rotation_plan(load(flags, {})) == plan
