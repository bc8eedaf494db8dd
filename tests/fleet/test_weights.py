"""The effect of weights on users: the same fleets, seeds and troubles with and without them."""

from __future__ import annotations

import pytest

from fleet.conftest import Begin
from fleet.incidents import Stuck
from fleet.rules import NO_CULLING, OURS_WEIGHTS, SOFT, TRIAL, WEIGHTS, FleetRules
from fleet.scenarios import Scenario, play
from fleet.traffic import RequestLoad
from sidecar.client.success_rate import BUCKET_S, BUCKETS
from sidecar.core.measure.weight import FALL_PER_S, FLOOR, FULL, RISE_PER_S

LOAD = RequestLoad(20)
STUCK = Scenario(7 * 60, 20, (Stuck(60, 4, part=0.8),), LOAD)
MEMORY_S = BUCKETS * BUCKET_S
FALL_S = 4 + (FULL - FLOOR) / FALL_PER_S
"""Some seconds until the newest results dominate, and the fall itself."""


@pytest.mark.parametrize(
    ("rules", "without", "part"),
    [
        pytest.param(WEIGHTS, NO_CULLING, 0.2, id="results, no culling", marks=pytest.mark.site),
        pytest.param(OURS_WEIGHTS, TRIAL, 0.3, id="results", marks=pytest.mark.site),
        pytest.param(SOFT, TRIAL, 0.3, id="errors alone: soft drain"),
    ],
)
def test_weights_prevent_most_avoidable_failures(rules: FleetRules, without: FleetRules, part: float) -> None:
    assert play(STUCK, rules).requests.avoidable <= part * play(STUCK, without).requests.avoidable


@pytest.mark.parametrize(
    "rules", [pytest.param(SOFT, id="soft drain"), pytest.param(OURS_WEIGHTS, id="results", marks=pytest.mark.site)]
)
def test_stuck_containers_are_still_culled(rules: FleetRules) -> None:
    outcome = play(STUCK, rules)
    assert [cull.stuck_by for cull in outcome.culls] == ["stuck"] * 4
    assert outcome.stuck == 0


def test_weight_falls_fast_and_rises_slowly(begin: Begin) -> None:
    world = begin(Scenario(0, 4, (), LOAD), WEIGHTS)
    app = world.apps[2]
    world.run(60)
    world.flaw(2, 0.8, "timeout")
    world.run(60 + FALL_S + 2)
    assert app.weight == FLOOR
    world.run(120)
    world.flaw(2, 0.0, "")
    world.run(120 + (FULL - FLOOR) / RISE_PER_S)
    assert FLOOR < app.weight < FULL
    world.run(120 + 2 * MEMORY_S + FULL / RISE_PER_S)
    assert [app.weight for app in world.apps] == [FULL] * 4
