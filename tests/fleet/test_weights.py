"""The effect of weights on users: the same fleets, seeds and troubles with and without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from fleet.day_outcome import DayOutcome
from fleet.incidents import Incident, Poison, Stuck
from fleet.rules import NO_CULLING, OURS, OURS_WEIGHTS, SOFT, TRIAL, WEIGHTS, FleetRules
from fleet.scenarios import Scenario, outage, play
from fleet.small import OPEN
from fleet.traffic import RequestLoad
from fleet.world import World
from sidecar.client.success_rate import BUCKET_S, BUCKETS
from sidecar.core.measure.weight import FALL_PER_S, FLOOR, FULL, RISE_PER_S

SEEDS = (1,)
SIZE = 20
LOAD = RequestLoad(20)
STUCK = Scenario("stuck", 7 * 60, (Stuck(60, 4, part=0.8),), SIZE, LOAD)
MEMORY_S = BUCKETS * BUCKET_S
FALL_S = 4 + (FULL - FLOOR) / FALL_PER_S
"""Some seconds until the newest results dominate, and the fall itself."""


@cache
def played(scenario: Scenario, rules: FleetRules, seed: int) -> DayOutcome:
    return play(scenario, rules, seed=seed)


def small(rules: FleetRules, *troubles: Incident) -> World:
    world = World(rules, size=4, seed=1, load=LOAD)
    OPEN.append(world)
    for trouble in troubles:
        trouble.plan(world)
    return world


def every_second(world: World, first: int, last: int, look: Callable[[], None]) -> None:
    for second in range(first, last):
        world.loop.plan(second, look)


# -- a dependency that leaves some stuck ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rules", "without", "part"),
    [
        pytest.param(WEIGHTS, NO_CULLING, 0.2, id="results, no culling", marks=pytest.mark.site),
        pytest.param(OURS_WEIGHTS, TRIAL, 0.3, id="results", marks=pytest.mark.site),
        pytest.param(SOFT, TRIAL, 0.3, id="errors alone: soft drain"),
    ],
)
def test_weights_prevent_most_avoidable_failures(
    rules: FleetRules, without: FleetRules, part: float, seed: int
) -> None:
    assert played(STUCK, rules, seed).avoidable <= part * played(STUCK, without, seed).avoidable


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "rules", [pytest.param(OURS, id="soft drain"), pytest.param(OURS_WEIGHTS, id="results", marks=pytest.mark.site)]
)
def test_stuck_containers_are_still_culled(rules: FleetRules, seed: int) -> None:
    outcome = played(STUCK, rules, seed)
    assert [cull.stuck_by for cull in outcome.culls] == ["stuck"] * 4
    assert outcome.stuck == 0


# -- a dependency that is down for all ------------------------------------------------------------------------


@pytest.mark.site
@pytest.mark.parametrize("rules", [OURS, OURS_WEIGHTS], ids=["soft drain", "results"])
def test_weights_change_nothing_while_all_are_equally_sick(rules: FleetRules) -> None:
    scenario = outage(10, 0.8, 180)
    weighed, even = played(scenario, rules, 1), played(scenario, TRIAL, 1)
    assert weighed.failed == pytest.approx(even.failed, rel=0.05)
    assert len(weighed.culls) <= 1


def test_all_have_the_same_load_while_all_are_equally_sick() -> None:
    world = small(WEIGHTS)
    world.run(60)
    world.fail_all(1.0, "database")
    world.run(60 + FALL_S + 2)
    assert [one.weight for one in world.apps] == [FLOOR] * 4
    assert [one.served for one in world.traffic._streams] == [LOAD.per_s] * 4
    world.fail_all(0.0, "")
    world.run(60 + FALL_S + 2 * MEMORY_S + FULL / RISE_PER_S)
    assert [one.weight for one in world.apps] == [FULL] * 4


# -- one container --------------------------------------------------------------------------------------------------


def test_weight_falls_fast_and_rises_slowly() -> None:
    world = small(WEIGHTS)
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
    assert [one.weight for one in world.apps] == [FULL] * 4


def test_container_that_fails_half_of_its_requests_gets_about_an_eighth() -> None:
    world = small(WEIGHTS, Poison(60, part=0.5))
    weights: list[float] = []
    every_second(world, 90, 390, lambda: weights.append(min(one.weight for one in world.apps)))
    world.run(400)
    assert sum(weights) / len(weights) == pytest.approx(FULL / 8, abs=5)


def test_replacement_has_its_full_weight() -> None:
    world = small(OURS_WEIGHTS, Poison(60))
    app = world.apps[world.places("poisoned", 1)[0]]
    weights: list[float] = []
    every_second(world, 60, 200, lambda: weights.append(app.weight if app.life else FULL))
    world.run(200)
    assert app.life > 0
    assert set(weights) == {FULL}
