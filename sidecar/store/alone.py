"""The budget of a sidecar without Redis: the same rules for a fleet of one, which ends with its process."""

from __future__ import annotations

from typing import Final

from sidecar.core.types import Hold, Lease, Roll, Unknown
from sidecar.store.budget import FleetBudget

ALONE: Final = Unknown("alone")


class AloneBudget(FleetBudget):
    """A ``FleetBudget`` that nobody else shares: there is no fleet to show, to freeze, or to take over meanwhile."""

    async def retire(self, lease: Lease) -> Unknown:  # noqa: ARG002 - as in hold
        """Unknown("alone"): nobody takes over while this container is away."""
        return ALONE

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:  # noqa: ARG002
        """Unknown("alone"): there is nobody to tell."""
        return ALONE

    async def release(self, instance: str) -> bool | Unknown:
        """Unknown("alone"); what the rules learned is forgiven all the same."""
        await super().release(instance)
        return ALONE

    async def roll(self) -> Roll | Unknown:
        """Unknown("alone")."""
        return ALONE
