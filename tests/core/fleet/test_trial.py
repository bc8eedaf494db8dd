"""The trial: how many culls for one cause may be without an outcome, and what the outcomes teach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, RuleFleet, draft_of, fleet_of_size, names, word
from sidecar.core.claims import MANUAL, CauseTrial, Presence
from sidecar.core.fleet import gates, trial
from sidecar.core.fleet.draft import HOUR_US, Draft
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import Cull, FleetState, Trial
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
WINDOW_US = TERMS.window_us
BEAT_US = TERMS.beat_us
SPARE = replace(TERMS, min_healthy="1")


def draft(trials: dict[str, Trial], out: dict[str, str] | None = None, *, is_on: bool = True) -> Draft:
    """``out``: causes of culls by instance."""
    culls = {name: Cull(name, "0", cause, NOW - S) for name, cause in (out or {}).items()}
    culls["lease"] = Cull("lease", "0", "redis", NOW - S, is_lease=True)
    culls["over"] = Cull("over", "0", "redis", NOW - S, "over")
    return draft_of(View(NOW, FleetState(trials=trials), culls=culls), replace(TERMS, trial=is_on))


BEGAN = NOW - 200 * S
PAUSED = Trial(1, 1, NOW - S, WINDOW_US, NOW - S)
PROVEN = Trial(2)


@pytest.mark.parametrize(
    ("trials", "out", "refusal"),
    [
        pytest.param({}, {}, None, id="nothing is known"),
        pytest.param({}, {"a": "redis"}, GateRefusal("trial", BEAT_US), id="one is out"),
        pytest.param(
            {"redis": Trial(4)}, {"a": "redis", "b": "redis", "c": "redis"}, None, id="fewer than the limit are out"
        ),
        pytest.param(
            {"redis": Trial(2)}, {"a": "redis", "b": "redis"}, GateRefusal("trial", BEAT_US), id="as many as the limit"
        ),
        pytest.param({"redis": PAUSED}, {}, GateRefusal("paused", WINDOW_US - S), id="paused"),
        pytest.param(
            {"redis": PAUSED}, {"a": "redis"}, GateRefusal("paused", WINDOW_US - S), id="paused before anything"
        ),
        pytest.param({"redis": replace(PAUSED, paused_us=NOW - WINDOW_US)}, {}, None, id="the pause is over"),
        pytest.param({}, {"a": "disk"}, None, id="one other cause is tried"),
        pytest.param({}, {"a": "disk", "b": "net"}, GateRefusal("causes", BEAT_US), id="two others are"),
        pytest.param({"redis": PROVEN}, {"a": "disk", "b": "net"}, None, id="two others are, and this one is proven"),
        pytest.param({"disk": PROVEN}, {"a": "disk", "b": "net"}, None, id="one of the others is proven"),
        pytest.param({}, {"a": "disk", "b": MANUAL}, None, id="orders of people are no trials"),
        pytest.param({}, {"a": "disk", "b": "disk", "c": "disk"}, None, id="one cause that has several out"),
    ],
)
def test_cull_waits_for_the_outcomes_of_its_cause(
    trials: dict[str, Trial], out: dict[str, str], refusal: GateRefusal | None
) -> None:
    assert gates.by_trial(draft(trials, out), "redis") == refusal
    assert gates.by_trial(draft(trials, out), MANUAL) is None
    assert gates.by_trial(draft(trials, out, is_on=False), "redis") is None


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


def shown(it: RuleFleet) -> CauseTrial:
    (found,) = it.fleet().trials
    return found


def failed_trial() -> RuleFleet:
    it = fleet_of_size(10, SPARE)
    it.claim_and_go_down("c00")
    it.advance_beating(30, *names(10)[1:])
    it.replaced("c00", Presence.SUSPECT)
    return it


def test_release_forgives_what_is_paused_and_takes_nothing_from_what_is_proven() -> None:
    it = failed_trial()
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
    assert shown(it)[:3] == ("redis", 1, 1)
    it.beat_all(*names(10)[1:])
    before = it.kept.reads
    it.advance_beating(60, *names(10)[1:])
    assert it.kept.reads - before <= 1  # nobody has to look after it with every beat
