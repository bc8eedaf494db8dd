"""Slots by themselves; who gets one, and when, is told by the stories in ``tests/budget/test_contract_leases.py``."""

from __future__ import annotations

import pytest

from sidecar.core.leases import Leases, Slot


def taken(**slots: Slot) -> Leases:
    leases = Leases()
    for instance, slot in slots.items():
        leases.granted(instance, slot, 1)
    return leases


def test_slot_is_used_until_its_time_and_no_longer() -> None:
    leases = taken(a=Slot("h", "1", 100), b=Slot("i", "1", 101))
    assert [leases.used(now_us) for now_us in (99, 100, 101)] == [2, 1, 0]
    leases.expire(100)
    assert leases.slots.keys() == {"b"}


@pytest.mark.parametrize(
    ("instance", "incarnation", "is_over"),
    [("a", "1", False), ("a", "2", True), ("b", "2", False)],
    ids=["the same life", "another life", "somebody else"],
)
def test_slot_ends_with_another_life_that_is_well(instance: str, incarnation: str, *, is_over: bool) -> None:
    leases = taken(a=Slot("h", "1", 100))
    leases.is_well(instance, incarnation)
    assert leases.slots == ({} if is_over else {"a": Slot("h", "1", 100)})


def test_slot_goes_over_to_the_newcomer_whatever_its_life_is_called() -> None:
    leases = taken(a=Slot("h", "1", 100))
    leases.arrived("a", "n")
    leases.is_well("a", "2")
    assert leases.used(0) == 1
    leases.is_well("n", "1")
    assert leases.used(0) == 0


def test_slot_is_given_back_by_its_holder_alone() -> None:
    leases = taken(a=Slot("h", "1", 100))
    assert [
        leases.resigned(*who) for who in (("a", "i"), ("b", "h"), ("a", ""), ("a", "h"), ("a", "h"), ("a", ""))
    ] == [
        *[False] * 3,
        True,
        *[False] * 2,
    ]


def test_lease_that_is_heard_of_again_lasts_no_longer_than_it_did() -> None:
    leases = taken(a=Slot("h", "1", 100))
    leases.down("a", Slot("h", "1", 700))
    leases.down("b", Slot("i", "1", 700))
    assert (leases.slots["a"].until_us, leases.slots["b"].until_us) == (100, 700)
