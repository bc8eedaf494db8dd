"""Claims, beats and leases as simple as can be, and terms under which nothing but the window limits."""

from __future__ import annotations

from typing import Any, Final

from sidecar.core.fleet.terms import Terms
from sidecar.core.types import US_PER_S, Beat, Claim, Lease, Presence

S: Final = US_PER_S
"""Microseconds."""

WINDOW_ONLY: Final = Terms(min_healthy="0", never_last=False, trial=False, after_loss_wait=False)
"""The article's numbers, without any gate of the fleet."""


def claim(name: str, kind: str = "redis", life: str = "1") -> Claim:
    """The claim of the container with this name, in this life of it."""
    return Claim(name if life == "1" else f"{name}/{life}", name, life, kind)


def beat(name: str, presence: Presence = Presence.WELL, **changes: Any) -> Beat:
    """A sign of its life."""
    return Beat(name, changes.pop("life", "1"), presence, **changes)


def suspect(name: str, kind: str = "redis", **changes: Any) -> Beat:
    """The beat of a suspect."""
    return beat(name, Presence.SUSPECT, kind=kind, **changes)


def down(name: str, kind: str = "redis", **changes: Any) -> Beat:
    """The beat of a container that used its token."""
    return beat(name, Presence.DOWN, kind=kind, claim_id=changes.pop("claim_id", name), **changes)


def lease(name: str, holder: str = "", slots: str = "1", life: str = "1", timeout_s: float = 300) -> Lease:
    """Its request to go for its age, under a word of its own unless told another."""
    return Lease(holder or f"{name}'s", name, life, slots, timeout_s)
