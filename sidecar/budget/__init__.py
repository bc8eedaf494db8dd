"""The shared bucket: who may have a token. In memory for one process, in Redis for a fleet; both answer alike."""

from __future__ import annotations

from typing import Protocol

from sidecar.core.words import Answer, Unknown


class Budget(Protocol):
    """A bucket of tokens. Failures are values here: only cancellation is raised."""

    async def claim(self, claim_id: str) -> Answer:
        """Ask for a token under this id; an id that was granted before is granted again and costs nothing."""

    async def warm(self) -> Unknown | None:
        """Get ready for the next claim; None when the bucket can be reached, else why it cannot."""

    async def aclose(self) -> None:
        """Let go of what the bucket holds; it is not used afterwards."""
