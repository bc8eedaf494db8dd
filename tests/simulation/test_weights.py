"""What users feel of weights: the same fleets, seeds and troubles with them and without."""

from __future__ import annotations

from functools import cache

import pytest

from sidecar.core.weight import FALL_PER_S, FLOOR, FULL, RISE_PER_S
from simulation.requests import CLOSE_LOOK_S
from simulation.rules import EARN_WEIGHTS, NOBODY, OURS, OURS_WEIGHTS, WEIGHTS, Rules
from simulation.scale import MEMORY_S
from simulation.scenarios import Outcome, Scenario, play
from simulation.server import COLDEST, POLL_S, SLOW_START_S
from simulation.traffic import REQUESTS_PER_S
from simulation.troubles import Outage, Poison
from simulation.world import World

SEEDS = range(1, 4)
SIZE = 40
STUCK = Scenario("stuck", 16 * 60, (Outage(60, 60, stuck=12),))
OUTAGE = Scenario("outage", 6 * 60, (Outage(60, 180),))
FALL_S = 4 + (FULL - FLOOR) / FALL_PER_S + POLL_S + CLOSE_LOOK_S
"""Some seconds until the newest results outweigh the good ones before, the fall itself, and until it is heard."""

pytestmark = pytest.mark.timeout(240)
"""As in ``test_simulation.py``."""


@cache
def played(scenario: Scenario, rules: Rules, seed: int) -> Outcome:
    return play(scenario, rules, seed=seed, size=SIZE)


# -- a dependency that leaves some stuck ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rules", "without", "part"),
    [(WEIGHTS, NOBODY, 0.2), (OURS_WEIGHTS, OURS, 0.3), (EARN_WEIGHTS, OURS, 0.2)],
    ids=["no culling", "ours", "earned budget as well"],
)
def test_weights_spare_users_most_of_the_avoidable_failures(
    rules: Rules, without: Rules, part: float, seed: int
) -> None:
    assert played(STUCK, rules, seed).avoidable <= part * played(STUCK, without, seed).avoidable


@pytest.mark.parametrize("seed", SEEDS)
def test_the_stuck_are_culled_all_the_same(seed: int) -> None:
    outcome = played(STUCK, OURS_WEIGHTS, seed)
    assert sum(bool(cull.stuck_by) for cull in outcome.culls) == 12
    assert len(outcome.vain) <= 1
    assert outcome.stuck == 0


# -- a dependency that is down for everybody ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_neither_save_nor_cost_requests_while_all_suffer_alike(seed: int) -> None:
    weighed, even = played(OUTAGE, OURS_WEIGHTS, seed), played(OUTAGE, OURS, seed)
    assert weighed.failed == pytest.approx(even.failed, rel=0.001)
    assert weighed.avoidable == even.avoidable == 0
    assert len(weighed.culls) == len(even.culls) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_singled_out_while_all_suffer_alike(seed: int) -> None:
    world = World(WEIGHTS, size=SIZE, seed=seed)
    Outage(60, 180).plan(world)
    world.run(60 + FALL_S)
    assert [one.weight for one in world.containers] == [FLOOR] * SIZE
    assert {world.ledger.load_of(one) for one in world.containers} == {REQUESTS_PER_S}
    world.run(240 + 2 * MEMORY_S)
    assert [one.weight for one in world.containers] == [FULL] * SIZE


@pytest.mark.parametrize("seed", SEEDS)
def test_those_whose_weight_falls_last_are_not_flooded_meanwhile(seed: int) -> None:
    assert played(OUTAGE, OURS_WEIGHTS, seed).most_load <= 5 * REQUESTS_PER_S


# -- one container --------------------------------------------------------------------------------------------------


def test_weight_falls_fast_and_rises_slowly() -> None:
    world = World(WEIGHTS, size=4, seed=1)
    container = world.containers[2]
    world.run(60)
    world.flaw(2, 0.8, "timeout")
    world.run(60 + FALL_S)
    assert container.weight == FLOOR
    world.run(120)
    world.flaw(2, 0.0, "")
    world.run(120 + (FULL - FLOOR) / RISE_PER_S)
    assert FLOOR < container.weight < FULL
    world.run(120 + 2 * MEMORY_S)
    assert [one.weight for one in world.containers] == [FULL] * 4


def test_share_of_one_that_fails_half_of_its_requests_is_about_an_eighth() -> None:
    world = World(WEIGHTS, size=4, seed=1)
    Poison(60, part=0.5).plan(world)
    weights: list[float] = []
    for second in range(90, 390, 10):
        world.timeline.at(second, lambda: weights.append(min(one.weight for one in world.containers)))
    world.run(400)
    assert sum(weights) / len(weights) == pytest.approx(FULL / 8, abs=5)


def test_replacement_starts_slowly_and_nothing_is_held_against_it() -> None:
    world = World(OURS_WEIGHTS, size=4, seed=1)
    Poison(60).plan(world)
    weights: list[float] = []

    def look() -> None:
        if container.serving and container.life > 0:
            weights.append(container.weight)

    container = world.containers[world.places("poisoned", 1)[0]]
    for second in range(60, 200):
        world.timeline.at(second, look)
    world.run(200)
    assert weights == sorted(weights)
    assert weights[0] < FULL * (COLDEST + 1 / SLOW_START_S)
    assert weights[-1] == FULL
