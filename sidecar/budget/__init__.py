"""The shared bucket: who may have a token. In memory for one process, in Redis for a fleet."""

from __future__ import annotations

from typing import Protocol

from sidecar.core.words import Answer, Beat, Claim, Fleet, Hold, Roll, Unknown


class Budget(Protocol):
    """A bucket of tokens. Failures are values here: only cancellation is raised."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token; an id that was granted before is granted again and costs nothing."""

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Tell the fleet how the container is, and hear how the fleet is; makes ready for the next claim too."""

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Freeze the service, or the instance if it is named, for so many seconds."""

    async def release(self, instance: str) -> bool | Unknown:
        """End a hold; whether there was one."""

    async def roll(self) -> Roll | Unknown:
        """The fleet member by member, for a person."""

    async def aclose(self) -> None:
        """Let go of what the bucket holds; it is not used afterwards."""
