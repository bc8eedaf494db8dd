"""Retirements: the slots, whose they are, and that culls come first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, RuleFleet, draft_of, fleet_of_size, names, word
from sidecar.core.claims import Granted, LeaseRequest, Presence
from sidecar.core.fleet import gates
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import FleetState, Slot, Trial
from sidecar.core.fleet.view import View

NOW = START_US
BEAT_US = TERMS.beat_us
LIVE = Slot("h", "0", NOW - 100, 200)
PAUSED = Trial(1, 1, NOW - 1, TERMS.window_us)


@pytest.mark.parametrize(
    ("causes", "trials", "is_pending"),
    [
        pytest.param({}, {}, False, id="all are well"),
        pytest.param({"redis": 1}, {}, True, id="a suspect"),
        pytest.param({"redis": 0}, {}, False, id="none any more"),
        pytest.param({"redis": 9}, {"redis": PAUSED}, False, id="its culls are paused"),
        pytest.param({"redis": 9, "disk": 1}, {"redis": PAUSED}, True, id="but not those of another"),
        pytest.param({"redis": 9}, {"redis": replace(PAUSED, paused_us=NOW - TERMS.window_us)}, True, id="no longer"),
    ],
)
def test_retirement_waits_for_culls_that_may_come(
    causes: dict[str, int], trials: dict[str, Trial], *, is_pending: bool
) -> None:
    draft = draft_of(View(NOW, FleetState(trials=trials), causes=causes))
    assert gates.by_pending_culls(draft) == (GateRefusal("culls", BEAT_US) if is_pending else None)


@pytest.mark.parametrize(
    ("leases", "amount", "is_free"),
    [
        pytest.param({}, "1", True, id="free"),
        pytest.param({"other": LIVE}, "1", False, id="taken"),
        pytest.param({"other": LIVE}, "2", True, id="another one is free"),
        pytest.param({"other": replace(LIVE, at_us=NOW - 200)}, "1", True, id="over"),
        pytest.param({"me": LIVE}, "1", True, id="its own"),
        pytest.param({"me": replace(LIVE, holder="somebody")}, "9", False, id="another's"),
        pytest.param({"other": LIVE}, "200p", True, id="a part"),
        pytest.param({"other": LIVE}, "199p", False, id="less of it"),
        pytest.param({}, "0", False, id="none at all"),
    ],
)
def test_slot_has_to_be_free(leases: dict[str, Slot], amount: str, *, is_free: bool) -> None:
    draft = draft_of(View(NOW, leases=leases, alive=10))
    refusal = gates.by_slots(draft, LeaseRequest("h", "me", "0", amount, 60.0))
    assert refusal == (None if is_free else GateRefusal("slots", BEAT_US))


# -- from the lease to the replacement --------------------------------------------------------------------------


def retired(timeout_s: float = 600) -> RuleFleet:
    it = fleet_of_size(10)
    assert it.retire("c00", timeout_s=timeout_s) == Granted(1, 1, alive=10, left_s=timeout_s)
    it.beat("c00", Presence.DOWN, is_lease=True)
    return it


def test_lease_that_is_asked_for_again_is_the_same_and_has_less_time_left() -> None:
    it = fleet_of_size(10)
    it.retire("c00")
    it.advance_beating(100, *names(10))
    assert it.retire("c00") == Granted(1, 1, replayed=True, alive=9, left_s=500)
    assert word(it.retire("c01")) == "slots"


def test_container_that_retires_is_missing_until_it_is_replaced_and_its_slot_is_free_when_that_is_well() -> None:
    it = retired()
    assert (it.fleet().down, it.fleet().retiring) == (1, 1)
    it.advance(40)
    it.beat_all(*names(10)[1:])
    fleet = it.replaced("newcomer", Presence.STARTING, under="newcomer")
    assert (fleet.down, fleet.retiring) == (0, 1)
    assert it.beat("newcomer").retiring == 0
    assert it.outcomes() == (0, 0, 0)
    assert [entry.what for entry in it.entries] == ["replaced"]


def test_slot_is_free_after_its_time_whatever_became_of_the_container() -> None:
    it = retired(timeout_s=120)
    it.advance_beating(120, *names(10)[1:])
    assert (it.fleet().retiring, it.fleet().down) == (0, 1)


def test_lease_that_is_not_used_is_given_back_by_its_holder_alone() -> None:
    it = fleet_of_size(10)
    it.retire("c00")
    assert it.give_back("c01", is_lease=True) is False
    assert it.give_back("c00") is False
    assert it.give_back("c00", is_lease=True) is True
    assert it.give_back("c00", is_lease=True) is False
    assert (it.fleet().down, it.fleet().retiring) == (0, 0)
    assert word(it.retire("c01")) == "granted"
