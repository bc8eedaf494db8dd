"""The view: records from what a store returns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import Raw, View
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
CULL = Cull("a/0", "0", "redis", NOW - 60 * S, occupied_us=NOW + 30 * S)
SLOT = Slot("h", "0", NOW, 9)
HOLD = HoldRow("x", "y", NOW, 9)
STATE = FleetState(trials={"redis": Trial(1, 1, NOW - S, 600 * S, NOW - S)})
EPOCH = Epoch(NOW - 3600 * S)
RAW = Raw(
    NOW,
    epoch=EPOCH.dump(),
    state=STATE.dump(),
    culls={"a": CULL.dump()},
    leases={"l": SLOT.dump()},
    holds={"": HOLD.dump()},
    alive=7,
    beating={"a": "0\nid\n\n0"},
    causes={"x": 2},
    control={"refused|x": 5, "ended|x": 0},
    member="1\nid\nredis\n1",
    seen_us=NOW - 5,
)


def test_view_has_the_records_of_what_the_store_returns() -> None:
    view = View.of(RAW)
    assert (view.now_us, view.state, view.epoch) == (NOW, STATE, EPOCH)
    assert (view.culls, view.leases, view.holds) == ({"a": CULL}, {"l": SLOT}, {"": HOLD})
    assert (view.alive, view.beating, view.causes, view.control) == (7, {"a": "0"}, {"x": 2}, {"refused|x": 5})
    assert (view.incarnation, view.identity, view.seen_us, view.departed_us) == ("1", "id", NOW - 5, 0)


@pytest.mark.parametrize(
    ("newest_us", "grant_us", "is_ahead"),
    [(NOW, NOW, False), (NOW + S, NOW, False), (NOW + S + 1, NOW, True), (NOW, NOW + S + 1, True)],
)
def test_store_that_holds_the_future_has_stepped_back(newest_us: int, grant_us: int, *, is_ahead: bool) -> None:
    assert View.of(Raw(NOW, newest_us=newest_us, grants={"a": grant_us})).is_ahead is is_ahead


def test_settings_in_force_are_those_heard_within_their_own_expiry_and_every_other_text_is_none() -> None:
    slow = FleetSettings(beat_us=100 * S)
    heard = {TERMS.dump(): NOW - 30 * S, slow.dump(): NOW - 299 * S, "?": NOW, '{"strategy":"x"}': NOW}
    assert set(View.of(Raw(NOW, settings=heard)).settings) == {TERMS, slow}
    assert View.of(Raw(NOW, settings={TERMS.dump(): NOW - 30 * S - 1})).settings == ()


def test_rows_that_cannot_be_read_hide_no_others() -> None:
    bad = {"bad": "\ud800", "list": "[]", "kind": '{"claim":1,"holder":1}'}
    raw = replace(RAW, epoch="?", culls={**RAW.culls, **bad}, leases=bad, holds={"": "?", "x": '{"at_us":"now"}'})
    view = View.of(raw)
    assert (view.culls, view.leases, view.holds, view.epoch) == ({"a": CULL}, {}, {}, Epoch())
    assert View.of(replace(raw, state="?")).state == FleetState()
