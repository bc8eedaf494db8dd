"""The store and the budget of a container alone, in the memory of its sidecar: there is one member, and one writer.

So no commit conflicts, no entry is written twice, and the bound on grants is that of the rules, which are the only
version that decides here. Holds are the sidecar's own, and there are no leases without a fleet. Its coroutines never
wait.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from sidecar.core.claims import ALONE, Answer, Beat, LeaseRequest, Presence, Unknown
from sidecar.core.fleet.members import About
from sidecar.core.fleet.records import Cull, Epoch, FleetState
from sidecar.core.fleet.view import BeatReply, Edits, Listing, MemberKey, View, member_row
from sidecar.core.types import US_PER_S, Entry, State
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import SHARED_S

R = TypeVar("R")

MAX_EVENTS: Final = 1000
"""Maximum number of entries in the ledger, which takes memory of this process."""

_NO_STORE: Final = Unknown(ALONE)

_NOBODY: Final = Beat("", "", Presence.GONE, errors=-1)
_ID: Final = re.compile(r"[0-9]+-([0-9]+)")


class AloneStore:
    """``clock_us`` gives the store's time in microseconds. ``run_id`` names its process."""

    def __init__(self, clock_us: Callable[[], int], *, run_id: str = "memory") -> None:
        self.run_id = run_id
        self.state, self.epoch = FleetState(), Epoch()
        self.culls: dict[str, Cull] = {}
        self.grants: dict[str, int] = {}
        self.refunded: dict[str, int] = {}
        self._clock_us = clock_us
        self._last = _NOBODY
        self._last_us = 0
        self._about = ""
        self.lost = asyncio.Event()  # never: there is no connection
        self._counters: dict[str, tuple[int, int]] = {}
        self._first: dict[str, int] = {}
        self._events: deque[tuple[int, Entry]] = deque(maxlen=MAX_EVENTS)
        self._noted = 0

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:  # noqa: ARG002 - its one member is not silent
        now_us, last = self._clock_us(), self._last
        is_there = last.presence is not Presence.GONE
        return View(
            now_us,
            self.state,
            self.epoch,
            _since(self.grants, now_us - 2 * window_us),
            frozenset(_since(self.refunded, now_us - 2 * window_us)),
            run_id=self.run_id,
            culls=self.culls,
            alive=int(is_there),
            beating={instance: last.incarnation} if is_there and instance in self.culls else {},
            newest_us=self._last_us,
            causes=_causes(last),
            member=MemberKey(last.incarnation, last.identity),
            seen_us=self._last_us if is_there else 0,
            median_errors=last.errors,
        )

    async def commit(self, revision: int, edits: Edits) -> int:  # noqa: ARG002 - nobody else changes it
        now_us = self._clock_us()
        self.state, self.epoch = edits.state or self.state, edits.epoch or self.epoch
        self.culls = edited(self.culls, edits.culls)
        self._write_tokens(edits, now_us)
        await self.note(edits.entries)
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:  # noqa: ARG002 - its one member is not silent, and has the settings of the request
        now_us, former = self._clock_us(), self._last
        is_there = beat.presence not in (Presence.DOWN, Presence.GONE)
        self._last, self._last_us = beat if is_there else _NOBODY, now_us
        self._about = beat.about or self._about
        return BeatReply(
            now_us=now_us,
            epoch=self.epoch,
            state=self.state,
            alive=int(is_there),
            former="" if former.presence is Presence.GONE else member_row(former),
            causes=_causes(beat),
            median_errors=self._last.errors,
            used=len(_since(self.grants, now_us - window_us)) - len(_since(self.refunded, now_us - window_us)),
            run_id=self.run_id,
            draining=int(beat.presence is Presence.DOWN and _is_draining(self._about)),
        )

    async def members(self, *, most: int, since_us: int) -> Listing:  # noqa: ARG002 - there are none
        """Nobody: a container alone has no fleet to list."""
        return Listing()

    async def count(self, key: str, window_s: int) -> int:
        now_us = self._clock_us()
        number, until_us = self._counters.get(key, (0, 0))
        self._counters[key] = (number + 1 if until_us > now_us else 1, now_us + window_s * US_PER_S)
        return self._counters[key][0]

    async def note(self, entries: Sequence[Entry]) -> int:
        now_s = self._clock_us() / US_PER_S
        new = [each for each in entries if not each.once or await self.first(f"entry {each.once}", SHARED_S)]
        for entry in new:
            self._noted += 1
            name = f"{int(now_s * 1000)}-{self._noted}"
            self._events.append((self._noted, entry._replace(at=entry.at or now_s, once="", id=name)))
        return len(new)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        match = _ID.fullmatch(after)
        last = int(match[1]) if match else 0
        since_ms = 0 if match else round(since * 1000)
        later = (entry for number, entry in self._events if number > last)
        return [entry for entry in later if int(entry.id.partition("-")[0]) >= since_ms][:most]

    async def first(self, word: str, for_s: float) -> bool:
        now_us = self._clock_us()
        self._first = {name: until_us for name, until_us in self._first.items() if until_us > now_us}
        is_first = word not in self._first
        self._first.setdefault(word, now_us + round(for_s * US_PER_S))
        return is_first

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def _write_tokens(self, edits: Edits, now_us: int) -> None:
        # A clock that has stepped back must not block the budget.
        oldest_us = now_us - 2 * edits.window_us if edits.window_us else 0
        self.grants, self.refunded = (
            {name: min(at, now_us) for name, at in times.items() if at >= oldest_us}
            for times in (self.grants, self.refunded)
        )
        if edits.grant:
            self.grants[edits.grant] = now_us
            self.refunded.pop(edits.grant, None)
        self.refunded |= {name: self.grants[name] for name in edits.refund if name in self.grants}


class AloneBudget(FleetBudget):
    """The budget of a container alone: there is no fleet to list, to hold, or to cover for a restart."""

    async def retire(self, lease: LeaseRequest) -> Answer:  # noqa: ARG002 - nobody could cover for it
        return self.local_holds.refusal() or _NO_STORE

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Unknown:
        """Hold this sidecar, if the order covers it."""
        self.local_holds.begin(instance, author, reason, for_s)
        return _NO_STORE

    async def release(self, instance: str) -> Unknown:
        """End the hold of this sidecar, and all pauses of causes."""
        await super().release(instance)
        return _NO_STORE

    async def member_list(self) -> Unknown:
        return _NO_STORE


def _since(times: Mapping[str, int], since_us: int) -> dict[str, int]:
    return {name: at for name, at in times.items() if at >= since_us}


def _is_draining(about: str) -> bool:
    description = About.load(about) if about else None
    return description is not None and description.state is State.DRAINING


def _causes(beat: Beat) -> dict[str, int]:
    return {beat.cause or "unknown": 1} if beat.presence is Presence.SUSPECT else {}


def edited(rows: dict[str, R], edits: Mapping[str, R | None]) -> dict[str, R]:
    """The rows after the edits, of which None removes a row."""
    return {name: row for name, row in {**rows, **edits}.items() if row is not None} if edits else rows
