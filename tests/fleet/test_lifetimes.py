"""Retirement: how many are down at once, when all are replaced, which wait, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from math import inf

import pytest

from fleet.ageing import Busy, Freeze, Kills, Mute
from fleet.day_outcome import DayOutcome
from fleet.incidents import Flapping, Leak, Outage, Poison
from fleet.rules import NO_CULLING, OURS, REPLACE_S, FleetRules, rotation_s
from fleet.small import ASK_S, FEW, HOUR_S, ON_THE_WAY_S, PATIENCE_S, PATIENT, SHORT_S, YOUNG, aging, fleet, played
from fleet.world import RESTARTING
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.types import State

JITTER = OURS.policy.lifetime_jitter
AGED_S = SHORT_S * (1 - JITTER) - 60
"""An age at which the first retirement may be due in a minute; a small fleet takes a quarter of an hour."""

SIZE = 40

once = cache(played)
"""Several tests use the same run."""


def latest_s(rules: FleetRules, apps: int, lifetime_s: float) -> float:
    """The computed age by which all containers with this lifetime are retired."""
    return lifetime_s * (1 + JITTER) + rotation_s(rules.policy, apps)


def retired_within(of: DayOutcome, first_s: float, last_s: float) -> int:
    return sum(first_s < one.at_s < last_s for one in of.retirements)


# -- a fleet that was started together ------------------------------------------------------------------------------

UP_TO = {"1": 1, "3": 3, "50p": SIZE // 20}


@pytest.mark.parametrize(
    "slots",
    ["3", pytest.param("1", marks=pytest.mark.site), pytest.param("50p", marks=pytest.mark.site, id="5 percent")],
)
def test_fleet_started_together_is_retired_within_the_computed_time_with_at_most_k_at_once(slots: str) -> None:
    rules = aging(slots)
    first_s, last_s = SHORT_S * (1 - JITTER), latest_s(rules, SIZE, SHORT_S)
    world = fleet(rules, size=SIZE, aged_s=first_s - 60)
    while len(world.departures.retirements) < SIZE and world.loop.now < last_s - first_s + 60:
        world.run(world.loop.now + 60)
    of = DayOutcome.of(world)
    assert sorted(one.place for one in of.retirements) == list(range(SIZE))
    assert of.retirements[0].age_s >= first_s
    assert of.retirements[-1].age_s <= last_s
    assert 1 <= of.most_leases <= UP_TO[slots]
    assert of.most_out == of.most_retired == of.most_leases
    assert of.culls == ()


@pytest.mark.parametrize("slots", ["1", "3", "50p"])
def test_warning_uses_the_computed_time(slots: str) -> None:
    needed_s = rotation_s(aging(slots).policy, SIZE)
    assert RotationPlan(needed_s, Share.load(slots), REPLACE_S).shortfall(SIZE)
    assert not RotationPlan(needed_s + 1, Share.load(slots), REPLACE_S).shortfall(SIZE)


def test_ages_grow_when_the_lifetime_is_too_short_with_at_most_k_at_once() -> None:
    lifetime_s, until_s = SHORT_S / 20, HOUR_S / 2
    of = once(aging("1", lifetime_s), until_s=until_s)
    assert RotationPlan(lifetime_s, Share(1), REPLACE_S).shortfall(FEW)
    ages = [one.age_s for one in of.retirements[FEW:]]
    assert sum(ages) / len(ages) > 2 * lifetime_s
    assert of.most_out == of.most_retired == of.most_leases == 1
    assert len(of.retirements) >= (until_s - (1 + JITTER) * lifetime_s) / REPLACE_S


@pytest.mark.site
def test_slot_is_used_until_the_replacement_is_healthy() -> None:
    grace_s = 60.0
    of = once(replace(YOUNG, policy=replace(YOUNG.policy, grace_s=grace_s)), aged_s=AGED_S)
    assert {one.place for one in of.retirements} == set(range(FEW))
    least_s = OURS.policy.drain_s + RESTARTING.after_s[0] + grace_s
    assert all(after.at_s - one.at_s >= least_s for one, after in pairwise(of.retirements))


# -- the busy -------------------------------------------------------------------------------------------------------

BUSY = 3


@pytest.mark.site
def test_busy_containers_are_retired_last_and_by_their_longest_lifetime() -> None:
    of = once(PATIENT, Busy(BUSY, inf), until_s=2.5 * HOUR_S)
    first = [one for one in of.retirements if one.life == 0]
    idle, busy = first[: FEW - BUSY], first[FEW - BUSY :]
    assert [one.load for one in first] == [0] * (FEW - BUSY) + [1] * BUSY
    assert max(one.age_s for one in idle) <= latest_s(PATIENT, FEW - BUSY, SHORT_S)
    assert min(one.age_s for one in busy) >= PATIENCE_S * (1 - JITTER)
    assert max(one.age_s for one in busy) <= latest_s(PATIENT, BUSY, PATIENCE_S)


@pytest.mark.site
def test_busy_are_retired_once_they_have_become_idle() -> None:
    until_s = 1.5 * SHORT_S
    of = once(PATIENT, Busy(BUSY, until_s))
    last = [one.at_s for one in of.retirements[FEW - BUSY : FEW]]
    assert min(last) >= until_s
    assert max(last) <= until_s + OURS.policy.check_interval_s + ASK_S + rotation_s(PATIENT.policy, BUSY)


@pytest.mark.site
def test_load_up_to_the_setting_is_not_busy() -> None:
    marked = replace(PATIENT, policy=replace(PATIENT.policy, busy_load=1.0))
    of = once(marked, Busy(FEW, inf, load=1.0))
    assert max(one.age_s for one in of.retirements) <= latest_s(marked, FEW, SHORT_S)


# -- leaks ------------------------------------------------------------------------------------------------

LEAK = Leak(2 * SHORT_S)


@pytest.mark.site
def test_leak_fails_no_request_when_incarnations_end_before_it() -> None:
    of = once(YOUNG, LEAK, until_s=4 * HOUR_S)
    assert latest_s(YOUNG, FEW, SHORT_S) < LEAK.from_s
    assert of.avoidable == 0
    assert of.culls == ()
    assert of.oldest_s < LEAK.from_s


@pytest.mark.site
def test_leak_fails_requests_and_costs_tokens_without_retirement() -> None:
    of = once(OURS, LEAK, until_s=4 * HOUR_S)
    assert of.avoidable > 100
    assert len(of.culls) >= FEW


@pytest.mark.site
def test_leak_makes_all_stuck_without_culls() -> None:
    assert once(NO_CULLING, LEAK, until_s=4 * HOUR_S).stuck == FEW


@pytest.mark.parametrize(
    ("rules", "stuck"),
    [pytest.param(OURS, 3, id="culls alone", marks=pytest.mark.site), pytest.param(YOUNG, 0, id="retirement")],
)
def test_unreported_stuck_state_ends_with_the_lifetime(rules: FleetRules, stuck: int) -> None:
    of = once(rules, Mute(600, 3))
    assert of.culls == ()
    assert of.stuck == stuck
    assert of.recovered.get("mute", 0) <= latest_s(YOUNG, FEW, SHORT_S)


# -- precedence -----------------------------------------------------------------------------------------------

FROM_S, FOR_S = 300.0, 600.0
"""During the retirements."""

AFTERWARDS_S = OURS.terms.probation_us / 1e6 + 60
"""Until the window is empty and the incident is over."""


@pytest.mark.parametrize(
    ("trouble", "notice_s", "word", "afterwards_s"),
    [
        pytest.param(Outage(FROM_S, FOR_S, part=0.05), 15.0, "culls", AFTERWARDS_S, marks=pytest.mark.site),
        (Freeze(FROM_S, FOR_S), ON_THE_WAY_S, "hold", 0),
    ],
    ids=["outage", "hold"],
)
def test_no_container_is_retired_meanwhile_and_all_are_soon_after(
    trouble: Outage | Freeze, notice_s: float, word: str, afterwards_s: float
) -> None:
    of = once(YOUNG, trouble, aged_s=1.2 * SHORT_S, until_s=HOUR_S)
    over_s = FROM_S + FOR_S
    first = replace(of, retirements=tuple(one for one in of.retirements if one.life == 0))
    before, after = retired_within(first, 0, FROM_S + notice_s), retired_within(first, over_s, HOUR_S)
    assert before > 0
    assert before + after == len(first.retirements)
    assert of.refusals[word] > 0
    assert {one.place for one in first.retirements} | {cull.place for cull in of.culls} == set(range(FEW))
    queue_s = rotation_s(YOUNG.policy, after)
    assert first.retirements[-1].at_s <= over_s + afterwards_s + ASK_S + queue_s


@pytest.mark.parametrize(
    "capacity", [pytest.param(10, id="tokens enough", marks=pytest.mark.site), pytest.param(2, id="tokens short")]
)
def test_no_container_is_retired_while_a_suspect_waits_for_its_cull(capacity: int) -> None:
    rules = aging("2", SHORT_S, terms=replace(OURS.terms, capacity=str(capacity)))
    of = once(rules, Poison(60, count=6, every_s=70), aged_s=1.2 * SHORT_S, until_s=HOUR_S)
    assert len(of.culls) in (5, 6), "the lifetime of one may end first"
    assert len(of.retirements) >= FEW - 6
    assert of.refusals["culls"] > 0
    for cull in of.culls:
        assert not retired_within(of, cull.at_s - cull.after_s + ON_THE_WAY_S, cull.at_s)


# -- the floor ------------------------------------------------------------------------------------------------------

BAD_HOURS = (
    Outage(60, 30, stuck=15),
    Poison(400, count=12, every_s=120),
    Flapping(600, 2400, 6),
    Outage(2400, 120),
    Kills(0, count=100, every_s=30),
)


@pytest.mark.site
def test_culls_and_retirements_together_never_cross_the_floor() -> None:
    """With lost replies and killed sidecars."""
    terms = replace(OURS.terms, capacity="30", min_healthy="900p")
    of = played(aging("4", SHORT_S / 3, terms=terms), *BAD_HOURS, until_s=1800, size=40, lost=100)
    assert of.most_out <= 40 - 36
    assert of.most_leases <= 4
    assert of.refusals["floor"] > 0
    assert min(len(of.culls), len(of.retirements)) > 10


# -- the laboratory itself ------------------------------------------------------------------------------------------


def test_same_seed_gives_the_same_run() -> None:
    again = partial(played, aging("4", SHORT_S / 3), *BAD_HOURS, until_s=HOUR_S / 20, seed=7, size=16, lost=50)
    assert again() == again()


def test_restarted_sidecar_knows_the_age() -> None:
    world = fleet(aging("1"), size=3)
    world.run(100)
    world.kill(0, 10)
    assert world.watched(list(State)) == [1, 2]
    world.run(200)
    assert world.watched([State.UP]) == [0, 1, 2]
    ages = [one.clock() - one.controller.container.born for one in world._sidecars.values()]
    assert ages == pytest.approx([200, 200, 200])
