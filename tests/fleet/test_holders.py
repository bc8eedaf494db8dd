"""Holders of leases that are killed, not restarted, or without an answer: how long their slot is used."""

from __future__ import annotations

from math import inf

import pytest

from fleet.conftest import Begin
from fleet.incidents import NoRestarts
from fleet.rules import OURS, REPLACE_S, aging
from fleet.scenarios import HOUR_S, play, restarting
from fleet.world import World

YOUNG = aging("1")
TIMEOUT_S = OURS.policy.retire_timeout_s
OLD = restarting(0, size=6, aged_s=1.2 * HOUR_S)

ASK_S = 12.5
"""The longest wait after a refusal: a check interval, and a quarter of it as jitter."""

ON_THE_WAY_S = 0.02
"""The longest delay of a beat and of a lease."""


def leaving(world: World) -> int:
    """Let time pass until a container drains under a lease; its place."""
    while not world.outcome.retirements:
        world.run(world.loop.now + 1)
        assert world.loop.now < HOUR_S
    return world.outcome.retirements[-1].place


def granted(world: World) -> int:
    """Let time pass until the store has granted a lease whose answer has not arrived; the place of its container."""
    while not world.network.leased:
        world.run(world.loop.now + ON_THE_WAY_S / 40)
    assert not world.outcome.retirements
    return next(app.place for app in world.apps if app.instance in world.network.leased)


def test_slot_of_a_killed_holder_is_free_at_the_timeout(begin: Begin) -> None:
    world = begin(OLD, YOUNG)
    world.kill(leaving(world), inf)
    first, second = world.run(TIMEOUT_S + 600).retirements[:2]
    assert TIMEOUT_S - ON_THE_WAY_S <= second.at_s - first.at_s <= TIMEOUT_S + ASK_S


@pytest.mark.parametrize("after_s", [2, 30], ids=["draining", "down"])
def test_killed_holder_that_is_restarted_stays_down(begin: Begin, after_s: float) -> None:
    world = begin(OLD, YOUNG)
    place = leaving(world)
    world.run(world.loop.now + after_s)
    world.kill(place, 8)
    outcome = world.run(900)
    assert sorted(retired.place for retired in outcome.retirements[:6]) == list(range(6))
    assert outcome.retirements[1].at_s - outcome.retirements[0].at_s < 2 * REPLACE_S
    assert outcome.most_out == 1


def test_holder_killed_before_the_answer_uses_its_lease_after_the_restart(begin: Begin) -> None:
    world = begin(OLD, YOUNG)
    place = granted(world)
    world.kill(place, 20)
    (retired,) = world.run(world.loop.now + 45).retirements
    assert retired.place == place


@pytest.mark.site
def test_at_most_k_are_down_with_lost_replies_and_without_restarts() -> None:
    scenario = restarting(4 * TIMEOUT_S, NoRestarts(4 * TIMEOUT_S), aged_s=1.2 * HOUR_S, lost=300)
    assert play(scenario, YOUNG).most_retired == 1


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_container_that_is_not_restarted_is_up_before_its_slot_is_free(begin: Begin, *, is_killed: bool) -> None:
    world = begin(OLD, YOUNG)
    NoRestarts(HOUR_S).plan(world)
    place = granted(world)
    free_s = world.loop.now + TIMEOUT_S
    if is_killed:
        leaving(world)
        world.kill(place, 5)
    (back_s, back_place), *_ = world.run(TIMEOUT_S + 60).returns
    assert back_place == place
    assert back_s <= free_s
