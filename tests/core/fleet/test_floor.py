"""The floor: how many containers have to stay in service, and when the only one may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, draft_of, fleet_of_size, word
from sidecar.core.fleet import gates
from sidecar.core.fleet.draft import HOUR_US
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import Cull, Epoch, FleetState
from sidecar.core.fleet.view import View

NOW = START_US
BEAT_US = TERMS.beat_us


def out(count: int) -> dict[str, Cull]:
    return {f"x{number}": Cull("id", "0", "redis", NOW - 1) for number in range(count)}


@pytest.mark.parametrize(
    ("view", "refusal"),
    [
        (View(NOW, alive=10, seen_us=NOW), None),
        (View(NOW, alive=6, seen_us=NOW, culls=out(4)), None),
        (View(NOW, alive=5, seen_us=NOW, culls=out(5)), GateRefusal("floor", BEAT_US)),
        (View(NOW, alive=6, seen_us=0, culls=out(5)), None),
        (View(NOW, alive=5, seen_us=0, culls=out(5)), GateRefusal("floor", BEAT_US)),
        (View(NOW, alive=6, seen_us=NOW - TERMS.expiry_us - 1, culls=out(5)), None),
        (View(NOW, alive=5, seen_us=NOW, incarnation="1", culls={**out(4), "me": Cull("i", "1", "x", NOW)}), None),
        (
            View(NOW, alive=5, seen_us=NOW, incarnation="2", culls={**out(4), "me": Cull("i", "1", "x", NOW)}),
            GateRefusal("floor", BEAT_US),
        ),
        (View(NOW, alive=1, seen_us=NOW, culls=out(9)), GateRefusal("last", BEAT_US)),
        (View(NOW, alive=0, culls=out(2)), GateRefusal("last", BEAT_US)),
        (View(NOW, alive=6, seen_us=NOW, culls=out(4), beating={"x0": "0"}), GateRefusal("floor", BEAT_US)),
        (View(NOW, alive=6, seen_us=NOW, culls=out(4), beating={"x0": "1"}), None),
    ],
    ids=[
        "all serve",
        "one more may go",
        "half is missing",
        "of one that does not serve nothing is lost",
        "though it is one of the fleet",
        "nor of one that is silent",
        "it was granted its end before",
        "its former life was",
        "the last of ten",
        "nobody serves",
        "one that was granted its end and still serves is none",
        "its successor is one",
    ],
)
def test_enough_have_to_be_left(view: View, refusal: GateRefusal | None) -> None:
    assert gates.by_floor(draft_of(view), "me") == refusal


@pytest.mark.parametrize(
    ("several_us", "born_us", "refusal"),
    [
        (0, NOW - HOUR_US, None),
        (0, NOW - HOUR_US + 1, GateRefusal("last", BEAT_US)),
        (NOW - HOUR_US, 1, None),
        (NOW - HOUR_US + 1, 1, GateRefusal("last", BEAT_US)),
    ],
)
def test_only_member_may_go_if_it_was_the_only_one_for_an_hour(
    several_us: int, born_us: int, refusal: GateRefusal | None
) -> None:
    view = View(NOW, FleetState(several_us=several_us), Epoch(born_us), alive=1, seen_us=NOW)
    assert gates.by_floor(draft_of(view), "me") == refusal


def test_retirements_and_culls_share_the_floor() -> None:
    it = fleet_of_size(4, replace(TERMS, trial=False))
    assert [word(it.retire("c00", slots="4")), word(it.claim("c01")), word(it.claim("c02"))] == [
        "granted",
        "granted",
        "floor",
    ]
    assert word(it.retire("c03", slots="4")) == "floor"
