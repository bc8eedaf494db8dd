"""Holds: for whom they are, until when, and what ends them."""

from __future__ import annotations

import pytest

from harness.rule_fleet import draft_of, fleet_of_size, word
from sidecar.core.fleet import gates
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import HoldRow
from sidecar.core.fleet.view import View
from sidecar.core.types import Hold

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
    found = draft.hold_on(instance)
    assert (found[1].shown(found[0]) if found else None) == shown
    assert gates.by_hold(draft, instance) == (GateRefusal("hold", wait_us) if shown else None)


def test_hold_of_one_instance_leaves_the_others_alone() -> None:
    it = fleet_of_size(10)
    it.hold("c00")
    assert [word(it.claim(name)) for name in ("c00", "c01")] == ["hold", "granted"]
    assert [it.release(""), it.release("c00"), it.release("c00")] == [False, True, False]
    assert word(it.claim("c00", "disk")) == "granted"
