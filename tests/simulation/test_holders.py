"""Who holds a lease, and is killed, or not restarted, or never hears of it: how long its slot is taken."""

from __future__ import annotations

from math import inf

import pytest

from sidecar.core.life.lifetime import RESPITE
from sidecar.core.types import US_PER_S
from simulation.ageing import Unheard
from simulation.network import TIMEOUT_S as TIMEOUT_OF_REPLY_S
from simulation.rules import REPLACE_S
from simulation.scenarios import Outcome, outcome
from simulation.small import ASK_S, HOUR_S, ON_THE_WAY_S, PATIENT, SHORT_S, YOUNG, fleet, played
from simulation.timeline import EPOCH_S
from simulation.world import World

TIMEOUT_S = YOUNG.policy.retire_timeout_s

pytestmark = pytest.mark.timeout(240)
"""Seconds of arithmetic, which a machine that is busy with something else stretches."""


def unheard(for_s: float, until_s: float, *, lost: int = 0) -> Outcome:
    return played(YOUNG, Unheard(0, for_s), until_s=until_s, aged_s=1.2 * SHORT_S, lost=lost)


def leaving(world: World, until_s: float) -> int:
    """Let the time pass until somebody drains under a lease; whose place that is."""
    while not world.departures.retirements:
        world.run(world.timeline.now + 1)
        assert world.timeline.now < until_s
    return world.departures.retirements[-1].place


def granted(world: World) -> int:
    """Let the time pass until the bucket has given a lease that nobody has heard of yet; whose place that is."""
    while not world.slots():
        world.run(world.timeline.now + ON_THE_WAY_S / 40)
    assert not world.departures.retirements
    return next(one.place for one in world.apps if one.instance in world.slots())


def old_world() -> World:
    return fleet(YOUNG, size=6, aged_s=1.2 * SHORT_S)


def test_slot_of_a_holder_that_was_killed_is_free_at_the_timeout_and_not_before() -> None:
    world = old_world()
    world.kill(leaving(world, 600), inf)
    world.run(TIMEOUT_S + 600)
    first, second = world.departures.retirements[:2]
    assert TIMEOUT_S - ON_THE_WAY_S <= second.at_s - first.at_s <= TIMEOUT_S + ASK_S


@pytest.mark.parametrize("after_s", [2, 30], ids=["draining", "down"])
def test_holder_that_was_killed_and_comes_back_is_away_as_before(after_s: float) -> None:
    world = old_world()
    place = leaving(world, 600)
    world.run(world.timeline.now + after_s)
    world.kill(place, 8)
    world.run(HOUR_S)
    of = outcome(world)
    assert sorted(one.place for one in of.retirements[:6]) == list(range(6))
    assert of.retirements[1].at_s - of.retirements[0].at_s < 2 * REPLACE_S
    assert of.most_out == of.most_leases == 1


def test_holder_that_was_killed_before_it_heard_of_its_lease_uses_it_when_it_is_back() -> None:
    world = old_world()
    place = granted(world)
    world.kill(place, 20)
    world.run(world.timeline.now + 60)
    (only,) = world.departures.retirements
    assert only.place == place


@pytest.mark.parametrize("after_s", [0, TIMEOUT_OF_REPLY_S + 1], ids=["waiting for the reply", "having given it up"])
def test_lease_that_was_granted_without_being_heard_of_is_given_back_by_who_has_become_busy(after_s: float) -> None:
    world = fleet(PATIENT, size=6, aged_s=1.2 * SHORT_S, lost=1000)
    place, granted_s = granted(world), world.timeline.now
    world.run(granted_s + after_s)
    world.network.lost, world.apps[place].load = 0, 1.0
    assert leaving(world, 600) != place
    assert world.timeline.now <= granted_s + after_s + 3 * ASK_S


def test_who_is_not_restarted_comes_back_and_its_slot_goes_on() -> None:
    of = unheard(4 * TIMEOUT_S, 6 * TIMEOUT_S)
    returned = [at_s for at_s, _ in of.returns]
    assert len(returned) >= 3
    for gone, back_s, after in zip(of.retirements, returned, of.retirements[1:], strict=False):
        assert back_s - gone.at_s == pytest.approx(TIMEOUT_S, abs=ON_THE_WAY_S)
        assert 0 <= after.at_s - back_s <= ASK_S
    assert of.most_out == of.most_retired == of.most_leases == 1


def test_who_came_back_is_left_in_peace_for_a_quarter_of_its_lifetime() -> None:
    of = unheard(TIMEOUT_S, HOUR_S)
    (back_s, place), *_ = of.returns
    first, second = (one.at_s for one in of.retirements if one.place == place)
    assert first < back_s
    assert second >= back_s + RESPITE * SHORT_S


def test_no_more_than_k_are_away_though_replies_get_lost_and_nobody_is_restarted() -> None:
    assert unheard(4 * TIMEOUT_S, 4 * TIMEOUT_S, lost=300).most_retired == 1


def test_no_more_than_k_are_away_when_a_killed_holder_is_back_shortly_before_its_slot_is_over() -> None:
    world = old_world()
    world.kill(granted(world), TIMEOUT_S - 20)
    world.run(2 * TIMEOUT_S)
    assert world.departures.most_retired == 1


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_who_is_not_restarted_is_back_before_its_slot_is_free(*, is_killed: bool) -> None:
    world = old_world()
    Unheard(0, HOUR_S).plan(world)
    place = leaving(world, 600)
    slot = world.slots()[world.apps[place].instance]
    over_us = slot.at_us + slot.for_us
    if is_killed:
        world.kill(place, 5)
    world.run(TIMEOUT_S + 60)
    (back_s, back_place), *_ = world.departures.returns
    assert back_place == place
    assert world.apps[place].instance not in world.missing()
    assert back_s <= over_us / US_PER_S - EPOCH_S
