"""What most suspects share and the healthy do not: named for people, with numbers."""

from __future__ import annotations

from typing import Final

import pytest

from sidecar.core.claims import Presence
from sidecar.core.fleet.common_trait import Traits, common_trait, of_members
from sidecar.core.fleet.members import About, Member
from sidecar.core.types import State

ABOUT: Final = About(State.UP, 0, "", 100, 0, 5, "0.3.0")


def versions(text: str) -> list[Traits]:
    """A container for each word, on a node of its own; ``-`` is a version that is not known."""
    return [Traits("" if word == "-" else word, f"{text} {number}") for number, word in enumerate(text.split())]


def nodes(text: str) -> list[Traits]:
    return [Traits("1", node) for node in text.split()]


@pytest.mark.parametrize(
    ("suspects", "healthy", "sentence"),
    [
        ("2 2 2 2 2 2 1", "1 1 1", "6 of 7 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2", "1", "all 3 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2 2 1", "1", "4 of 5 suspects run version 2; of the healthy none does: roll back"),
        ("2 2 2 1", "1 1", ""),
        ("2 2", "1 1 1 1 1 1", ""),
        ("2 2 2", "2 1 1 1 1", "all 3 suspects run version 2; of the healthy 1 of 5 does: roll back"),
        ("2 2 2", "2 2 1 1 1 1 1 1 1 1", "all 3 suspects run version 2; of the healthy 2 of 10 do: roll back"),
        ("2 2 2", "2 1 1 1", ""),
        ("2 2 2", "- 1 1 1", ""),
        ("2 2 2", "2 2 2", ""),
        ("2 2 2", "", ""),
        ("- - -", "1 1 1", ""),
        ("2 2 2 -", "1 1 1", ""),
        ("", "", ""),
    ],
    ids=lambda value: value.replace(" ", "") or "none",
)
def test_version_is_shared_by_the_suspects_alone(suspects: str, healthy: str, sentence: str) -> None:
    trait = common_trait(versions(suspects), versions(healthy))
    assert (trait.sentence if trait else "") == sentence


@pytest.mark.parametrize(
    ("suspects", "healthy", "sentence"),
    [
        ("n7 n7 n7 n7 n7", "n1 n2", "all 5 suspects are on node n7; of the healthy none is"),
        ("n7 n7 n7", "n7 n1 n2 n3 n4", "all 3 suspects are on node n7; of the healthy 1 of 5 is"),
        ("n7 n7 n7", "n7 n7 n1 n2 n3 n4 n5 n6 n8 n9", "all 3 suspects are on node n7; of the healthy 2 of 10 are"),
        ("n7 n7 n8", "n1 n2", ""),
    ],
)
def test_node_is_shared_by_the_suspects_alone(suspects: str, healthy: str, sentence: str) -> None:
    trait = common_trait(nodes(suspects), nodes(healthy))
    assert (trait.sentence if trait else "") == sentence


def test_of_two_traits_the_one_that_fewer_healthy_containers_have_is_named() -> None:
    suspects = [Traits("2", "n7")] * 3
    by_node = common_trait(suspects, [Traits("2", "n1"), *[Traits("1", "n1")] * 4])
    by_version = common_trait(suspects, [Traits("1", "n7"), *[Traits("1", "n1")] * 4])
    both = common_trait(suspects, [Traits("1", "n1")])
    assert [trait and trait.trait for trait in (by_node, by_version, both)] == ["node", "version", "version"]


def test_members_are_suspect_healthy_or_down() -> None:
    sick, new, other = (ABOUT._replace(app_version=version) for version in ("2", "2", "1"))
    members = [
        *(Member(f"s{number}", Presence.SUSPECT, "redis", 1.0, sick) for number in range(3)),
        Member("down", Presence.DOWN, "redis", 1.0, new),
        Member("well", Presence.WELL, "", 1.0, other),
    ]
    trait = of_members(members)
    assert trait is not None
    assert trait[2:] == (3, 3, 0, 1)
    assert of_members([*members, Member("unknown", Presence.WELL, "", 1.0)]) is None
