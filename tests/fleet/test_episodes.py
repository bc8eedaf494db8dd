"""Outages after a history: what a repair earned is worth nothing in them, and errors that are over claim nothing."""

from __future__ import annotations

from functools import partial

import pytest

from fleet.day_outcome import DayOutcome
from fleet.incidents import Outage, Stuck, Wave
from fleet.rules import OURS
from fleet.scenarios import Scenario, play
from fleet.traffic import RequestLoad
from fleet.world import World
from sidecar.core.types import ErrorReport

seeds = pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.site) for seed in range(2, 21))])

FAIL = 0.6
SLOW = RequestLoad(2)


def repair_then_outage(size: int, stuck: int, at_s: float, load: RequestLoad = SLOW) -> Scenario:
    """``stuck`` containers are repaired by restarts, and at ``at_s`` a dependency is away for all."""
    troubles = (Stuck(60, stuck, part=FAIL), Outage(at_s, 300, part=1.0))
    return Scenario("repair, then outage", at_s + 400, troubles, size, load)


def of_the_repair(outcome: DayOutcome) -> int:
    return outcome.needs["stuck"]


# -- what a repair earned -------------------------------------------------------------------------------------------


@pytest.mark.site
@seeds
def test_outage_half_an_hour_after_a_repair_costs_one_container(seed: int) -> None:
    troubles = (Stuck(300, 10, part=FAIL), Outage(2400, 600, part=1.0))
    outcome = play(Scenario("repair, then outage", 3600, troubles, 30, SLOW), OURS, seed=seed)
    assert of_the_repair(outcome) == 10
    assert len(outcome.in_outage) <= 1
    assert len(outcome.culls) <= 11


@seeds
@pytest.mark.parametrize(
    ("size", "at_s"),
    [(12, 600), pytest.param(12, 420, marks=pytest.mark.site), pytest.param(30, 800, marks=pytest.mark.site)],
    ids=["twelve", "half a minute after the last repair", "thirty"],
)
def test_outage_after_a_repair_of_the_same_cause_costs_one_container(size: int, at_s: float, seed: int) -> None:
    outcome = play(repair_then_outage(size, size // 3, at_s), OURS, seed=seed)
    assert of_the_repair(outcome) == size // 3
    assert len(outcome.in_outage) <= 1


@pytest.mark.site
@seeds
def test_outage_after_a_repair_costs_one_container_of_a_hundred(seed: int) -> None:
    outcome = play(repair_then_outage(100, 33, 1500), OURS, seed=seed)
    assert len(outcome.in_outage) <= 1


@seeds
def test_outage_while_the_repair_goes_on_costs_one_container(seed: int) -> None:
    """The last cull of the repair has no outcome yet, and its outcome is of another episode."""
    outcome = play(repair_then_outage(12, 4, 290), OURS, seed=seed)
    assert len(outcome.in_outage) <= 1


@seeds
def test_each_of_two_outages_costs_one_container(seed: int) -> None:
    troubles = (Stuck(60, 4, part=FAIL), Outage(600, 120, part=1.0), Outage(1600, 120, part=1.0))
    outcome = play(Scenario("two", 1800, troubles, 12, SLOW), OURS, seed=seed)
    assert sum(cull.at_s < 1000 for cull in outcome.in_outage) <= 1
    assert sum(cull.at_s > 1000 for cull in outcome.in_outage) <= 1


def test_repair_of_most_of_the_fleet_is_one_episode() -> None:
    outcome = play(Scenario("most", 1000, (Stuck(60, 14, part=FAIL),), 20), OURS)
    assert outcome.needs == {"stuck": 14}


# -- errors by chance -----------------------------------------------------------------------------------------------


@seeds
def test_fleet_with_four_errors_a_window_by_chance_loses_no_container(seed: int) -> None:
    """The limit is 5, and the median reaches it now and then."""
    outcome = play(Scenario("noise", 400, (), 12, RequestLoad(stray=4 / 600)), OURS, seed=seed)
    assert outcome.culls == ()


@seeds
def test_replacements_in_a_fleet_with_errors_by_chance_are_not_culled_again(seed: int) -> None:
    """A new sidecar knows nothing of the time before, in which the same errors were usual."""
    outcome = play(Scenario("noise", 900, (Stuck(100, 3, part=FAIL),), 12, RequestLoad(stray=4 / 600)), OURS, seed=seed)
    assert outcome.needs == {"stuck": 3}


# -- old errors -----------------------------------------------------------------------------------------------------


@seeds
def test_outage_costs_no_container_after_its_end(seed: int) -> None:
    """Its errors are in the windows for another minute, and the first pause ends in it: 52 to 56 s after the last."""
    scenario = Scenario("outage", 800, (Outage(100, 600, part=0.1),), 12)
    outcome = play(scenario, OURS, seed=seed)
    assert len(outcome.in_outage) == len(outcome.culls) == 1


@seeds
def test_burst_under_a_hold_is_not_culled_afterwards(seed: int) -> None:
    world = World(OURS, size=12, seed=seed)
    Wave(60, 3, 1, part=FAIL).plan(world)
    world.loop.plan(50, lambda: world.loop.create_task(world.hold("ann", "a look", 50)))
    world.run(200)
    outcome = DayOutcome.of(world)
    world.close()
    assert outcome.denials["hold"] > 0
    assert outcome.culls == ()


@pytest.mark.parametrize(("held_s", "first_s", "last_s"), [(0, 108, 114), (100, 150, 170)], ids=["free", "held"])
def test_container_with_an_error_each_twelve_seconds_is_culled(held_s: float, first_s: float, last_s: float) -> None:
    """Five errors in a minute, of which one at most is recent. After a hold it claims at its next error."""
    world = World(OURS, size=12, seed=1)
    for at_s in range(60, 180, 12):
        world.loop.plan(at_s, partial(world.report, 0, ErrorReport(kind="connection")))
    if held_s:
        world.loop.plan(50, lambda: world.loop.create_task(world.hold("ann", "a look", held_s)))
    world.run(180)
    (cull,) = DayOutcome.of(world).culls
    world.close()
    assert cull.place == 0
    assert first_s <= cull.at_s <= last_s
