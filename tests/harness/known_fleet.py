"""A budget that decides nothing: it answers with the fleet that a test puts into it, and keeps holds and entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.core.types import Answer, Beat, Claim, Entry, Fleet, Hold, Lease, Roll, Unknown

UNDECIDED = Unknown("internal")


class KnownFleet:
    """The budget of one sidecar. ``known`` is what ``roll`` and ``beat`` answer; ``wall`` gives Unix seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.known = Roll(Fleet(0), 0)
        self.noted: list[Entry] = []
        self._wall = wall

    async def claim(self, _claim: Claim) -> Answer:
        return UNDECIDED

    async def retire(self, _lease: Lease) -> Answer:
        return UNDECIDED

    async def resign(self, _instance: str, _holder: str) -> bool | Unknown:
        return UNDECIDED

    async def beat(self, _beat: Beat) -> Fleet | Unknown:
        return self.known.fleet

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        held = Hold(author, reason, self._wall() + for_s, instance)
        self.known = self.known._replace(holds=(*self._others(instance), held))
        return held

    async def release(self, instance: str) -> bool | Unknown:
        before = self.known.holds
        self.known = self.known._replace(holds=self._others(instance))
        return self.known.holds != before

    async def roll(self) -> Roll | Unknown:
        return self.known

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        self.noted += [entry._replace(id=str(number)) for number, entry in enumerate(entries, len(self.noted) + 1)]
        return len(entries)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        found = self.noted[int(after) :] if after else [entry for entry in self.noted if entry.at >= since]
        return found[:most]

    async def first(self, _word: str, _for_s: float) -> bool | Unknown:
        return True

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _others(self, instance: str) -> tuple[Hold, ...]:
        return tuple(hold for hold in self.known.holds if hold.instance != instance)
