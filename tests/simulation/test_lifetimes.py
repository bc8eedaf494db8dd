"""Planned ends: how many are away at once, when all have gone, who waits, and what retirement gives way to."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from math import inf

import pytest

from sidecar.core.retirement import Plan
from sidecar.core.terms import Share
from sidecar.core.words import State
from simulation.ageing import Busy, Freeze, Kills, Leak, Mute
from simulation.departures import Retirement
from simulation.report import table
from simulation.rules import LIFETIME_S, NOBODY, OURS, REPLACE_S, Rules, aging, renewal_s
from simulation.scenarios import SIZE, Outcome, Scenario, outcome, play
from simulation.small import ASK_S, FEW, HOUR_S, ON_THE_WAY_S, PATIENCE_S, PATIENT, SHORT_S, YOUNG
from simulation.troubles import Flapping, Outage, Poison, Trouble
from simulation.world import RESTART_S, World

JITTER = OURS.policy.lifetime_jitter
AGED_S = SHORT_S * (1 - JITTER) - 60
"""So old is who may be due in a minute; those of a small fleet need a quarter of an hour to go."""

pytestmark = pytest.mark.timeout(240)
"""As in ``test_simulation.py``."""


@cache
def played(rules: Rules, *troubles: Trouble, until_s: float = 2 * HOUR_S, aged_s: float = 0.0) -> Outcome:
    return play(Scenario("few", until_s, troubles, aged_s=aged_s), rules, size=FEW)


def latest_s(rules: Rules, containers: int, lifetime_s: float) -> float:
    """The age by which all are retired that are due from this age on, by the numbers."""
    return lifetime_s * (1 + JITTER) + renewal_s(rules.policy, containers)


def retired_within(of: Outcome, first_s: float, last_s: float) -> int:
    return sum(first_s < one.at_s < last_s for one in of.retirements)


# -- a fleet that was started together ------------------------------------------------------------------------------

UP_TO = {"1": 1, "3": 3, "50p": SIZE // 20}


@pytest.mark.parametrize("slots", ["1", "3", "50p"], ids=["1", "3", "5 percent"])
def test_fleet_started_together_is_retired_within_the_computed_time_and_never_more_than_k_at_once(slots: str) -> None:
    rules = aging(slots)
    first_s, last_s = LIFETIME_S * (1 - JITTER), latest_s(rules, SIZE, LIFETIME_S)
    world = World(rules, size=SIZE, seed=1, aged_s=first_s - 60)
    while len(world.departures.retirements) < SIZE and world.timeline.now < last_s - first_s + 60:
        world.run(world.timeline.now + 60)
    of = outcome(world)
    assert sorted(one.place for one in of.retirements) == list(range(SIZE))
    assert of.retirements[0].age_s >= first_s
    assert of.retirements[-1].age_s <= last_s
    assert 1 <= of.most_leases <= UP_TO[slots]
    assert of.most_out == of.most_retired == of.most_leases
    assert of.culls == ()


@pytest.mark.parametrize("slots", ["1", "3", "50p"])
def test_computed_time_is_the_one_that_users_are_warned_by(slots: str) -> None:
    needed_s = renewal_s(aging(slots).policy, SIZE)
    assert Plan(needed_s, Share.read(slots), REPLACE_S).shortfall(SIZE)
    assert not Plan(needed_s + 1, Share.read(slots), REPLACE_S).shortfall(SIZE)


def test_ages_grow_where_the_numbers_do_not_add_up_and_still_no_more_than_k_are_away() -> None:
    lifetime_s, until_s = SHORT_S / 10, 2 * HOUR_S
    of = played(aging("1", lifetime_s), until_s=until_s)
    assert Plan(lifetime_s, Share(1), REPLACE_S).shortfall(FEW)
    ages = [one.age_s for one in of.retirements[FEW:]]
    assert sum(ages) / len(ages) > 2 * lifetime_s
    assert of.most_out == of.most_retired == of.most_leases == 1
    assert len(of.retirements) >= (until_s - (1 + JITTER) * lifetime_s) / REPLACE_S


def test_slot_is_taken_until_the_replacement_is_well() -> None:
    grace_s = 60.0
    of = played(replace(YOUNG, policy=replace(YOUNG.policy, grace_s=grace_s)), aged_s=AGED_S)
    assert {one.place for one in of.retirements} == set(range(FEW))
    least_s = OURS.policy.drain_s + RESTART_S[0] + grace_s
    assert all(after.at_s - one.at_s >= least_s for one, after in pairwise(of.retirements))


# -- the busy -------------------------------------------------------------------------------------------------------

BUSY = 5


def test_busy_are_retired_after_all_idle_and_not_after_their_longest_lifetime_and_a_queue() -> None:
    of = played(PATIENT, Busy(BUSY, inf), until_s=2.5 * HOUR_S)
    first = [one for one in of.retirements if one.life == 0]
    idle, busy = first[: FEW - BUSY], first[FEW - BUSY :]
    assert [one.load for one in first] == [0] * (FEW - BUSY) + [1] * BUSY
    assert max(one.age_s for one in idle) <= latest_s(PATIENT, FEW - BUSY, SHORT_S)
    assert min(one.age_s for one in busy) >= PATIENCE_S * (1 - JITTER)
    assert max(one.age_s for one in busy) <= latest_s(PATIENT, BUSY, PATIENCE_S)


def test_busy_are_retired_once_they_have_become_idle() -> None:
    until_s = 1.5 * SHORT_S
    of = played(PATIENT, Busy(BUSY, until_s))
    last = [one.at_s for one in of.retirements[FEW - BUSY : FEW]]
    assert min(last) >= until_s
    assert max(last) <= until_s + OURS.policy.check_interval_s + ASK_S + renewal_s(PATIENT.policy, BUSY)


def test_load_up_to_the_mark_makes_nobody_busy() -> None:
    marked = replace(PATIENT, policy=replace(PATIENT.policy, busy_above=1.0))
    of = played(marked, Busy(FEW, inf, load=1.0))
    assert max(one.age_s for one in of.retirements) <= latest_s(marked, FEW, SHORT_S)


# -- what age brings ------------------------------------------------------------------------------------------------

LEAK = Leak(2 * SHORT_S)


def test_leak_never_fails_a_request_where_lives_end_before_it_shows() -> None:
    of = played(YOUNG, LEAK, until_s=6 * HOUR_S)
    assert latest_s(YOUNG, FEW, SHORT_S) < LEAK.from_s
    assert of.avoidable == 0
    assert of.culls == ()
    assert of.oldest_s < LEAK.from_s


def test_leak_fails_requests_and_costs_tokens_where_nobody_is_retired() -> None:
    of = played(OURS, LEAK, until_s=6 * HOUR_S)
    assert of.avoidable > 100
    assert len(of.culls) >= FEW


def test_leak_ends_with_all_stuck_where_nobody_is_culled_either() -> None:
    assert played(NOBODY, LEAK, until_s=6 * HOUR_S).stuck == FEW


@pytest.mark.parametrize(("rules", "stuck"), [(OURS, 3), (YOUNG, 0)], ids=["culls alone", "retirement"])
def test_stuck_state_that_no_error_shows_ends_with_the_lifetime(rules: Rules, stuck: int) -> None:
    of = played(rules, Mute(600, 3))
    assert of.culls == ()
    assert of.stuck == stuck
    assert of.recovered.get("mute", 0) <= latest_s(YOUNG, FEW, SHORT_S)


# -- what comes first -----------------------------------------------------------------------------------------------

FROM_S, FOR_S = 300.0, 600.0
"""In the middle of the retirements."""

AFTERWARDS_S = OURS.terms.probation_us / 1e6 + 60
"""Until a window is empty and the incident over."""


@pytest.mark.parametrize(
    ("trouble", "notice_s", "word", "afterwards_s"),
    [(Outage(FROM_S, FOR_S), 2.0, "brake", AFTERWARDS_S), (Freeze(FROM_S, FOR_S), ON_THE_WAY_S, "hold", 0)],
    ids=["outage", "hold"],
)
def test_nobody_is_retired_meanwhile_and_all_are_soon_after(
    trouble: Outage | Freeze, notice_s: float, word: str, afterwards_s: float
) -> None:
    of = played(YOUNG, trouble, aged_s=AGED_S, until_s=HOUR_S)
    over_s = FROM_S + FOR_S
    before, after = retired_within(of, 0, FROM_S + notice_s), retired_within(of, over_s, HOUR_S)
    assert before > 0
    assert before + after == len(of.retirements)
    assert of.refusals[word] > 0
    assert {one.place for one in of.retirements} | {cull.place for cull in of.culls} == set(range(FEW))
    queue_s = renewal_s(YOUNG.policy, after)
    assert of.retirements[-1].at_s <= over_s + afterwards_s + ASK_S + queue_s


@pytest.mark.parametrize("capacity", [10, 2], ids=["tokens enough", "tokens short"])
def test_nobody_is_retired_while_a_lone_bad_one_waits_for_its_cull(capacity: int) -> None:
    rules = aging("2", SHORT_S, terms=replace(OURS.terms, capacity=Share(capacity)))
    of = played(rules, Poison(90, count=6, every_s=70), aged_s=AGED_S, until_s=HOUR_S)
    assert len(of.culls) == 6
    assert len(of.retirements) >= FEW - 6
    assert of.refusals["culls"] > 0
    for cull in of.culls:
        assert not retired_within(of, cull.at_s - cull.after_s + ON_THE_WAY_S, cull.at_s)


# -- the floor ------------------------------------------------------------------------------------------------------

BAD_HOURS = Scenario(
    "bad hours",
    1.5 * HOUR_S,
    (
        Outage(60, 30, stuck=15),
        Poison(400, count=12, every_s=120),
        Flapping(600, 3000, 6),
        Outage(2400, 120),
        Kills(0, count=180, every_s=30),
    ),
)


@pytest.mark.parametrize("seed", range(1, 5))
def test_culls_and_retirements_together_never_cross_the_floor(seed: int) -> None:
    """Though replies get lost, and sidecars killed."""
    terms = replace(OURS.terms, capacity=Share(30), min_healthy=Share(900, is_part=True))
    of = play(BAD_HOURS, aging("4", SHORT_S / 3, terms=terms), seed=seed, size=40, lost=100)
    assert of.most_out <= 40 - 36
    assert of.most_missing <= 40 - 36
    assert of.most_leases <= 4
    assert of.refusals["floor"] > 0
    assert of.denials["floor"] > 0
    assert min(len(of.culls), len(of.retirements)) > 10


# -- the simulation itself ------------------------------------------------------------------------------------------


def test_same_seed_gives_the_same_hours() -> None:
    again = partial(play, BAD_HOURS, aging("4", SHORT_S / 3), seed=7, size=20, lost=50)
    assert again() == again()


def test_killed_sidecar_knows_its_age_when_it_is_back() -> None:
    world = World(aging("1"), size=3, seed=1)
    world.run(100)
    world.kill(0, 10)
    assert world.watched(list(State)) == [1, 2]
    world.run(200)
    assert world.watched([State.UP]) == [0, 1, 2]
    assert [sidecar.standing.born for sidecar in world._sidecars.values()] == [0, 0, 0]


def test_table_tells_of_planned_ends_where_there_are_any() -> None:
    scenario = Scenario("few", 60, (), (NOBODY, PATIENT))
    ends = tuple(
        Retirement(60, place, 0, age_s, load) for place, age_s, load in [(0, 3600, 0), (1, 7200, 1), (2, 9000, 1)]
    )
    of = replace(played(PATIENT, until_s=60), retirements=ends, most_retired=2)
    lines = [line.split("|") for line in table(scenario, [played(NOBODY, until_s=60), of]).splitlines()]
    rows = {name.strip(): (nobody.strip(), ours.strip()) for _, name, nobody, ours, _ in lines}
    assert rows["retirements"] == ("", "3")
    assert rows["most away for their age"] == ("", "2")
    assert rows["retiring all by the numbers"] == ("", "20.0 min")
    assert rows["idle ones retired at age"] == ("", "1.0 - 1.0 h")
    assert rows["busy ones retired at age"] == ("", "2.0 - 2.5 h")


def test_busy_of_two_hundred_that_were_started_together_are_retired_later_and_within_the_computed_time() -> None:
    busy, patience_s = SIZE // 5, 8 * HOUR_S
    rules = aging("50p", patience_s=patience_s)
    first_s, last_s = LIFETIME_S * (1 - JITTER), latest_s(rules, busy, patience_s)
    world = World(rules, size=SIZE, seed=1, aged_s=first_s - 60)
    Busy(busy, inf).plan(world)
    while len(world.departures.retirements) < SIZE and world.timeline.now < last_s - first_s + 60:
        world.run(world.timeline.now + 60)
    of = outcome(world)
    assert sorted(one.place for one in of.retirements) == list(range(SIZE))
    assert [one.load for one in of.retirements] == [0] * (SIZE - busy) + [1] * busy
    assert of.retirements[SIZE - busy - 1].age_s <= latest_s(rules, SIZE - busy, LIFETIME_S)
    assert of.retirements[SIZE - busy].age_s >= patience_s * (1 - JITTER)
    assert of.retirements[-1].age_s <= last_s
    assert of.most_out == of.most_retired == of.most_leases <= UP_TO["50p"]
    assert of.culls == ()
