"""Holds: for whom they are, until when, and what ends them."""

from __future__ import annotations

import pytest

from harness.fleet_model import TERMS, FleetModel, draft_of, fleet_of_size, names, word
from sidecar.core.fleet import gates, hold
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S, Denied, Granted, Hold

SERVICE = HoldRow("ann", "deploy", 100, 100)
ONE = HoldRow("bob", "look", 50, 250)


@pytest.mark.parametrize(
    ("instance", "now_us", "shown", "wait_us"),
    [
        ("one", 150, Hold("ann", "deploy", 0.0002), 50),
        ("two", 150, Hold("ann", "deploy", 0.0002), 50),
        ("two", 199, Hold("ann", "deploy", 0.0002), 1),
        ("two", 200, None, 0),
        ("one", 200, Hold("bob", "look", 0.0003, "one"), 100),
        ("one", 300, None, 0),
    ],
    ids=["the service's first", "of everybody", "to the last", "no longer", "its own outlives it", "both are over"],
)
def test_hold_refuses_until_it_is_over(instance: str, now_us: int, shown: Hold | None, wait_us: int) -> None:
    draft = draft_of(View(now_us, holds={"": SERVICE, "one": ONE}))
    found = hold.in_force(draft, instance)
    assert (hold.shown(*found) if found else None) == shown
    assert gates.by_hold(draft, instance) == (GateRefusal("hold", wait_us) if shown else None)


def held() -> FleetModel:
    it = fleet_of_size(10)
    assert it.hold() == Hold("ada", "look", it.now_us / US_PER_S + 60)
    return it


def test_hold_is_in_the_refusal_and_in_the_fleet_and_ends_by_itself() -> None:
    it = held()
    it.advance_beating(59, *names(10))
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    assert (answer.reason, answer.retry_after_s, answer.hold) == ("hold", 1, it.fleet().hold)
    it.advance(1)
    assert word(it.claim("c00")) == "granted"
    it.advance_beating(620, *names(10)[1:])
    assert not it.kept.holds


def test_hold_of_one_instance_leaves_the_others_alone() -> None:
    it = fleet_of_size(10)
    it.hold("c00")
    assert [word(it.claim(name)) for name in ("c00", "c01")] == ["hold", "granted"]
    assert [it.release(""), it.release("c00"), it.release("c00")] == [False, True, False]
    assert word(it.claim("c00", "disk")) == "granted"


def test_newer_hold_takes_the_place_of_the_one_before() -> None:
    it = held()
    it.hold(for_s=5)
    it.advance(5)
    assert it.fleet().hold is None


def test_nobody_goes_down_by_a_replay_or_a_lease_under_a_hold() -> None:
    it = fleet_of_size(10)
    assert [word(it.claim("c00")), word(it.retire("c01"))] == ["granted", "granted"]
    it.hold()
    assert [word(it.claim("c00")), word(it.retire("c01"))] == ["hold", "hold"]
    assert it.release()
    replays = [it.claim("c00"), it.retire("c01")]
    assert [isinstance(answer, Granted) and answer.replayed for answer in replays] == [True, True]


def test_end_of_a_hold_is_remembered_for_a_window_and_then_nothing() -> None:
    it = held()
    it.release()
    row = HoldRow.load(it.kept.holds[""])
    assert row == HoldRow("", "", it.now_us, 0)
    it.beat_all(*names(10))
    it.claim_and_go_down("c09")
    it.advance_beating(TERMS.window_us / US_PER_S + 10, *names(9))
    assert not it.kept.holds
