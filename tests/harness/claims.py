"""Short ways to claims, beats and leases, and terms without gates."""

from __future__ import annotations

from typing import Any, Final

from sidecar.core.claims import Beat, Claim, LeaseRequest, Presence
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import US_PER_S

S: Final = US_PER_S
"""Microseconds."""

WINDOW_ONLY: Final = FleetSettings(min_healthy="0", trial=False, after_loss_wait=False)
"""The numbers of the article, without any gate of the fleet."""


def claim(name: str, cause: str = "redis", life: str = "1", identity: str = "") -> Claim:
    """The claim of the container with this name, in this incarnation."""
    return Claim(name if life == "1" else f"{name}/{life}", name, life, cause, identity)


def beat(name: str, presence: Presence = Presence.WELL, **changes: Any) -> Beat:
    """A beat of the container with this name."""
    return Beat(name, changes.pop("life", "1"), presence, **changes)


def suspect(name: str, cause: str = "redis", **changes: Any) -> Beat:
    """The beat of a suspect."""
    return beat(name, Presence.SUSPECT, cause=cause, **changes)


def down(name: str, cause: str = "redis", **changes: Any) -> Beat:
    """The beat of a container that used its token."""
    return beat(name, Presence.DOWN, cause=cause, claim_id=changes.pop("claim_id", name), **changes)


def lease(name: str, holder: str = "", slots: str = "1", life: str = "1", timeout_s: float = 300) -> LeaseRequest:
    """The request for a lease, under the holder word of ``name`` unless ``holder`` is given."""
    return LeaseRequest(holder or f"{name}'s", name, life, slots, timeout_s)
