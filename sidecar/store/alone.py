"""The store of a container alone, in the memory of its sidecar: tables, tokens and a ledger, without a fleet.

It keeps the bound on grants as ``commit.lua`` does, and knows a single member. Its coroutines never wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot
from sidecar.core.fleet.view import BeatReply, Edits, Listing, View, member_of, settings_in_force
from sidecar.core.types import US_PER_S, Beat, Entry, Presence
from sidecar.store.protocol import (
    ERRORS_KEPT_MIN,
    MAX_CAUSES,
    NOTED_S,
    OTHER,
    SHARED_S,
    Conflict,
    Over,
    member_row,
)

R = TypeVar("R")
W = TypeVar("W", str, str | Entry)

MAX_EVENTS: Final = 1000
"""Maximum number of entries in the ledger, which takes memory of this process."""

_NO_ROW: Final = ("", "", "0")


class AloneStore:
    """``clock_us`` gives the store's time in microseconds; its ledger has ``events_max`` entries.

    ``run_id`` names its process.
    """

    def __init__(self, clock_us: Callable[[], int], *, events_max: int = MAX_EVENTS, run_id: str = "memory") -> None:
        self._clock_us = clock_us
        self.run_id = run_id
        self._revision = 0
        self.state, self.epoch = FleetState(), Epoch()
        self.culls: dict[str, Cull] = {}
        self.leases: dict[str, Slot] = {}
        self.holds: dict[str, HoldRow] = {}
        self._grants: dict[str, int] = {}
        self._refunded: dict[str, int] = {}
        self._counters: dict[str, tuple[int, int]] = {}
        self._minutes: Counter[int] = Counter()
        self._events = MemoryLedger(events_max)
        self._settings = ""
        self._row, self._beat_us, self._errors = "", 0, -1
        self._control: Counter[str] = Counter()

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        now_us, member = self._clock_us(), member_of(self._row)
        is_alive = bool(self._row) and abs(now_us - self._beat_us) <= expiry_us
        heard = {self._settings: self._beat_us} if self._settings else {}
        return View(
            now_us,
            self.state,
            self.epoch,
            _since(self._grants, now_us - 2 * window_us),
            frozenset(_since(self._refunded, now_us - 2 * window_us)),
            revision=self._revision,
            run_id=self.run_id,
            culls=self.culls,
            leases=self.leases,
            holds=self.holds,
            settings=settings_in_force(heard, now_us),
            settings_texts=tuple(heard),
            alive=int(is_alive),
            beating={instance: member.incarnation} if is_alive and instance in self.culls else {},
            newest_us=self._beat_us,
            causes=self._causes(),
            control=dict(self._control),
            incarnation=member.incarnation,
            identity=member.identity,
            seen_us=self._beat_us if self._row else 0,
            median_errors=self._errors,
        )

    async def commit(self, revision: int, edits: Edits) -> int:
        now_us = self._clock_us()
        if revision != self._revision:
            raise Conflict
        if edits.grant and self._is_over(edits, now_us):
            raise Over
        self._events.note(edits.entries, now_us)
        self._revision = max(self._revision + 1, now_us)
        self.state, self.epoch = edits.state or self.state, edits.epoch or self.epoch
        self.culls = _edited(self.culls, edits.culls)
        self.leases = _edited(self.leases, edits.leases)
        self.holds = _edited(self.holds, edits.holds)
        self._write_tokens(edits, now_us)
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:  # noqa: ARG002 - a member alone does not fall silent for itself
        now_us, former = self._clock_us(), self._row
        is_leaving = beat.presence in (Presence.DOWN, Presence.GONE)
        self._change("" if is_leaving else member_row(beat), is_well=beat.presence is Presence.WELL)
        self._beat_us, self._errors = now_us, -1 if is_leaving else beat.errors
        self._settings = settings
        return BeatReply(
            now_us=now_us,
            epoch=self.epoch,
            state=self.state,
            alive=int(not is_leaving),
            former=former,
            causes=self._causes(),
            median_errors=self._errors,
            holds=(self.holds.get(""), self.holds.get(beat.instance)),
            used=self._used(now_us - window_us),
            run_id=self.run_id,
        )

    def has_lost_connection(self) -> bool:
        """Never: there is no connection."""
        return False

    async def members(self, *, most: int, since_us: int) -> Listing:  # noqa: ARG002 - there are none
        """Nobody: a container alone has no fleet to list."""
        return Listing()

    async def count(self, key: str, window_s: int) -> int:
        now_us = self._clock_us()
        number, until_us = self._counters.get(key, (0, 0))
        self._counters = {name: counter for name, counter in self._counters.items() if counter[1] > now_us}
        self._counters[key] = (number + 1 if until_us > now_us else 1, now_us + window_s * US_PER_S)
        return self._counters[key][0]

    async def add_errors(self, minutes: Mapping[int, int]) -> int:
        now = self._clock_us() // (60 * US_PER_S)
        added = {minute: count for minute, count in minutes.items() if abs(now - minute) < ERRORS_KEPT_MIN}
        kept = {minute: count for minute, count in self._minutes.items() if abs(now - minute) < ERRORS_KEPT_MIN}
        self._minutes = Counter(kept)
        self._minutes.update(added)
        return sum(added.values())

    async def error_minutes(self) -> Mapping[int, int]:
        return dict(self._minutes)

    async def note(self, entries: Sequence[Entry]) -> int:
        return self._events.note(entries, self._clock_us())

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        return self._events.entries(since, after, most)

    async def first(self, word: str, for_s: float) -> bool:
        return self._events.first(word, for_s, self._clock_us())

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _used(self, since_us: int) -> int:
        return len(_since(self._grants, since_us)) - len(_since(self._refunded, since_us))

    def _is_over(self, edits: Edits, now_us: int) -> bool:
        others = _since(self._grants, now_us - edits.window_us).keys() - {edits.grant}
        return 0 < edits.capacity <= len(others - self._refunded.keys()) or 0 < edits.most <= len(others)

    def _write_tokens(self, edits: Edits, now_us: int) -> None:
        claim, window_us = edits.grant, edits.window_us
        is_renewed = self._grants.get(claim, -1) >= now_us - window_us
        oldest_us = now_us - 2 * window_us if window_us else 0
        # A clock that has stepped back must not block the budget.
        self._grants, self._refunded = (
            {name: min(at, now_us) for name, at in times.items() if at >= oldest_us}
            for times in (self._grants, self._refunded)
        )
        if claim:
            self._grants[claim] = now_us
            if self._refunded.pop(claim, None) is not None and is_renewed:
                self._refunded[claim] = now_us
        self._refunded |= {name: self._grants[name] for name in edits.refund if name in self._grants}

    # -- the member -------------------------------------------------------------------------------------------------

    def _causes(self) -> dict[str, int]:
        cause = _parts(self._row)[1]
        return {cause: 1} if cause else {}

    def _change(self, row: str, *, is_well: bool) -> None:
        """Take another row, and count a suspect that was refused a token, or how its illness ended."""
        incarnation, cause, refused = _parts(row)
        former_incarnation, former_cause, was_refused = _parts(self._row)
        is_same = incarnation == former_incarnation
        goes_on = bool(cause) and is_same and cause == former_cause
        if goes_on and refused <= was_refused:
            return  # a suspect that was refused stays so while it is a suspect
        if was_refused == "1" and not goes_on:
            self._count("recovered" if is_well and is_same else "ended", former_cause)
        if refused == "1":
            self._count("refused", cause)
        self._row = row

    def _count(self, word: str, cause: str) -> None:
        is_own = f"refused|{cause}" in self._control or len(self._control) < MAX_CAUSES
        self._control[f"{word}|{cause if is_own else OTHER}"] += 1


class MemoryLedger:
    """The last ``most`` entries, in order. Time is an argument, in microseconds, and does not go backwards here."""

    def __init__(self, most: int) -> None:
        self._entries: deque[tuple[tuple[int, int], Entry]] = deque(maxlen=most)
        self._most = most
        self._last = (0, 0)
        self._noted: dict[str | Entry, int] = {}
        self._first: dict[str, int] = {}

    def note(self, entries: Iterable[Entry], now_us: int) -> int:
        """Write entries, each once; return how many were new."""
        self._noted = _still(self._noted, now_us)
        return sum(self._note(entry, now_us) for entry in entries)

    def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most ``most`` entries after the id ``after``, or since ``since`` (Unix seconds) if that is no id."""
        start = _number_of(after) or (round(since * 1000), -1)
        return [entry for number, entry in self._entries if number > start][:most]

    def first(self, word: str, for_s: float, now_us: int) -> bool:
        """Whether this is the first call with ``word`` within the ``for_s`` of the earlier call."""
        self._first = _still(self._first, now_us)
        if word in self._first:
            return False
        self._first[word] = now_us + round(for_s * US_PER_S)
        return True

    def append(self, entry: Entry, now_us: int) -> None:
        """Write an entry, even if it was written before."""
        ms = max(now_us // 1000, self._last[0])
        self._last = (ms, self._last[1] + 1 if ms == self._last[0] else 0)
        name = f"{ms}-{self._last[1]}"
        self._entries.append((self._last, entry._replace(at=entry.at or ms / 1000, once="", id=name)))

    def _note(self, entry: Entry, now_us: int) -> bool:
        word: str | Entry = entry.once or entry
        if word in self._noted:
            return False
        self._noted[word] = now_us + (SHARED_S if entry.once else NOTED_S) * US_PER_S
        if len(self._noted) > self._most:
            del self._noted[min(self._noted, key=self._noted.__getitem__)]
        self.append(entry, now_us)
        return True


def _parts(row: str) -> tuple[str, ...]:
    """The incarnation with the identity, the cause, and ``1`` for a suspect that was refused."""
    return tuple(row.rsplit("\n", 2)) if row else _NO_ROW


def _edited(rows: dict[str, R], edits: Mapping[str, R | None]) -> dict[str, R]:
    return {name: row for name, row in {**rows, **edits}.items() if row is not None} if edits else rows


def _since(times: Mapping[str, int], since_us: int) -> dict[str, int]:
    return {name: at for name, at in times.items() if at >= since_us}


def _still(until: dict[W, int], now_us: int) -> dict[W, int]:
    return {word: over_us for word, over_us in until.items() if over_us > now_us}


def _number_of(entry_id: str) -> tuple[int, int] | None:
    ms, dash, number = entry_id.partition("-")
    return (int(ms), int(number)) if dash and ms.isdecimal() and number.isdecimal() else None
