"""Holds: for whom they are, until when, and what ends them."""

from __future__ import annotations

import pytest

from harness.rule_fleet import draft_of
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
        pytest.param("one", 150, Hold("ann", "deploy", 0.0002), 50, id="the service's first"),
        pytest.param("two", 150, Hold("ann", "deploy", 0.0002), 50, id="of everybody"),
        pytest.param("two", 199, Hold("ann", "deploy", 0.0002), 1, id="to the last"),
        pytest.param("two", 200, None, 0, id="no longer"),
        pytest.param("one", 200, Hold("bob", "look", 0.0003, "one"), 100, id="its own outlives it"),
        pytest.param("one", 300, None, 0, id="both are over"),
    ],
)
def test_hold_refuses_until_it_is_over(instance: str, now_us: int, shown: Hold | None, wait_us: int) -> None:
    draft = draft_of(View(now_us, holds={"": SERVICE, "one": ONE}))
    found = draft.hold_on(instance)
    assert (found[1].shown(found[0]) if found else None) == shown
    assert gates.by_hold(draft, instance) == (GateRefusal("hold", wait_us) if shown else None)
