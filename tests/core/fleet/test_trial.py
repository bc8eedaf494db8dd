"""The trial: what the outcomes of culls teach, and that what they earned holds for an episode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, draft_of, fleet_of_size, names, word
from sidecar.core.claims import MANUAL, Claim, Presence
from sidecar.core.fleet import trial
from sidecar.core.fleet.draft import HOUR_US, Draft
from sidecar.core.fleet.records import Cull, FleetState, Trial
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
WINDOW_US = TERMS.window_us
BEAT_US = TERMS.beat_us


def draft(trials: dict[str, Trial]) -> Draft:
    return draft_of(View(NOW, FleetState(trials=trials)))


BEGAN = NOW - 200 * S
PAUSED = Trial(1, 1, NOW - S, WINDOW_US, NOW - S)


def test_limit_doubles_with_each_that_helped_up_to_the_budget() -> None:
    it, limits = draft({"redis": Trial(began_us=BEGAN)}), []
    for _ in range(6):
        trial.helped(it, Cull("id", "0", "redis", NOW - 100 * S))
        limits.append(it.trial("redis"))
    assert limits == [Trial(limit, last_us=NOW, began_us=BEGAN) for limit in (2, 4, 8, 10, 10, 10)]


@pytest.mark.parametrize("began_us", [NOW - 99 * S, 0], ids=["of an earlier episode", "between episodes"])
def test_cull_earns_nothing_for_another_episode(began_us: int) -> None:
    before = Trial(1, 2, NOW - S, 2 * WINDOW_US, began_us=began_us)
    it = draft({"redis": before})
    trial.helped(it, Cull("id", "0", "redis", NOW - 100 * S))
    assert it.trial("redis") == replace(before, last_us=NOW)


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_day() -> None:
    it, pauses = draft({"redis": Trial(8)}), []
    for at_us in range(10):
        it.now_us = NOW + at_us * 24 * HOUR_US
        trial.failed(it, Cull("id", "0", "redis", it.now_us))
        found = it.trial("redis")
        assert (found.limit, found.paused_us, found.last_us) == (1, it.now_us, it.now_us)
        pauses.append(found.pause_us // WINDOW_US)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 144, 144]


@pytest.mark.parametrize(
    ("before", "age_us", "paused_for_us"),
    [
        pytest.param(Trial(), 100 * S, WINDOW_US - 100 * S, id="unproven"),
        pytest.param(Trial(), WINDOW_US, 0, id="a window old"),
        pytest.param(Trial(), 2 * WINDOW_US, 0, id="older"),
        pytest.param(Trial(1, 2, NOW - S, 2 * WINDOW_US), 100 * S, 2 * WINDOW_US - S, id="a longer pause stays"),
        pytest.param(Trial(4), 100 * S, 0, id="proven"),
    ],
)
def test_cull_that_told_nothing_pauses_an_unproven_cause_until_a_window_after_it(
    before: Trial, age_us: int, paused_for_us: int
) -> None:
    it = draft({"redis": before})
    trial.unclear(it, Cull("id", "0", "redis", NOW - age_us))
    found = it.trial("redis")
    assert found.pause_left_us(NOW) == paused_for_us
    assert (found.limit, found.failures) == (before.limit, before.failures)


def test_failure_of_a_cull_from_before_the_pause_does_not_make_it_longer() -> None:
    it = draft({"redis": PAUSED})
    trial.failed(it, Cull("id", "0", "redis", NOW - 100 * S))
    assert it.trial("redis") == replace(PAUSED, last_us=NOW)


def test_orders_of_people_teach_nothing() -> None:
    it = draft({})
    order = Cull("id", "0", MANUAL, NOW)
    trial.culled(it, MANUAL)
    trial.helped(it, order)
    trial.failed(it, order)
    trial.unclear(it, order)
    assert it.trials == {}


def test_beyond_twenty_causes_all_are_one_and_an_order_is_still_an_order() -> None:
    it = draft({f"c{number}": Trial() for number in range(20)})
    assert [trial.name(it, cause) for cause in ("c0", "new", "newer", MANUAL)] == ["c0", "other", "other", MANUAL]
    assert trial.name(draft({}), "new") == "new"


# -- over time ------------------------------------------------------------------------------------------------


def test_release_forgives_what_is_paused_and_takes_nothing_from_what_is_proven() -> None:
    it = fleet_of_size(10, replace(TERMS, min_healthy="1"))
    it.claim_and_go_down("c00")
    it.advance_beating(30, *names(10)[1:])
    it.replaced("c00", Presence.SUSPECT)
    assert (it.fleet().paused, word(it.claim("c01"))) == (("redis",), "paused")
    it.beat("c09", Presence.SUSPECT, "disk")
    it.kept.state = replace(it.state, trials={**it.state.trials, "disk": Trial(8, began_us=it.now_us)})
    assert it.release("c01") is False
    assert it.fleet().paused == ("redis",)
    assert it.release() is False
    assert it.fleet().paused == ()
    assert it.state.trials["disk"].limit == 8
    assert word(it.claim("c01")) == "granted"
    it.beat("c01", Presence.DOWN)
    it.replaced("c01", Presence.SUSPECT)
    again = it.state.trials["redis"]
    assert again == Trial(1, 1, it.now_us, WINDOW_US, it.now_us, again.began_us)


def test_cause_is_not_forgotten_while_a_container_that_was_culled_for_it_is_still_down() -> None:
    it = fleet_of_size(10)
    it.claim_and_go_down("c00")
    for _ in range(150):
        it.advance_beating(30, *names(10)[1:4])
        it.beat("c00", Presence.DOWN)
    assert it.fleet().trials[0][:3] == ("redis", 1, 1)
    it.beat_all(*names(10)[1:])
    before = it.kept.reads
    it.advance_beating(60, *names(10)[1:])
    assert it.kept.reads - before <= 1  # nobody has to look after it with every beat


# -- episodes ---------------------------------------------------------------------------------------------------------

LIMITED = replace(TERMS, error_limit=5, min_healthy="1")
PROBATION_US = TERMS.probation_us
EARNED = Trial(8, last_us=NOW - S, began_us=NOW - 300 * S)


def noticed(
    before: Trial, *, suspects: int = 1, median: int = 0, majority_us: int = 0, claim: str = "", alive: int = 12
) -> Trial:
    """The trial of ``redis`` after a look at a fleet of ``alive`` members."""
    state = FleetState(trials={"redis": before}, majority_us=majority_us)
    causes = {"redis": suspects} if suspects else {}
    view = View(NOW, state, alive=alive, causes=causes, median_errors=median)
    it = draft_of(view, LIMITED, asked=Claim("id", "c00", "0", claim) if claim else None)
    trial.notice(it)
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
    assert trial.is_due(FleetState(majority_us=noted_us), {}, NOW, is_sick=True)
    assert not trial.is_due(FleetState(majority_us=noted_us), {}, NOW, is_sick=False)
    assert not trial.is_due(FleetState(majority_us=NOW - 9 * S), {}, NOW, is_sick=True)


@pytest.mark.parametrize(
    ("record", "suspects", "is_due"),
    [
        (EARNED, 1, False),
        (EARNED, 0, True),
        (replace(EARNED, quiet_us=NOW), 0, False),
        (replace(EARNED, quiet_us=NOW), 1, True),
        (BETWEEN, 0, False),
        (BETWEEN, 1, True),
    ],
)
def test_beat_shows_what_the_record_lacks(record: Trial, suspects: int, *, is_due: bool) -> None:
    causes = {"redis": suspects} if suspects else {}
    assert trial.is_due(FleetState(trials={"redis": record}), causes, NOW, is_sick=False) is is_due
