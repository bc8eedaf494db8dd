"""The budget of a sidecar without Redis: the same rules for a fleet of one, which ends with its process."""

from __future__ import annotations

from typing import Final

from sidecar.core.fleet.about import MemberList
from sidecar.core.types import Hold, LeaseRequest, Unknown
from sidecar.store.budget import FleetBudget

ALONE: Final = Unknown("alone")


class AloneBudget(FleetBudget):
    """A ``FleetBudget`` that no other sidecar shares: there is no fleet to list, to hold, or to cover for a restart."""

    async def retire(self, lease: LeaseRequest) -> Unknown:  # noqa: ARG002 - as in hold
        """Unknown("alone"): no other container serves while this one restarts."""
        return ALONE

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:  # noqa: ARG002
        """Unknown("alone"): there is no other sidecar to hold."""
        return ALONE

    async def release(self, instance: str) -> bool | Unknown:
        """Unknown("alone"); it ends the pauses of causes all the same."""
        await super().release(instance)
        return ALONE

    async def member_list(self) -> MemberList | Unknown:
        """Unknown("alone")."""
        return ALONE
