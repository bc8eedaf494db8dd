"""Retirement: how many are down at once, when all are replaced, what comes first, and what becomes of a lost holder."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from fleet.conftest import Begin
from fleet.outcome import Outcome
from fleet.rules import OURS, REPLACE_S, aging
from fleet.scenarios import HOUR_S, Held, Kills, NoRestarts, Outage, play, poison, restarting
from fleet.world import World
from sidecar.core.types import LIFETIME_JITTER as JITTER
from sidecar.core.types import State

ON_THE_WAY_S = 0.02
"""The longest delay of a beat and of a lease."""

FEW = 12
SIZE = 40
YOUNG = aging("1")


def rotation_s(slots: int, apps: int) -> float:
    """Seconds for the retirement of ``apps`` containers that are due together: n * d / k."""
    return apps * REPLACE_S / slots


def latest_s(apps: int, lifetime_s: float, slots: int = 1) -> float:
    """The computed age by which all containers with this lifetime are retired."""
    return lifetime_s * (1 + JITTER) + rotation_s(slots, apps)


def retired_within(outcome: Outcome, first_s: float, last_s: float) -> int:
    return sum(first_s < retired.at_s < last_s for retired in outcome.retirements)


# -- a fleet that was started together ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "at_once"),
    [
        pytest.param("3", 3, id="3"),
        pytest.param("1", 1, id="1", marks=pytest.mark.site),
        pytest.param("50p", SIZE // 20, id="5 percent", marks=pytest.mark.site),
    ],
)
def test_fleet_started_together_is_retired_within_the_computed_time_with_at_most_k_at_once(
    begin: Begin, slots: str, at_once: int
) -> None:
    first_s, last_s = HOUR_S * (1 - JITTER), latest_s(SIZE, HOUR_S, at_once)
    world = begin(restarting(0, size=SIZE, aged_s=first_s - 60), aging(slots))
    outcome = world.outcome
    while len(outcome.retirements) < SIZE and world.loop.now < last_s - first_s + 60:
        world.run(world.loop.now + 60)
    assert sorted(retired.place for retired in outcome.retirements) == list(range(SIZE))
    assert outcome.retirements[0].age_s >= first_s
    assert outcome.retirements[-1].age_s <= last_s
    assert outcome.most_out == outcome.most_retired <= at_once
    assert outcome.culls == []


def test_restarted_sidecar_knows_the_age(begin: Begin) -> None:
    world = begin(restarting(0, size=3), YOUNG)
    world.run(100)
    world.kill(0, 10)
    assert world.watched(list(State)) == [1, 2]
    world.run(200)
    assert world.watched([State.UP]) == [0, 1, 2]
    ages = [sidecar.clock() - sidecar.controller.container.born for sidecar in world.sidecars.values()]
    assert ages == pytest.approx([200, 200, 200])


# -- what comes first -----------------------------------------------------------------------------------------------

FROM_S, UNTIL_S = 300.0, 900.0
"""During the retirements."""


@pytest.mark.parametrize(
    ("trouble", "notice_s", "reason"),
    [
        pytest.param(Outage(FROM_S, UNTIL_S - FROM_S, part=0.05), 15.0, "culls", marks=pytest.mark.site),
        (Held(FROM_S, UNTIL_S - FROM_S), ON_THE_WAY_S, "hold"),
    ],
    ids=["outage", "hold"],
)
def test_no_container_is_retired_meanwhile_and_all_are_afterwards(
    trouble: Outage | Held, notice_s: float, reason: str
) -> None:
    outcome = play(restarting(HOUR_S, trouble, aged_s=1.2 * HOUR_S), YOUNG)
    assert retired_within(outcome, 0, FROM_S + notice_s) > 0
    assert retired_within(outcome, FROM_S + notice_s, UNTIL_S) == 0
    assert outcome.refusals[reason] > 0
    left = {retired.place for retired in outcome.retirements} | {cull.place for cull in outcome.culls}
    assert left == set(range(FEW))


@pytest.mark.parametrize(
    "tokens", [pytest.param(10, id="tokens enough", marks=pytest.mark.site), pytest.param(2, id="tokens short")]
)
def test_no_container_is_retired_while_a_suspect_waits_for_its_cull(tokens: int) -> None:
    rules = replace(aging("2"), settings=replace(OURS.settings, capacity=str(tokens)))
    outcome = play(restarting(HOUR_S, poison(60, 6, every_s=70, part=0.8), aged_s=1.2 * HOUR_S), rules)
    assert len(outcome.culls) in (5, 6), "the lifetime of one may end first"
    assert len(outcome.retirements) >= FEW - 6
    assert outcome.refusals["culls"] > 0
    for cull in outcome.culls:
        assert not retired_within(outcome, cull.at_s - cull.suspect_s + ON_THE_WAY_S, cull.at_s)


@pytest.mark.site
def test_culls_and_retirements_together_never_cross_the_floor() -> None:
    """With lost replies and killed sidecars."""
    settings = replace(OURS.settings, capacity="30", min_healthy="900p")
    troubles = (Outage(60, 30, part=0.8, stuck=15), poison(400, 12, every_s=120, part=0.8), Kills(100, every_s=30))
    rules = replace(aging("4", HOUR_S / 3), settings=settings)
    outcome = play(restarting(1800, *troubles, size=SIZE, lost=100), rules)
    assert outcome.most_out <= SIZE - 36
    assert outcome.most_retired <= 4
    assert outcome.refusals["floor"] > 0
    assert min(len(outcome.culls), len(outcome.retirements)) > 10


# -- holders that are killed, not restarted, or without an answer -----------------------------------------------------

TIMEOUT_S = OURS.policy.retire_timeout_s
OLD = restarting(0, size=6, aged_s=1.2 * HOUR_S)

ASK_S = 12.5
"""The longest wait after a refusal: a check interval, and a quarter of it as jitter."""


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
