"""From settings to how a fleet is to be renewed."""

from __future__ import annotations

import pytest

from sidecar.app import rotation_plan
from sidecar.config.settings import load
from sidecar.core.fleet.terms import Share
from sidecar.core.life.lifetime import Plan

HALF = Share(500, is_part=True)


@pytest.mark.parametrize(
    ("flags", "plan"),
    [
        ({}, Plan(0.0, Share(1), 60.0, HALF, never_last=True)),
        (
            {"lifetime": "6h", "redis_url": "redis://a", "retire_slots": "2"},
            Plan(21_600.0, Share(2), 60.0, HALF, never_last=True),
        ),
        (
            {"replace_time": "90s", "retire_slots": "10%"},
            Plan(0.0, Share(100, is_part=True), 90.0, HALF, never_last=True),
        ),
        ({"replace_time": "30s", "drain": "45s"}, Plan(0.0, Share(1), 45.0, HALF, never_last=True)),
        ({"min_healthy": "3", "never_last": "false"}, Plan(0.0, Share(1), 60.0, Share(3), never_last=False)),
    ],
    ids=["never", "two at once", "a part at once", "nobody is replaced before it has drained", "another floor"],
)
def test_plan_is_that_of_the_settings(flags: dict[str, str], plan: Plan) -> None:
    assert rotation_plan.plan(load(flags, {})) == plan
