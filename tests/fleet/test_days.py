"""Days of a fleet, each with its bound, and the effect of weights on users. The long ones are for the site tier."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from fleet.outcome import most_within
from fleet.rules import NO_CULLING, OURS, OURS_WEIGHTS, SOFT, TRIAL, WEIGHTS, FleetRules
from fleet.scenarios import DAY, HOUR_S, SHORT_DAY, Outage, Scenario, Sick, Stuck, play, poison, restarting
from fleet.traffic import RequestLoad
from sidecar.core.fleet.fleet_settings import REFUND_FACTOR

BUDGET = 10
WINDOW_S = 600
FROM_S = 120.0

# -- a day ----------------------------------------------------------------------------------------------------------


@pytest.mark.site
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_day_keeps_to_its_limits(seed: int) -> None:
    outcome = play(DAY, OURS, seed=seed)
    print(f"seed {seed}: {outcome.requests.avoidable:,.0f} avoidable, {dict(outcome.needs)}")  # noqa: T201 - with -s
    assert len(outcome.culls) - outcome.needs["stuck"] <= 6
    assert outcome.requests.avoidable <= 75_000
    assert outcome.stuck == 0


def test_short_day_keeps_to_its_limits() -> None:
    """17,985 requests fail: without refunds 19,522, without soft drain 30,061."""
    outcome = play(SHORT_DAY)
    assert outcome.needs["healthy"] == 0
    assert len(outcome.culls) - outcome.needs["stuck"] <= 2, "one in the outage, one in the wave"
    assert outcome.requests.avoidable <= 19_000
    assert outcome.stuck == 0


@pytest.mark.site
@pytest.mark.timeout(3600)
def test_seventy_of_a_hundred_stuck_containers_are_culled() -> None:
    outcome = play(Scenario(300 + 2 * HOUR_S, 100, (Stuck(300, 70),)))
    print(f"{outcome.requests.avoidable:,.0f} avoidable, {dict(outcome.needs)}")  # noqa: T201 - with -s
    assert outcome.needs["stuck"] == 70
    assert outcome.requests.avoidable <= 250_000
    assert outcome.stuck == 0


# -- lone bad containers --------------------------------------------------------------------------------------------

LONE = Scenario(900, 20, (poison(FROM_S, count=4, every_s=150, part=0.8),))


@pytest.mark.parametrize("rules", [TRIAL, OURS], ids=lambda rules: rules.name)
def test_lone_bad_containers_are_all_culled_and_only_they(rules: FleetRules) -> None:
    outcome = play(LONE, rules)
    assert [cull.stuck_by for cull in outcome.culls] == ["poisoned"] * 4
    assert outcome.stuck == 0


def test_lone_bad_container_is_culled_a_settle_after_the_limit_and_it_is_found_to_help() -> None:
    outcome = play(LONE)
    waits_s = [cull.suspect_s for cull in outcome.culls]
    assert min(waits_s) >= OURS.policy.settle_s
    assert max(waits_s) <= OURS.policy.settle_s + 1.5, "jitter of a quarter, and a beat"
    assert outcome.results == (("helped", "connection", 4),)


def test_lone_container_with_little_traffic_fails_few_requests_until_its_cull() -> None:
    outcome = play(Scenario(900, 20, (poison(300),), RequestLoad(1)))
    assert outcome.requests.avoidable <= 8
    assert len(outcome.culls) == 1


# -- a dependency that is down for all ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "per_s"),
    [(12, 1), (2, 1), *(pytest.param(*each, marks=pytest.mark.site) for each in ((12, 0.2), (20, 0.3), (5, 10)))],
)
def test_outage_costs_at_most_one_container_a_pause(size: int, per_s: float) -> None:
    assert len(play(Scenario(340, size, (Outage(FROM_S, 180, part=per_s / 10),))).culls) <= 1


@pytest.mark.site
def test_pauses_of_a_long_outage_double() -> None:
    culls = [cull.at_s for cull in play(Scenario(3400, 4, (Outage(300, 2500, part=0.5),), RequestLoad(1))).culls]
    pauses = [after - before for before, after in pairwise(culls)]
    assert len(culls) == 3
    assert WINDOW_S <= pauses[0] <= WINDOW_S + 120
    assert 2 * WINDOW_S <= pauses[1] <= 2 * WINDOW_S + 120


# -- restarts do not help -------------------------------------------------------------------------------------------


def test_many_sick_containers_cost_one_cull_a_pause() -> None:
    outcome = play(Scenario(FROM_S + 760, 20, (Sick(FROM_S, 9, part=0.6),)))
    assert len(outcome.culls) == 2
    assert most_within([cull.at_s for cull in outcome.culls], WINDOW_S) == 1


@pytest.mark.site
def test_lone_bad_container_is_culled_while_culls_for_another_cause_are_paused() -> None:
    outcome = play(Scenario(600, 40, (Sick(FROM_S, 15), poison(400, part=0.8))))
    assert [cull.stuck_by for cull in outcome.culls if cull.stuck_by] == ["poisoned"]
    assert len(outcome.culls) - outcome.needs["stuck"] <= 1


# -- random errors of healthy containers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "part"), [(4, 0.005), (20, 0.005)])
def test_noise_causes_no_cull(size: int, part: float) -> None:
    assert play(Scenario(450, size, (), RequestLoad(stray=part))).culls == []


@pytest.mark.site
@pytest.mark.parametrize("part", [0.01, 0.02])
def test_noise_over_the_limit_of_errors_costs_at_most_one_container_a_pause(part: float) -> None:
    assert len(play(Scenario(400, 20, (), RequestLoad(stray=part))).culls) <= 1


# -- a dependency that leaves some stuck ----------------------------------------------------------------------------

THIRD = Scenario(1000, 30, (Stuck(FROM_S, 12),))


def test_third_of_the_fleet_left_stuck_recovers_with_refunds_before_a_window_is_over() -> None:
    outcome = play(THIRD)
    assert outcome.needs == {"stuck": 12}
    assert outcome.recovered["stuck"] <= FROM_S + WINDOW_S
    assert BUDGET < most_within([cull.at_s for cull in outcome.culls], WINDOW_S) <= REFUND_FACTOR * BUDGET


@pytest.mark.site
def test_without_refunds_it_recovers_at_the_pace_of_the_budget() -> None:
    outcome = play(THIRD, SOFT)
    assert len(outcome.culls) == 12
    assert outcome.recovered["stuck"] > FROM_S + WINDOW_S
    assert most_within([cull.at_s for cull in outcome.culls], WINDOW_S) == BUDGET


@pytest.mark.site
def test_soft_drain_and_refund_each_reduce_the_failures() -> None:
    trial, soft, ours = (play(THIRD, rules).requests.avoidable for rules in (TRIAL, SOFT, OURS))
    assert ours < soft < trial


@pytest.mark.parametrize("stuck", [5, pytest.param(15, marks=pytest.mark.site)])
def test_stuck_containers_with_little_traffic_are_culled_despite_soft_drain(stuck: int) -> None:
    outcome = play(Scenario(800, 50, (Stuck(FROM_S, stuck),), RequestLoad(1)))
    assert outcome.results == (("helped", "database", stuck),)
    assert outcome.visits == []


# -- the floor ------------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_floor_holds_with_lost_replies() -> None:
    settings = replace(OURS.settings, capacity="30", min_healthy="900p", trial=False)
    troubles = (Outage(60, 30, stuck=15), poison(400, count=6, every_s=20), Outage(1000, 120))
    outcome = play(restarting(1300, *troubles, size=40, lost=100), replace(OURS, settings=settings))
    assert outcome.most_out == 40 - 36
    assert outcome.denials["floor"] > 0


# -- the laboratory itself ------------------------------------------------------------------------------------------


def test_same_seed_gives_the_same_day() -> None:
    scenario = restarting(130, Outage(60, 30, stuck=6), poison(80, count=3, every_s=20), size=16, lost=50)
    seven, again, eight = (play.__wrapped__(scenario, OURS, seed) for seed in (7, 7, 8))
    assert again == seven
    assert eight != seven


def test_stuck_containers_fail_for_ever_without_culling() -> None:
    outcome = play(Scenario(1060, 10, (poison(60, part=0.5),), RequestLoad(20)), NO_CULLING)
    assert outcome.stuck == 1
    assert outcome.requests.avoidable == pytest.approx(0.5 * 20 * 1000, rel=0.01)


def test_failures_of_an_outage_are_not_avoidable() -> None:
    outcome = play(Scenario(450, 4, (Outage(100, 300, part=0.5),), RequestLoad(20)), NO_CULLING)
    assert outcome.requests.avoidable == 0
    assert outcome.requests.failed == pytest.approx(0.5 * 20 * 4 * 300, rel=0.01)


def test_requests_over_the_capacity_are_avoidable_failures() -> None:
    outcome = play(Scenario(700, 3, (Stuck(600, 1, part=1.0),)), TRIAL)
    assert outcome.requests.too_many == pytest.approx((30 - 25) * 45, rel=0.05)


# -- weights: the same fleets, seeds and troubles with and without them ----------------------------------------------

LOAD = RequestLoad(20)
STUCK = Scenario(7 * 60, 20, (Stuck(60, 4, part=0.8),), LOAD)


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
