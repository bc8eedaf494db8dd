"""The settings of the fleet: shares, the strictest of several, and those in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share, limits
from sidecar.core.fleet.view import settings_in_force
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
TERMS = FleetSettings()


def part(thousandths: int) -> Share:
    return Share(thousandths, is_part=True)


# -- a share of the fleet -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "fleet", "at_least", "at_most"),
    [
        (Share(3), 0, 3, 3),
        (Share(3), 100, 3, 3),
        (part(500), 0, 0, 1),
        (part(500), 1, 1, 1),
        (part(500), 2, 1, 1),
        (part(500), 3, 2, 1),
        (part(500), 10, 5, 5),
        (part(500), 11, 6, 5),
        (part(1000), 1, 1, 1),
        (part(1000), 2, 2, 1),
        (part(1000), 10, 10, 9),
        (part(1), 10, 1, 1),
        (part(333), 200, 67, 66),
    ],
)
def test_part_is_rounded_up_for_what_stays_and_down_for_what_goes(
    share: Share, fleet: int, at_least: int, at_most: int
) -> None:
    assert (share.at_least(fleet), share.at_most(fleet)) == (at_least, at_most)
    assert Share.load(str(share)) == share


@pytest.mark.parametrize("text", ["", "p", "ten", "1.5", "p5", "500pp"])
def test_other_text_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Share.load(text)


# -- the strictest of several ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "one", "other", "strictest"),
    [
        ("strategy", {"strategy": "fixed"}, {"strategy": "previous"}, "previous"),
        ("strategy", {"strategy": "fixed"}, {"strategy": "log"}, "log"),
        ("strategy", {"strategy": "previous"}, {"strategy": "log"}, "log"),
        ("strategy", {"strategy": "fixed"}, {"strategy": "fixed"}, "fixed"),
        ("capacity", {"capacity": "3"}, {"capacity": "500p"}, 3),
        ("capacity", {"capacity": "8"}, {"capacity": "500p"}, 5),
        ("floor", {"min_healthy": "3"}, {"min_healthy": "7"}, 7),
        ("window_us", {"window_us": 60}, {"window_us": 600}, 600),
        ("spacing_us", {"spacing_us": 5}, {"spacing_us": 0}, 5),
        ("trial", {"trial": False}, {}, True),
        ("trial", {"trial": False}, {"trial": False}, False),
        ("probation_us", {"probation_us": 5}, {"probation_us": 9}, 9),
        ("refund_max", {"refund_max": OFF}, {"refund_max": OFF}, OFF),
        ("refund_max", {"refund_max": OFF}, {"refund_max": 50}, OFF),
        ("refund_max", {"refund_max": 0}, {"refund_max": 0}, 30),
        ("refund_max", {"refund_max": 0, "capacity": "500p"}, {"refund_max": 50}, 15),
        ("refund_max", {"refund_max": 20, "strategy": "previous"}, {"refund_max": 20, "strategy": "previous"}, OFF),
        ("refund_max", {"refund_max": 0, "strategy": "fixed"}, {"refund_max": 0, "strategy": "fixed"}, OFF),
        ("refund_max", {"refund_max": 20}, {"refund_max": 50}, 20),
        ("refund_max", {"refund_max": 20}, {"refund_max": 50, "strategy": "previous"}, OFF),
        ("expiry_us", {"beat_us": 5}, {"beat_us": 10}, 30),
        ("error_limit", {"error_limit": 5}, {"error_limit": 9}, 5),
        ("error_limit", {"error_limit": 0}, {"error_limit": 9}, 9),
        ("after_loss_wait", {"after_loss_wait": False}, {}, True),
        ("after_loss_wait", {"after_loss_wait": False}, {"after_loss_wait": False}, False),
    ],
)
def test_strictest_of_two_settings_is_in_force(
    name: str, one: dict[str, object], other: dict[str, object], strictest: object
) -> None:
    terms = [replace(TERMS, **one), replace(TERMS, **other)]  # type: ignore[arg-type]  # each of its field's type
    assert getattr(limits(terms, 10), name) == strictest
    assert limits(reversed(terms), 10) == limits(terms, 10)


# -- in force ---------------------------------------------------------------------------------------------------------


def test_settings_in_force_are_those_heard_within_their_own_expiry_and_every_other_text_is_none() -> None:
    slow = FleetSettings(beat_us=100 * S)
    heard = {TERMS.dump(): NOW - 30 * S, slow.dump(): NOW - 299 * S, "?": NOW, '{"strategy":"x"}': NOW}
    assert set(settings_in_force(heard, NOW)) == {TERMS, slow}
    assert settings_in_force({TERMS.dump(): NOW - 30 * S - 1}, NOW) == ()
