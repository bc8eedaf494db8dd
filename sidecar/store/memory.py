"""The store in the memory of one process: it does what the three Lua scripts do, in the same order and bounds.

Its coroutines never wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from sidecar.core.fleet.raw import BeatReply, Listing, Raw
from sidecar.core.fleet.view import AHEAD_US
from sidecar.core.types import US_PER_S, Beat, Entry, Presence
from sidecar.store.memory_ledger import MemoryLedger
from sidecar.store.protocol import (
    ERRORS_KEPT_MIN,
    MAX_CAUSES,
    MAX_DEPARTED,
    MAX_STRUCK,
    OTHER,
    Changes,
    Conflict,
    Over,
    StoreError,
    member_row,
)
from sidecar.store.sorted_set import SortedSet

MAX_EVENTS: Final = 1000
"""Maximum number of entries in the ledger, which takes memory of this process."""

_RECORDS: Final = frozenset({"epoch", "state"})


class MemoryStore:
    """The store of one service. ``clock_us`` gives its time in microseconds; its ledger has ``events_max`` entries.

    ``run_id`` names its process, as in ``Raw``.
    """

    def __init__(self, clock_us: Callable[[], int], *, events_max: int = MAX_EVENTS, run_id: str = "memory") -> None:
        self._clock_us = clock_us
        self._run_id = run_id
        self._revision = 0
        self._tables: dict[str, dict[str, str]] = {"state": {}, "culls": {}, "leases": {}, "holds": {}}
        self._settings = SortedSet()
        self._grants, self._refunded = SortedSet(), SortedSet()
        self._counters: dict[str, tuple[int, int]] = {}
        self._minutes: Counter[int] = Counter()
        self._events = MemoryLedger(events_max)
        self._roster = _Roster()

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> Raw:
        now_us, roster = self._clock_us(), self._roster
        recent = (now_us - expiry_us, now_us + AHEAD_US)
        newest = roster.alive.at(-1)
        culls = self._tables["culls"]
        beating = {name: roster.rows[name] for name in culls if roster.has_recent_beat(name, *recent)}
        return Raw(
            now_us=now_us,
            revision=self._revision,
            epoch=self._tables["state"].get("epoch", ""),
            state=self._tables["state"].get("state", ""),
            culls=dict(culls),
            leases=dict(self._tables["leases"]),
            holds=dict(self._tables["holds"]),
            settings=dict(self._settings),
            alive=roster.alive.count(*recent),
            beating=beating,
            newest_us=newest[1] if newest else 0,
            causes=dict(roster.causes),
            control=dict(roster.control),
            grants=self._grants.within(now_us - 2 * window_us),
            refunded=frozenset(self._refunded.within(now_us - 2 * window_us)),
            member=roster.rows.get(instance, ""),
            seen_us=roster.alive.score(instance) or 0,
            departed_us=roster.departed.score(instance) or 0,
            run_id=self._run_id,
            median_errors=roster.medians()[0],
        )

    async def commit(self, revision: int, changes: Changes) -> int:
        now_us = self._clock_us()
        if revision != self._revision:
            raise Conflict
        if not all(write.table in self._tables for write in changes.writes) or not _RECORDS.issuperset(
            write.name for write in changes.writes if write.table == "state"
        ):
            raise StoreError("response")
        if changes.grant and self._is_over(changes, now_us):
            raise Over
        self._events.note(changes.entries, now_us)
        self._revision = max(self._revision + 1, now_us)
        for table, name, text in changes.writes:
            if text:
                self._tables[table][name] = text
            else:
                self._tables[table].pop(name, None)
                if table == "culls" and name not in self._roster.alive:
                    self._roster.abouts.pop(name, None)
        self._write_tokens(changes, now_us)
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        now_us, roster = self._clock_us(), self._roster
        former = roster.take_in(beat, now_us, window_us, is_culled=beat.instance in self._tables["culls"])
        members = len(roster.alive)
        silent, struck = roster.strike_off(now_us, window_us, expiry_us)
        self._settings.put(settings, now_us)
        if len(self._settings) > 1:
            self._settings.remove_within(0, now_us - window_us - 1)
            self._settings.remove_within(now_us + AHEAD_US + 1)
        state, holds = self._tables["state"], self._tables["holds"]
        median_errors, median_ratio = roster.medians()
        return BeatReply(
            now_us=now_us,
            epoch=state.get("epoch", ""),
            state=state.get("state", ""),
            alive=members,
            silent=silent,
            struck=struck,
            former=former,
            causes=dict(roster.causes),
            policies=self._settings.count(now_us - expiry_us) if len(self._settings) > 1 else 1,
            median_errors=median_errors,
            median_ratio=median_ratio,
            holds=(holds.get("", ""), holds.get(beat.instance, "")),
            used=self._grants.count(now_us - window_us) - self._refunded.count(now_us - window_us),
            run_id=self._run_id,
        )

    def has_lost_connection(self) -> bool:
        """Never: there is no connection."""
        return False

    async def members(self, *, most: int, since_us: int) -> Listing:
        roster = self._roster
        shown = sorted(roster.alive)[:most]
        rows = [(name, at, roster.rows.get(name, ""), roster.abouts.get(name, "")) for name, at in shown]
        left = list(reversed(roster.departed.within(since_us + 1).items()))[:most]
        culled = {name: roster.abouts[name] for name in self._tables["culls"] if name in roster.abouts}
        return Listing(rows, [(name, at) for name, at in left if name not in roster.alive], culled)

    async def count(self, key: str, window_s: int) -> int:
        now_us = self._clock_us()
        number, until_us = self._counters.get(key, (0, 0))
        self._counters = {one: kept for one, kept in self._counters.items() if kept[1] > now_us}
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

    def _is_over(self, changes: Changes, now_us: int) -> bool:
        since = now_us - changes.window_us
        at = self._grants.score(changes.grant)
        is_renewed = at is not None and at >= since
        made = self._grants.count(since) - is_renewed
        used = made - self._refunded.count(since) + (is_renewed and changes.grant in self._refunded)
        return 0 < changes.capacity <= used or 0 < changes.most <= made

    def _write_tokens(self, changes: Changes, now_us: int) -> None:
        claim, window_us = changes.grant, changes.window_us
        at = self._grants.score(claim)
        is_renewed = at is not None and at >= now_us - window_us
        is_refunded = claim in self._refunded
        for times in (self._grants, self._refunded):
            for name in times.within(now_us + 1):
                times.put(name, now_us)  # a clock that has stepped back must not block the budget
            if window_us:
                times.remove_within(0, now_us - 2 * window_us - 1)
        if claim:
            self._grants.put(claim, now_us)
            self._refunded.remove(claim)
        back = (*changes.refund, claim) if is_refunded and is_renewed else changes.refund
        for name in back:
            granted_us = self._grants.score(name)
            if granted_us is not None:
                self._refunded.put(name, granted_us)


class _Roster:
    """The members, and the numbers of suspects per cause."""

    def __init__(self) -> None:
        self.alive, self.departed = SortedSet(), SortedSet()
        self.errors, self.ratios = SortedSet(), SortedSet()
        self.rows: dict[str, str] = {}
        self.abouts: dict[str, str] = {}
        self.causes: Counter[str] = Counter()
        self.control: Counter[str] = Counter()

    def has_recent_beat(self, name: str, oldest_us: int, latest_us: int) -> bool:
        at = self.alive.score(name)
        return at is not None and oldest_us <= at <= latest_us

    def take_in(self, beat: Beat, now_us: int, window_us: int, *, is_culled: bool) -> str:
        """Record the beat; return the former row of the instance."""
        name, row = beat.instance, member_row(beat)
        former = self.rows.get(name, "")
        if beat.presence in (Presence.DOWN, Presence.GONE):
            about = self.abouts.get(name, "")
            self._leave([name], now_us, window_us, is_departure=beat.presence is Presence.GONE)
            if is_culled and beat.presence is Presence.DOWN and (beat.about or about):
                self.abouts[name] = beat.about or about
            return former
        self.alive.put(name, now_us)
        self.errors.put(name, beat.errors)
        if beat.ratio is None:
            self.ratios.remove(name)
        else:
            self.ratios.put(name, beat.ratio)
        if row != former:
            self._change(name, row, former, is_well=beat.presence is Presence.WELL)
        if beat.about:
            self.abouts[name] = beat.about
        return former

    def medians(self) -> tuple[int, int]:
        """The upper medians of the errors and of the ratios; -1 without any."""
        return _median(self.errors), _median(self.ratios)

    def strike_off(self, now_us: int, window_us: int, expiry_us: int) -> tuple[int, tuple[str, ...]]:
        """Remove silent members; return the number of silent ones, and the removed ones."""
        oldest, latest = now_us - expiry_us, now_us + AHEAD_US
        silent = len(self.alive) - self.alive.count(oldest, latest)
        if not silent:
            return 0, ()
        struck = self.alive.within(0, oldest - 1, MAX_STRUCK) or self.alive.within(latest + 1, limit=MAX_STRUCK)
        self._leave(struck, now_us, window_us, is_departure=True)
        return silent, tuple(struck)

    def _change(self, name: str, row: str, former: str, *, is_well: bool) -> None:
        life, cause, refused = row.rsplit("\n", 2)
        former_life, former_cause, was_refused = former.rsplit("\n", 2) if former else ("", "", "0")
        is_known_life = bool(former) and life == former_life
        if cause and len(self.causes) >= MAX_CAUSES and cause not in self.causes:
            cause = OTHER
        goes_on = bool(cause) and is_known_life and cause == former_cause
        if goes_on and refused <= was_refused:
            return  # a suspect that was refused stays so while it is a suspect
        if cause and not self.causes and len(self.control) >= MAX_CAUSES:
            self.control.clear()  # there was no suspect: drop the counts of old causes
        if not goes_on:
            self._uncount(former, "recovered" if is_well and is_known_life else "ended")
            if cause:
                self.causes[cause] += 1
        if refused == "1":
            self._count("refused", cause)
        self.rows[name] = f"{life}\n{cause}\n{refused}"

    def _uncount(self, row: str, word: str) -> None:
        _, cause, was_refused = row.rsplit("\n", 2) if row else ("", "", "0")
        if not cause:
            return
        self.causes[cause] -= 1
        if not self.causes[cause]:
            del self.causes[cause]
        if was_refused == "1":
            self._count(word, cause)

    def _count(self, word: str, cause: str) -> None:
        is_own = f"refused|{cause}" in self.control or len(self.control) < MAX_CAUSES
        self.control[f"{word}|{cause if is_own else OTHER}"] += 1

    def _leave(self, names: Iterable[str], now_us: int, window_us: int, *, is_departure: bool) -> None:
        for name in names:
            self._uncount(self.rows.pop(name, ""), "ended")
            self.abouts.pop(name, None)
            for scores in (self.alive, self.errors, self.ratios):
                scores.remove(name)
            if is_departure:
                self.departed.put(name, now_us)
        self.departed.remove_within(0, now_us - 2 * window_us - 1)
        while len(self.departed) > MAX_DEPARTED and (oldest := self.departed.at(0)):
            self.departed.remove(oldest[0])


def _median(scores: SortedSet) -> int:
    """The upper median; -1 without scores."""
    middle = scores.at(len(scores) // 2) if scores else None
    return middle[1] if middle else -1
