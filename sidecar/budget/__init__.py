"""The shared bucket: who may have a token. In memory for one process, in Redis for a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sidecar.core.words import Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown


class Budget(Protocol):
    """A bucket of tokens. Failures are values here: only cancellation is raised."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token; an id that was granted before is granted again and costs nothing."""

    async def retire(self, lease: Lease) -> Answer:
        """Ask for a lease to go for its age; the same holder is granted again. It costs no token."""

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Give the lease back, and be no longer missing; whether it was this holder's."""

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Tell the fleet how the container is, and hear how the fleet is; makes ready for the next claim too."""

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Freeze the service, or the instance if it is named, for so many seconds."""

    async def release(self, instance: str) -> bool | Unknown:
        """End a hold; whether there was one."""

    async def roll(self) -> Roll | Unknown:
        """The fleet member by member, for a person."""

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write entries into the ledger, each of them once however often it is sent; how many were new."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """At most so many of the ledger, written since (Unix seconds) and after that id; none is the end."""

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether nobody of the fleet has said the word, or only longer ago than the seconds named then."""

    async def aclose(self) -> None:
        """Let go of what the bucket holds; it is not used afterwards."""
