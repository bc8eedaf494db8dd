"""Holders of leases that are killed, not restarted, or without an answer: how long their slot is used."""

from __future__ import annotations

from math import inf

import pytest

from fleet.ageing import NoRestarts
from fleet.day_outcome import DayOutcome
from fleet.loop import EPOCH_S
from fleet.network import TIMEOUT_S as TIMEOUT_OF_REPLY_S
from fleet.rules import REPLACE_S
from fleet.small import ASK_S, HOUR_S, ON_THE_WAY_S, PATIENT, SHORT_S, YOUNG, fleet, played
from fleet.world import World
from sidecar.core.life.lifetime import RESPITE
from sidecar.core.types import US_PER_S, Results

TIMEOUT_S = YOUNG.policy.retire_timeout_s


def without_restarts(for_s: float, until_s: float, *, lost: int = 0) -> DayOutcome:
    return played(YOUNG, NoRestarts(0, for_s), until_s=until_s, aged_s=1.2 * SHORT_S, lost=lost)


def leaving(world: World, until_s: float) -> int:
    """Let time pass until a container drains under a lease; its place."""
    while not world.departures.retirements:
        world.run(world.loop.now + 1)
        assert world.loop.now < until_s
    return world.departures.retirements[-1].place


def granted(world: World) -> int:
    """Let time pass until the store has granted a lease whose answer has not arrived; the place of its container."""
    while not world.leases():
        world.run(world.loop.now + ON_THE_WAY_S / 40)
    assert not world.departures.retirements
    return next(one.place for one in world.apps if one.instance in world.leases())


def old_world() -> World:
    return fleet(YOUNG, size=6, aged_s=1.2 * SHORT_S)


def test_slot_of_a_killed_holder_is_free_at_the_timeout() -> None:
    world = old_world()
    world.kill(leaving(world, 600), inf)
    world.run(TIMEOUT_S + 600)
    first, second = world.departures.retirements[:2]
    assert TIMEOUT_S - ON_THE_WAY_S <= second.at_s - first.at_s <= TIMEOUT_S + ASK_S


@pytest.mark.parametrize("after_s", [2, 30], ids=["draining", "down"])
def test_killed_holder_that_is_restarted_stays_down(after_s: float) -> None:
    world = old_world()
    place = leaving(world, 600)
    world.run(world.loop.now + after_s)
    world.kill(place, 8)
    world.run(HOUR_S)
    of = DayOutcome.of(world)
    assert sorted(one.place for one in of.retirements[:6]) == list(range(6))
    assert of.retirements[1].at_s - of.retirements[0].at_s < 2 * REPLACE_S
    assert of.most_out == of.most_leases == 1


def test_holder_killed_before_the_answer_uses_its_lease_after_the_restart() -> None:
    world = old_world()
    place = granted(world)
    world.kill(place, 20)
    world.run(world.loop.now + 45)
    (only,) = world.departures.retirements
    assert only.place == place


@pytest.mark.parametrize("after_s", [0, TIMEOUT_OF_REPLY_S + 1], ids=["waiting for the reply", "having given it up"])
def test_lease_without_an_answer_is_given_back_by_a_container_that_became_busy(after_s: float) -> None:
    world = fleet(PATIENT, size=6, aged_s=1.2 * SHORT_S, lost=1000)
    place, granted_s = granted(world), world.loop.now
    world.run(granted_s + after_s)
    world.network.lost = 0
    world.apps[place].load = 1.0
    world.report(place, Results(load=1.0))
    assert leaving(world, 600) != place
    assert world.loop.now <= granted_s + after_s + 3 * ASK_S


@pytest.mark.site
def test_container_that_is_not_restarted_is_up_again_and_its_slot_is_used_by_the_next() -> None:
    of = without_restarts(4 * TIMEOUT_S, 6 * TIMEOUT_S)
    returned = [at_s for at_s, _ in of.returns]
    assert len(returned) >= 3
    for gone, back_s, after in zip(of.retirements, returned, of.retirements[1:], strict=False):
        assert back_s - gone.at_s == pytest.approx(TIMEOUT_S, abs=ON_THE_WAY_S)
        assert 0 <= after.at_s - back_s <= ASK_S
    assert of.most_out == of.most_retired == of.most_leases == 1


@pytest.mark.site
def test_container_that_was_not_restarted_is_not_retired_again_for_a_quarter_of_its_lifetime() -> None:
    of = without_restarts(TIMEOUT_S, HOUR_S)
    (back_s, place), *_ = of.returns
    first, second = (one.at_s for one in of.retirements if one.place == place)
    assert first < back_s
    assert second >= back_s + RESPITE * SHORT_S


@pytest.mark.site
def test_at_most_k_are_down_with_lost_replies_and_without_restarts() -> None:
    assert without_restarts(4 * TIMEOUT_S, 4 * TIMEOUT_S, lost=300).most_retired == 1


def test_at_most_k_are_down_when_a_killed_holder_restarts_shortly_before_the_timeout() -> None:
    world = old_world()
    world.kill(granted(world), TIMEOUT_S - 20)
    world.run(2 * TIMEOUT_S)
    assert world.departures.most_retired == 1


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_container_that_is_not_restarted_is_up_before_its_slot_is_free(*, is_killed: bool) -> None:
    world = old_world()
    NoRestarts(0, HOUR_S).plan(world)
    place = leaving(world, 600)
    slot = world.leases()[world.apps[place].instance]
    over_us = slot.at_us + slot.for_us
    if is_killed:
        world.kill(place, 5)
    world.run(TIMEOUT_S + 60)
    (back_s, back_place), *_ = world.departures.returns
    assert back_place == place
    assert world.apps[place].instance not in world.missing()
    assert back_s <= over_us / US_PER_S - EPOCH_S
