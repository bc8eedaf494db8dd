"""Outages after a history: what a repair earned is worth nothing in them, and errors that are over claim nothing."""

from __future__ import annotations

from functools import partial

import pytest

from fleet.conftest import Begin
from fleet.scenarios import Held, Outage, Scenario, Sick, Stuck, play
from fleet.traffic import RequestLoad
from sidecar.core.app_reports import ErrorReport

seeds = pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.site) for seed in range(2, 21))])

SLOW = RequestLoad(2)
CHANCE = RequestLoad(stray=4 / 600)
"""Four errors a window by chance; the limit is 5, and the median reaches it now and then."""

# -- what a repair earned -------------------------------------------------------------------------------------------


@seeds
@pytest.mark.parametrize(
    ("size", "stuck", "at_s"),
    [
        pytest.param(12, 4, 600, id="twelve"),
        pytest.param(12, 4, 420, id="half a minute after the last repair", marks=pytest.mark.site),
        pytest.param(30, 10, 800, id="thirty", marks=pytest.mark.site),
        pytest.param(30, 10, 2160, id="half an hour later", marks=pytest.mark.site),
        pytest.param(100, 33, 1500, id="a hundred", marks=pytest.mark.site),
    ],
)
def test_outage_after_a_repair_of_the_same_cause_costs_one_container(
    size: int, stuck: int, at_s: float, seed: int
) -> None:
    outcome = play(Scenario(at_s + 400, size, (Stuck(60, stuck), Outage(at_s, 300)), SLOW), seed=seed)
    assert outcome.needs["stuck"] == stuck
    assert len(outcome.in_outage) <= 1
    assert len(outcome.culls) <= stuck + 1


@seeds
def test_outage_while_the_repair_goes_on_costs_one_container(seed: int) -> None:
    """The last cull of the repair has no outcome yet, and its outcome is of another episode."""
    outcome = play(Scenario(690, 12, (Stuck(60, 4), Outage(290, 300)), SLOW), seed=seed)
    assert len(outcome.in_outage) <= 1


@seeds
def test_each_of_two_outages_costs_one_container(seed: int) -> None:
    outcome = play(Scenario(1800, 12, (Stuck(60, 4), Outage(600, 120), Outage(1600, 120)), SLOW), seed=seed)
    assert sum(cull.at_s < 1000 for cull in outcome.in_outage) <= 1
    assert sum(cull.at_s > 1000 for cull in outcome.in_outage) <= 1


def test_repair_of_most_of_the_fleet_is_one_episode() -> None:
    assert play(Scenario(1000, 20, (Stuck(60, 14),))).needs == {"stuck": 14}


# -- errors by chance -----------------------------------------------------------------------------------------------


@seeds
def test_fleet_with_four_errors_a_window_by_chance_loses_no_container(seed: int) -> None:
    assert play(Scenario(400, 12, (), CHANCE), seed=seed).culls == []


@seeds
def test_replacements_in_a_fleet_with_errors_by_chance_are_not_culled_again(seed: int) -> None:
    """A new sidecar knows nothing of the time before, in which the same errors were usual."""
    assert play(Scenario(900, 12, (Stuck(100, 3),), CHANCE), seed=seed).needs == {"stuck": 3}


# -- old errors -----------------------------------------------------------------------------------------------------


@seeds
def test_outage_costs_no_container_after_its_end(seed: int) -> None:
    """Its errors are in the windows for another minute, and the first pause ends in it: 52 to 56 s after the last."""
    outcome = play(Scenario(800, 12, (Outage(100, 600, part=0.1),)), seed=seed)
    assert len(outcome.in_outage) == len(outcome.culls) == 1


@seeds
def test_burst_under_a_hold_is_not_culled_afterwards(seed: int) -> None:
    outcome = play(Scenario(200, 12, (Sick(60, 1, for_s=3, part=0.6, name="wave"), Held(50, 50))), seed=seed)
    assert outcome.denials["hold"] > 0
    assert outcome.culls == []


@pytest.mark.parametrize(("held_s", "first_s", "last_s"), [(0, 108, 114), (100, 150, 170)], ids=["free", "held"])
def test_container_with_an_error_each_twelve_seconds_is_culled(
    begin: Begin, held_s: float, first_s: float, last_s: float
) -> None:
    """Five errors in a minute, of which one at most is recent. After a hold it claims at its next error."""
    world = begin(Scenario(180, 12, (Held(50, held_s),) if held_s else ()))
    for at_s in range(60, 180, 12):
        world.loop.plan(at_s, partial(world.report, 0, ErrorReport(kind="connection")))
    (cull,) = world.run(180).culls
    assert cull.place == 0
    assert first_s <= cull.at_s <= last_s
