"""What the suspects have in common, and the healthy have not: the version of the app, or the node.

People are told; no rule acts on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sidecar.core.claims import Presence
from sidecar.core.fleet.members import Member

SUSPECTS: Final = 3
SUSPECT_PART: Final = 0.8
"""Part of the suspects that share a trait at least, and at least ``SUSPECTS`` of them."""

HEALTHY_PART: Final = 0.2
"""Part of the healthy containers that may have it, too."""


class Traits(NamedTuple):
    """What a container may share with others; what is not known is ``""``."""

    version: str = ""
    """That of the app."""
    node: str = ""


NO_TRAITS: Final = Traits()


class CommonTrait(NamedTuple):
    """``suspects`` of ``all_suspects`` and ``healthy`` of ``all_healthy`` containers have it."""

    trait: str
    """``version`` or ``node``."""
    value: str
    suspects: int
    all_suspects: int
    healthy: int
    all_healthy: int

    @property
    def sentence(self) -> str:
        """The sentence for people, without a full stop."""
        whose = (
            f"{self.suspects} of {self.all_suspects}" if self.suspects < self.all_suspects else f"all {self.suspects}"
        )
        others = f"{self.healthy} of {self.all_healthy}" if self.healthy else "none"
        if self.trait == "version":
            does = "do" if self.healthy > 1 else "does"
            return f"{whose} suspects run version {self.value}; of the healthy {others} {does}: roll back"
        return (
            f"{whose} suspects are on node {self.value}; of the healthy {others} {'are' if self.healthy > 1 else 'is'}"
        )


def common_trait(suspects: Sequence[Traits], healthy: Sequence[Traits]) -> CommonTrait | None:
    """The trait that most suspects share and few of the healthy have; of two, the one that fewer healthy ones have.

    A healthy container whose trait is not known counts as if it had it, and without healthy ones there is none.
    """
    shared = (_shared(name, suspects, healthy) for name in Traits._fields)
    return min(filter(None, shared), key=lambda trait: (trait.healthy, -trait.suspects), default=None)


def of_members(members: Iterable[Member]) -> CommonTrait | None:
    """The trait of these members, as far as their sidecars have described them."""
    suspects, healthy = list[Traits](), list[Traits]()
    for member in members:
        about = member.about
        traits = Traits(about.app_version, about.node) if about else Traits()
        if member.presence is Presence.SUSPECT:
            suspects.append(traits)
        elif member.presence is not Presence.DOWN:
            healthy.append(traits)
    return common_trait(suspects, healthy)


def as_json(trait: CommonTrait | None) -> dict[str, Any] | None:
    """The trait and its sentence as JSON values."""
    return None if trait is None else {**trait._asdict(), "sentence": trait.sentence}


def _shared(name: str, suspects: Sequence[Traits], healthy: Sequence[Traits]) -> CommonTrait | None:
    counts = Counter(value for traits in suspects if (value := getattr(traits, name)))
    for value, count in counts.most_common(1):
        others = sum(getattr(traits, name) in ("", value) for traits in healthy)
        is_common = count >= max(SUSPECTS, SUSPECT_PART * len(suspects))
        if is_common and healthy and others <= HEALTHY_PART * len(healthy):
            return CommonTrait(name, value, count, len(suspects), others, len(healthy))
    return None
