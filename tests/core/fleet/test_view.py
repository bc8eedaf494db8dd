"""The view: what it tells of the clock, and which settings are in force."""

from __future__ import annotations

import pytest

from harness.rule_fleet import START_US, TERMS
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.view import View, settings_in_force
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US


@pytest.mark.parametrize(
    ("newest_us", "grant_us", "is_ahead"),
    [(NOW, NOW, False), (NOW + S, NOW, False), (NOW + S + 1, NOW, True), (NOW, NOW + S + 1, True)],
)
def test_store_that_holds_the_future_has_stepped_back(newest_us: int, grant_us: int, *, is_ahead: bool) -> None:
    assert View(NOW, newest_us=newest_us, grants={"a": grant_us}).is_ahead is is_ahead


def test_settings_in_force_are_those_heard_within_their_own_expiry_and_every_other_text_is_none() -> None:
    slow = FleetSettings(beat_us=100 * S)
    heard = {TERMS.dump(): NOW - 30 * S, slow.dump(): NOW - 299 * S, "?": NOW, '{"strategy":"x"}': NOW}
    assert set(settings_in_force(heard, NOW)) == {TERMS, slow}
    assert settings_in_force({TERMS.dump(): NOW - 30 * S - 1}, NOW) == ()
