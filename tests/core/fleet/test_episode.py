"""Episodes: what culls earned holds until their cause has no suspect, or until something happens to all containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, draft_of
from sidecar.core.claims import Claim
from sidecar.core.fleet import trial as trials
from sidecar.core.fleet.records import FleetState, Trial
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S

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
        pytest.param(EARNED, 1, EARNED, id="it has suspects"),
        pytest.param(EARNED, 0, replace(EARNED, quiet_us=NOW), id="the last suspect is gone"),
        pytest.param(
            replace(EARNED, quiet_us=NOW - PROBATION_US + 1),
            0,
            replace(EARNED, quiet_us=NOW - PROBATION_US + 1),
            id="not yet for a probation",
        ),
        pytest.param(replace(EARNED, quiet_us=NOW - PROBATION_US), 0, BETWEEN, id="for a probation"),
        pytest.param(replace(EARNED, quiet_us=NOW - PROBATION_US + 1), 1, EARNED, id="suspects again in time"),
        pytest.param(replace(EARNED, quiet_us=NOW - PROBATION_US), 1, AGAIN, id="suspects again too late"),
        pytest.param(BETWEEN, 0, BETWEEN, id="between episodes"),
        pytest.param(BETWEEN, 1, AGAIN, id="the next episode begins"),
        pytest.param(Trial(8), 1, Trial(1, began_us=NOW), id="a record of an earlier version"),
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
        pytest.param(5, 1, 0, True, id="the median has reached the limit"),
        pytest.param(4, 1, 0, False, id="it has not"),
        pytest.param(-1, 1, 0, False, id="nobody knows it"),
        pytest.param(0, 6, 0, True, id="half are suspect, as without heartbeats"),
        pytest.param(0, 5, 0, False, id="fewer are"),
        pytest.param(5, 1, NOW - 61 * S, True, id="after more than a minute below it"),
        pytest.param(5, 1, NOW - 60 * S, False, id="after a minute"),
        pytest.param(5, 12, NOW - 5 * S, False, id="it goes on"),
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
