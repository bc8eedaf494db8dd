"""The store of a whole fleet in the memory of one process: it does what the Lua scripts do, in their bounds.

Its coroutines never wait. The contract (``tests/store``) holds it to the store on Redis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf

from sidecar.core.claims import Beat, Presence
from sidecar.core.fleet.records import HoldRow, Slot
from sidecar.core.fleet.view import (
    AHEAD_US,
    BeatReply,
    Edits,
    Listing,
    MemberKey,
    View,
    member_row,
    settings_in_force,
)
from sidecar.core.types import Entry
from sidecar.store.alone import AloneStore, edited
from sidecar.store.protocol import (
    MAX_CAUSES,
    MAX_STRUCK,
    NOTED_S,
    OTHER,
    SHARED_S,
    Conflict,
    Over,
)

MAX_DEPARTED = 10_000
"""As in ``beat.lua``."""


class Scores(dict[str, int]):
    """Names with a score each. Bounds are closed."""

    def within(self, least: float, most: float = inf) -> dict[str, int]:
        """Names and scores within the bounds, ordered by score and then by name, as Redis has them."""
        pairs = [(score, name) for name, score in self.items() if least <= score <= most]
        return {name: score for score, name in sorted(pairs)}

    def count(self, least: float, most: float = inf) -> int:
        """The number of scores within the bounds."""
        return sum(least <= score <= most for score in self.values())

    def remove_within(self, least: float, most: float = inf) -> None:
        """Remove the names whose score is within the bounds."""
        for name in self.within(least, most):
            del self[name]

    def median(self) -> int:
        """The upper median; -1 without scores."""
        return sorted(self.values())[len(self) // 2] if self else -1


class MemoryStore(AloneStore):
    """The store of one service, with all its members. Arguments as for a container alone."""

    def __init__(self, clock_us: Callable[[], int], *, run_id: str = "memory") -> None:
        super().__init__(clock_us, run_id=run_id)
        self.revision = 0
        self.leases: dict[str, Slot] = {}
        self.holds: dict[str, HoldRow] = {}
        self._heard = Scores()
        self._roster = _Roster()

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        now_us, roster = self._clock_us(), self._roster
        recent = (now_us - expiry_us, now_us + AHEAD_US)
        heard = self._heard.within(0)
        return (await super().read(instance, window_us=window_us, expiry_us=expiry_us))._replace(
            revision=self.revision,
            leases=self.leases,
            holds=self.holds,
            settings=settings_in_force(heard, now_us),
            settings_texts=tuple(heard),
            alive=roster.alive.count(*recent),
            beating={
                name: MemberKey.load(roster.rows[name]).incarnation
                for name in self.culls
                if roster.has_recent_beat(name, *recent)
            },
            newest_us=max(roster.alive.values(), default=0),
            causes=dict(roster.causes),
            control=dict(roster.control),
            member=MemberKey.load(roster.rows.get(instance, "")),
            seen_us=roster.alive.get(instance, 0),
            departed_us=roster.departed.get(instance, 0),
            median_errors=roster.medians()[0],
        )

    async def commit(self, revision: int, edits: Edits) -> int:
        now_us = self._clock_us()
        if revision != self.revision:
            raise Conflict
        if edits.grant and self._is_over(edits, now_us):
            raise Over
        claim = edits.grant
        keeps_refund = claim in self.refunded and self.grants[claim] >= now_us - edits.window_us
        await super().commit(revision, edits)
        self.leases, self.holds = edited(self.leases, edits.leases), edited(self.holds, edits.holds)
        if keeps_refund:
            self.refunded[claim] = now_us
        self.revision = max(self.revision + 1, now_us)
        for name, row in edits.culls.items():
            if row is None and name not in self._roster.alive:
                self._roster.abouts.pop(name, None)
        return now_us

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        now_us, roster = self._clock_us(), self._roster
        former = roster.take_in(beat, now_us, window_us, is_culled=beat.instance in self.culls)
        members = len(roster.alive)
        silent, struck = roster.strike_off(now_us, window_us, expiry_us)
        self._heard[settings] = now_us
        if len(self._heard) > 1:
            self._heard.remove_within(0, now_us - window_us - 1)
            self._heard.remove_within(now_us + AHEAD_US + 1)
        median_errors, median_ratio = roster.medians()
        return BeatReply(
            now_us=now_us,
            epoch=self.epoch,
            state=self.state,
            alive=members,
            silent=silent,
            struck=struck,
            former=former,
            causes=dict(roster.causes),
            settings=self._heard.count(now_us - expiry_us) if len(self._heard) > 1 else 1,
            median_errors=median_errors,
            median_ratio=median_ratio,
            holds={scope: self.holds[scope] for scope in ("", beat.instance) if scope in self.holds},
            used=len(
                [claim for claim, at in self.grants.items() if at >= now_us - window_us and claim not in self.refunded]
            ),
            run_id=self.run_id,
            draining=sum(roster.abouts.get(name, "").startswith("draining|") for name in self.culls),
        )

    async def members(self, *, most: int, since_us: int) -> Listing:
        roster = self._roster
        shown = sorted(roster.alive.items())[:most]
        rows = [(name, at, roster.rows.get(name, ""), roster.abouts.get(name, "")) for name, at in shown]
        left = list(reversed(roster.departed.within(since_us + 1).items()))[:most]
        culled = {name: roster.abouts[name] for name in self.culls if name in roster.abouts}
        return Listing(rows, [(name, at) for name, at in left if name not in roster.alive], culled)

    async def note(self, entries: Sequence[Entry]) -> int:
        """Write entries; one that a sidecar sends again is written once."""
        new = [
            entry
            for entry in entries
            if await self.first(f"entry {entry.once or entry}", SHARED_S if entry.once else NOTED_S)
        ]
        return await super().note([entry._replace(once="") for entry in new])

    def _is_over(self, edits: Edits, now_us: int) -> bool:
        others = {name for name, at in self.grants.items() if at >= now_us - edits.window_us} - {edits.grant}
        return 0 < edits.capacity <= len(others - self.refunded.keys()) or 0 < edits.most <= len(others)


class _Roster:
    """The members, and the numbers of suspects per cause."""

    def __init__(self) -> None:
        self.alive, self.departed = Scores(), Scores()
        self.errors, self.ratios = Scores(), Scores()
        self.rows: dict[str, str] = {}
        self.abouts: dict[str, str] = {}
        self.causes: Counter[str] = Counter()
        self.control: Counter[str] = Counter()

    def has_recent_beat(self, name: str, oldest_us: int, latest_us: int) -> bool:
        at = self.alive.get(name)
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
        self.alive[name] = now_us
        self.errors[name] = beat.errors
        if beat.ratio is None:
            self.ratios.pop(name, None)
        else:
            self.ratios[name] = beat.ratio
        if row != former:
            self._change(name, row, former, is_well=beat.presence is Presence.WELL)
        if beat.about:
            self.abouts[name] = beat.about
        return former

    def medians(self) -> tuple[int, int]:
        """The upper medians of the errors and of the ratios; -1 without any."""
        return self.errors.median(), self.ratios.median()

    def strike_off(self, now_us: int, window_us: int, expiry_us: int) -> tuple[int, tuple[str, ...]]:
        """Remove silent members; return the number of silent ones, and the removed ones."""
        oldest, latest = now_us - expiry_us, now_us + AHEAD_US
        silent = len(self.alive) - self.alive.count(oldest, latest)
        if not silent:
            return 0, ()
        struck = list(self.alive.within(0, oldest - 1) or self.alive.within(latest + 1))[:MAX_STRUCK]
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
                scores.pop(name, None)
            if is_departure:
                self.departed[name] = now_us
        self.departed.remove_within(0, now_us - 2 * window_us - 1)
        for name in list(self.departed.within(0))[:-MAX_DEPARTED]:
            del self.departed[name]
