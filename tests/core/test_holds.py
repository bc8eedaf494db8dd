"""Freezes: whose counts, until when, and what is shown of them."""

from __future__ import annotations

import pytest

from sidecar.core.holds import Holds
from sidecar.core.words import Hold

SERVICE = Hold("ann", "deploy", 0.0002)
ONE = Hold("bob", "look", 0.0001, "one")


@pytest.fixture
def holds() -> Holds:
    holds = Holds()
    assert holds.put("one", "bob", "look", 100) == ONE
    assert holds.put("", "ann", "deploy", 200) == SERVICE
    return holds


@pytest.mark.parametrize(
    ("instance", "now_us", "held"),
    [
        ("one", 50, (200, SERVICE)),
        ("two", 50, (200, SERVICE)),
        ("two", 199, (200, SERVICE)),
        ("two", 200, None),
        ("one", 200, None),
    ],
    ids=["the service's first", "of everybody", "to the last", "no longer", "nor the other, which ended before"],
)
def test_hold_counts_until_it_is_over(holds: Holds, instance: str, now_us: int, held: object) -> None:
    assert holds.on(instance, now_us) == held


def test_hold_of_one_instance_is_on_no_other(holds: Holds) -> None:
    assert holds.release("") is True
    assert (holds.on("one", 50), holds.on("two", 50)) == ((100, ONE), None)


def test_release_tells_whether_there_was_one(holds: Holds) -> None:
    assert [holds.release("one"), holds.release("one")] == [True, False]


def test_newer_hold_takes_the_place_of_the_one_before(holds: Holds) -> None:
    holds.put("", "eve", "longer", 300)
    assert holds.on("two", 250) == (300, Hold("eve", "longer", 0.0003))


def test_what_is_over_is_shown_no_more_whether_struck_off_or_not(holds: Holds) -> None:
    assert holds.every(50) == (SERVICE, ONE)
    assert holds.every(100) == (SERVICE,)
    holds.strike_off(200)
    assert holds.every(0) == ()
