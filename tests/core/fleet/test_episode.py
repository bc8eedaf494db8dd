"""Episodes: what culls earned holds until their cause has no suspect, or until something happens to all containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, RuleFleet, draft_of, fleet_of_size, names, word
from sidecar.core.fleet import trial as trials
from sidecar.core.fleet.records import FleetState, Trial
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S, Claim, Denied, Granted, Presence

S = US_PER_S
NOW = START_US
LIMITED = replace(TERMS, error_limit=5, min_healthy="1")
PROBATION_US = TERMS.probation_us
EARNED = Trial(8, last_us=NOW - S, began_us=NOW - 300 * S)


def noticed(
    trial: Trial, *, suspects: int = 1, median: int = 0, majority_us: int = 0, claim: str = "", alive: int = 12
) -> Trial:
    """The trial of ``redis`` after a look at a fleet of ``alive`` members."""
    state = FleetState(trials={"redis": trial}, majority_us=majority_us)
    causes = {"redis": suspects} if suspects else {}
    view = View(NOW, state, alive=alive, causes=causes, median_errors=median)
    it = draft_of(view, LIMITED, asked=Claim("id", "c00", "0", claim) if claim else None)
    trials.notice(it)
    return it.trials["redis"]


AGAIN = replace(EARNED, limit=1, began_us=NOW)
BETWEEN = replace(EARNED, limit=1, began_us=0)


@pytest.mark.parametrize(
    ("before", "suspects", "after"),
    [
        (EARNED, 1, EARNED),
        (EARNED, 0, replace(EARNED, quiet_us=NOW)),
        (replace(EARNED, quiet_us=NOW - PROBATION_US + 1), 0, replace(EARNED, quiet_us=NOW - PROBATION_US + 1)),
        (replace(EARNED, quiet_us=NOW - PROBATION_US), 0, BETWEEN),
        (replace(EARNED, quiet_us=NOW - PROBATION_US + 1), 1, EARNED),
        (replace(EARNED, quiet_us=NOW - PROBATION_US), 1, AGAIN),
        (BETWEEN, 0, BETWEEN),
        (BETWEEN, 1, AGAIN),
        (Trial(8), 1, Trial(1, began_us=NOW)),
    ],
    ids=[
        "it has suspects",
        "the last suspect is gone",
        "not yet for a probation",
        "for a probation",
        "suspects again in time",
        "suspects again too late",
        "between episodes",
        "the next episode begins",
        "a record of an earlier version",
    ],
)
def test_episode_ends_when_its_cause_had_no_suspect_for_a_probation(before: Trial, suspects: int, after: Trial) -> None:
    assert noticed(before, suspects=suspects) == after


def test_claim_is_a_suspect_of_its_cause() -> None:
    assert noticed(EARNED, suspects=0, claim="redis") == EARNED
    assert noticed(EARNED, suspects=0, claim="disk").quiet_us == NOW


@pytest.mark.parametrize(
    ("median", "suspects", "majority_us", "is_another"),
    [
        (5, 1, 0, True),
        (4, 1, 0, False),
        (-1, 1, 0, False),
        (0, 6, 0, True),
        (0, 5, 0, False),
        (5, 1, NOW - 61 * S, True),
        (5, 1, NOW - 60 * S, False),
        (5, 12, NOW - 5 * S, False),
    ],
    ids=[
        "the median has reached the limit",
        "it has not",
        "nobody knows it",
        "half are suspect, as without heartbeats",
        "fewer are",
        "after more than a minute below it",
        "after a minute",
        "it goes on",
    ],
)
def test_every_cause_begins_again_when_most_of_the_fleet_becomes_sick(
    median: int, suspects: int, majority_us: int, *, is_another: bool
) -> None:
    after = noticed(EARNED, suspects=suspects, median=median, majority_us=majority_us)
    assert after == (AGAIN if is_another else EARNED)


def test_pause_goes_on_in_the_next_episode() -> None:
    paused = Trial(1, 2, NOW - S, 1200 * S, NOW - S, NOW - 300 * S)
    assert noticed(paused, median=5) == replace(paused, began_us=NOW)


@pytest.mark.parametrize("noted_us", [NOW - 10 * S, NOW + S], ids=["old", "by a clock that has stepped back"])
def test_sickness_of_most_is_recorded_every_ten_seconds(noted_us: int) -> None:
    assert trials.is_due(FleetState(majority_us=noted_us), {}, NOW, is_sick=True)
    assert not trials.is_due(FleetState(majority_us=noted_us), {}, NOW, is_sick=False)
    assert not trials.is_due(FleetState(majority_us=NOW - 9 * S), {}, NOW, is_sick=True)


@pytest.mark.parametrize(
    ("trial", "suspects", "is_due"),
    [
        (EARNED, 1, False),
        (EARNED, 0, True),
        (replace(EARNED, quiet_us=NOW), 0, False),
        (replace(EARNED, quiet_us=NOW), 1, True),
        (BETWEEN, 0, False),
        (BETWEEN, 1, True),
    ],
)
def test_beat_shows_what_the_record_lacks(trial: Trial, suspects: int, *, is_due: bool) -> None:
    causes = {"redis": suspects} if suspects else {}
    assert trials.is_due(FleetState(trials={"redis": trial}), causes, NOW, is_sick=False) is is_due


# -- over time ------------------------------------------------------------------------------------------------------


def repaired(size: int = 12) -> RuleFleet:
    """A fleet in which two of four stuck containers were culled, each cull helped, and two are suspect still."""
    it = fleet_of_size(size, LIMITED)
    sick, well = ["c00", "c01", "c02", "c03"], names(size)[4:]
    for culled in ("c00", "c01"):
        it.beat_all(*sick, presence=Presence.SUSPECT)
        it.claim_and_go_down(culled)
        sick.remove(culled)
        it.advance(5)
        it.replaced(culled)
        well.append(culled)
        for _ in range(7):
            it.advance(10)
            it.beat_all(*sick, presence=Presence.SUSPECT)
            it.beat_all(*well)
    return it


def granted(it: RuleFleet, *instances: str) -> int:
    return sum(isinstance(it.claim(name), Granted) for name in instances)


def test_outage_after_the_repair_is_over_costs_one_container() -> None:
    it = repaired()
    it.beat_all(*names(12))
    it.advance_beating(70, *names(12))
    assert it.fleet().trials[0].limit == 1
    it.beat_all(*names(12), presence=Presence.SUSPECT)
    assert granted(it, *names(12)) == 1


def test_outcome_of_the_repair_that_comes_in_the_outage_earns_nothing() -> None:
    it = repaired()
    it.claim_and_go_down("c02")
    it.advance(5)
    it.replaced("c02")
    it.kept.median_errors = 5
    for _ in range(7):
        it.advance(10)
        it.beat_all("c02")
        it.beat_all(*names(12)[3:], "c00", "c01", presence=Presence.SUSPECT)
    assert it.outcomes() == (3, 0, 0)
    answers = [it.claim(name) for name in names(12)[3:]]
    assert [word(one) for one in answers if not isinstance(one, Denied)] == ["granted"]
