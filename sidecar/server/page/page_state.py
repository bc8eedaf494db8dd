"""The data of the status page: the service first (banner, containers, tokens, time line), then this container.

The page asks for it every two seconds. It is read once for all viewers, and only while there are viewers. While the
store is away, the page shows what was known last, and since when.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.config import shares
from sidecar.config.bound import bound
from sidecar.core.fleet import members as fleet_members
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.members import MemberList
from sidecar.core.types import Entry, Fleet, Hold, Unknown
from sidecar.server import long_answer, unknown_replies
from sidecar.server.history import History
from sidecar.server.page import containers
from sidecar.server.page.banner import Situation, banner
from sidecar.server.page.containers import ContainerFacts
from sidecar.server.unknown_replies import ALONE, within

if TYPE_CHECKING:
    from sidecar.config.settings import BudgetConfig, JudgingConfig
    from sidecar.store.budget import FleetBudget

EVENTS: Final = 200
DETAIL_SHOWN: Final = 4_600
"""Maximum number of characters of an event: its sentence, and as much of the evidence as the page shows."""

EVENTS_SINCE_S: Final = 7 * 24 * 3600.0
EVENTS_PAGE: Final = 100
"""Number of entries that are read in one turn of the loop: with the longest details they take it 2 ms."""

EVENTS_PAGES: Final = 105
MINUTES: Final = 60
BLOCK: Final = 100
"""Number of containers that are read in one turn of the loop."""

FRESH_S: Final = 1.0
"""Viewers that ask within this time get the same answer."""

STORE_WAIT_S: Final = 1.0
"""Maximum time that an answer waits for the store; then it has what was known before."""

STORE_PAUSE_FACTOR: Final = 10
"""The pause after a read of the store is this many times as long as the read, to spare a slow store."""

MAX_PAUSE_S: Final = 30.0

MOST_DEPARTED: Final = 20
NOT_READ: Final = Unknown("timeout")
"""The answer of a store that has not been read yet."""

COUNTED: Final = {"culled": "culls", "would_cull": "culls", "denied": "refusals"}
"""Ledger entries that the time line counts, by the name of their line."""


class PageSources(NamedTuple):
    """The sources of the data.

    ``why``: the local answer to ``GET /why``. ``own``: the name and the ``About`` of this sidecar's own container.
    ``fleet``: the fleet as of the last answered beat, however old, None before the first; ``fleet_age_s``: its age.
    ``error_counts``: the errors of the last hour by minute. ``local_entries(since)``: the entries that this sidecar
    knows, since a Unix second. ``listeners``: their addresses by name. ``store``: the address of the store
    without passwords.
    """

    why: Callable[[], dict[str, Any]]
    own: Callable[[], Mapping[str, Any]]
    history: History
    budget: FleetBudget
    fleet: Callable[[], Fleet | None]
    fleet_age_s: Callable[[], float]
    error_counts: Callable[[], Sequence[int]]
    local_entries: Callable[[float], Sequence[Entry]]
    listeners: Mapping[str, str] = {}
    runbook_url: str = ""
    store: str = ""


class _Known(NamedTuple):
    """What the store said of the fleet at ``at`` (Unix seconds), as JSON values and as the banner reads it."""

    at: float
    fleet: Fleet | None
    rows: Sequence[ContainerFacts] = ()
    budget: dict[str, Any] | None = None
    holds: Sequence[Hold] = ()
    departed: Sequence[tuple[str, float]] = ()


class PageState:
    """Reads the parts of the page as JSON values. ``limit_s``: maximum time to wait for the store.

    ``on_failure`` gets the exception of a read, and the parts stay as they were.
    """

    def __init__(
        self,
        judging: JudgingConfig,
        rules: BudgetConfig,
        sources: PageSources,
        *,
        limit_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.csrf = token_urlsafe(24)
        self._judging = judging
        self._rules = rules
        self._from = sources
        self._limit_s = limit_s
        self._timeline = _Timeline(sources.budget, sources.local_entries, limit_s)
        self._known: _Known | None = None
        self._on_failure = on_failure
        self._lock = asyncio.Lock()
        self._document: list[bytes] = []
        self._written_at = -inf
        self._stored: dict[str, Any] = {}
        self._reading: asyncio.Task[None] | None = None
        self._next_read_at = -inf

    async def document(self) -> list[bytes]:
        """All parts as the pieces of a JSON object; the store's parts may be missing at first, and older later."""
        async with self._lock:
            if time.monotonic() - self._written_at >= FRESH_S:
                await self._refresh()
                parts = {"now": round(time.time(), 3), **self.quick(), **(self._stored or self._first())}
                self._document, self._written_at = await long_answer.written(parts), time.monotonic()
        return self._document

    def hurry(self) -> None:
        """Read all parts for the next answer: an order has changed them."""
        self._written_at = self._next_read_at = -inf

    async def _refresh(self) -> None:
        """Begin to read the store if it is time, and wait for the read a while."""
        if self._reading is None and time.monotonic() >= self._next_read_at:
            self._reading = asyncio.create_task(self._read_store())
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=STORE_WAIT_S)

    async def _read_store(self) -> None:
        begun = time.monotonic()
        try:
            self._stored = await self.slow()
        except Exception as error:  # noqa: BLE001 - the page then shows what it showed before
            self._on_failure(error)
        took_s = time.monotonic() - begun
        self._next_read_at = begun + took_s + min(MAX_PAUSE_S, STORE_PAUSE_FACTOR * took_s)
        self._reading = None

    def quick(self) -> dict[str, Any]:
        """The parts that come from memory: why, the errors of the hour, and what never changes."""
        why = self._from.why()
        del why["at"]  # the page has "now"
        limit, window_s = self._judging.error_limit, self._judging.error_window
        errors = {"limit": limit, "window_s": window_s, "minutes": self._from.error_counts()}
        return {"why": why, "errors": errors, "listeners": dict(self._from.listeners), "csrf": self.csrf}

    def _first(self) -> dict[str, Any]:
        """The banner while the store has not answered for the first time: of the last beat and this container."""
        now = time.time()
        known = self._now_known(now, NOT_READ)
        return {"banner": self._banner(known, None, self._from.why(), now)}

    async def slow(self) -> dict[str, Any]:
        """The parts that come from the store: banner, budget, fleet, containers, holds, time line and events."""
        member_list = await within(self._limit_s, self._from.budget.member_list())
        now, why, unknown = time.time(), self._from.why(), member_list if isinstance(member_list, Unknown) else None
        if isinstance(member_list, MemberList):
            self._known = await self._heard(member_list, now)
        known, is_away = self._now_known(now, unknown), unknown is not None and unknown.error != ALONE
        events, timeline, stored = await self._timeline.read(now, is_away=is_away)
        return {
            "store": unknown_replies.fields(unknown) if unknown else None,
            "known_at": round(known.at) if is_away and known.at else None,
            "banner": self._banner(known, unknown, why, now),
            "budget": known.budget,
            "fleet": _fleet(known, now),
            "holds": self._holds(known.holds),
            "containers": known.rows,
            "timeline": timeline,
            "events": events,
            "stored": stored,
        }

    async def _heard(self, member_list: MemberList, now: float) -> _Known:
        rows, members = dict[str, ContainerFacts](), member_list.members
        for at in range(0, len(members), BLOCK):
            rows |= containers.rows(members[at : at + BLOCK], now=now, beat_s=self._rules.beat_interval)
            await asyncio.sleep(0)  # health answers go between the blocks
        holds = [*member_list.holds, *filter(None, [self._from.budget.local_holds.in_force])]
        of_fleet = containers.with_own(rows, self._from.own())
        return _Known(now, member_list.fleet, of_fleet, self._budget(member_list), holds, member_list.departed)

    def _now_known(self, now: float, unknown: Unknown | None) -> _Known:
        """What was known last, with the newest facts about this container."""
        if unknown is None and self._known is not None:
            return self._known
        if unknown is not None and unknown.error == ALONE:
            local = [self._from.budget.local_holds.in_force] if self._from.budget.local_holds.in_force else []
            return _Known(now, None, containers.with_own({}, self._from.own()), self._own_budget(), local)
        known, heard, heard_at = self._known, self._from.fleet(), now - self._from.fleet_age_s()
        if known is None and heard is not None:
            known = _Known(heard_at, heard, (), _budget_of(heard, self._rules), _holds_of(heard))
        known = known or _Known(0.0, None)
        rows = containers.with_own({row.instance: row for row in known.rows}, self._from.own())
        local = [
            hold for hold in (self._from.budget.local_holds.in_force,) if hold is not None and hold not in known.holds
        ]
        current = [hold for hold in known.holds if hold.until > now]
        return known._replace(rows=rows, holds=[*current, *local])

    def _banner(self, known: _Known, unknown: Unknown | None, why: Mapping[str, Any], now: float) -> dict[str, Any]:
        away_since = now - self._from.fleet_age_s() if self._from.fleet() is not None else None
        is_alone = unknown is not None and unknown.error == ALONE
        alone, is_shadow = str(why.get("alone", "")) if is_alone else "", why.get("mode") == "shadow"
        about_store = (unknown, away_since, alone, is_shadow, now, self._from.store, self._timeline.denials)
        made = banner(Situation(known.fleet, known.rows, known.holds, known.budget, *about_store))
        url = self._from.runbook_url
        return {**made._asdict(), "runbook": f"{url}#{made.anchor}" if url and made.anchor else ""}

    def _budget(self, member_list: MemberList) -> dict[str, Any]:
        """The shared budget, by this sidecar's own settings."""
        fleet, window_s = member_list.fleet.alive + member_list.fleet.down, self._rules.budget_window
        capacity = Share(*shares.parse(self._rules.budget)).at_most(fleet)
        back_at = [round(at + window_s, 3) for at in member_list.grants]
        return budget_row(self._rules, member_list.used, capacity, back_at)

    def _own_budget(self) -> dict[str, Any]:
        """The budget of a sidecar without a shared store."""
        window_s, capacity = self._rules.budget_window, shares.parse(self._rules.budget)[0]
        since = time.time() - window_s
        taken = [each.at for each in self._from.history.newest() if each.what == "granted" and each.at >= since]
        back_at = [round(at + window_s, 3) for at in reversed(taken)]
        return budget_row(self._rules, len(taken), capacity, back_at)

    def _holds(self, holds: Sequence[Hold]) -> list[dict[str, Any]]:
        local = self._from.budget.local_holds.in_force
        return [{**(fleet_members.hold_json(hold) or {}), "here_only": hold is local} for hold in holds]


def budget_row(rules: BudgetConfig, used: int, capacity: int, back_at: Sequence[float]) -> dict[str, Any]:
    """The budget as JSON values; ``back_at``: when each token in use comes back, in Unix seconds."""
    window_s = rules.budget_window
    return {
        "used": used,
        "capacity": capacity,
        "window_s": window_s,
        "back_at": back_at,
        "bound": bound(rules, capacity),
    }


def _budget_of(fleet: Fleet, rules: BudgetConfig) -> dict[str, Any] | None:
    """The budget as of a beat, which does not say when tokens come back."""
    if not fleet.capacity:
        return None
    return budget_row(rules, fleet.used, fleet.capacity, [])


def _holds_of(fleet: Fleet) -> list[Hold]:
    return [fleet.hold] if fleet.hold else []


def _fleet(known: _Known, now: float) -> dict[str, Any] | None:
    """The fleet as JSON values; the end of a pause as an instant, because durations would change at every read."""
    fleet = known.fleet
    if fleet is None:
        return None
    shown = fleet_members.fleet_json(fleet)
    for trial in shown["trials"]:
        left_s = trial.pop("paused_s")
        trial["paused_until"] = _steady(known.at + left_s) if left_s > 0 else None
    departed = [{"instance": name, "at": _steady(now - age_s)} for name, age_s in known.departed[:MOST_DEPARTED]]
    return {**shown, "departed": departed, "departed_count": len(known.departed)}


def _steady(at: float) -> int:
    """An instant that was computed from a duration: rounded, or it would differ at every read."""
    return round(at / containers.ROUNDED_S) * containers.ROUNDED_S


class _Timeline:
    """The newest events, and the culls and refusals of the last hour; each entry is read once."""

    def __init__(self, budget: FleetBudget, local: Callable[[float], Sequence[Entry]], limit_s: float) -> None:
        self._budget = budget
        self._local = local
        self._limit_s = limit_s
        self._newest: deque[Entry] = deque(maxlen=EVENTS)
        self._counts: dict[str, dict[int, int]] = {line: {} for line in COUNTED.values()}
        self._errors: Mapping[int, int] = {}
        self._after = ""

    @property
    def denials(self) -> list[Entry]:
        """The refusals among the newest entries."""
        return [entry for entry in self._newest if entry.what == "denied"]

    async def read(self, now: float, *, is_away: bool) -> tuple[list[dict[str, Any]], dict[str, Any], bool]:
        """The events, oldest first, the time line, and whether the store has answered.

        Without the store the events are those that were read before, and this sidecar's own.
        """
        is_stored = not is_away and await self._read(now - EVENTS_SINCE_S)
        if is_stored:
            minutes = await within(self._limit_s, self._budget.error_minutes())
            self._errors = self._errors if isinstance(minutes, Unknown) else minutes
        newest: list[Entry] = list(self._newest)
        if not is_stored:
            last = newest[-1].at if newest else 0.0
            newest = [*newest, *(entry for entry in self._local(now - EVENTS_SINCE_S) if entry.at > last)][-EVENTS:]
        return [_event(entry) for entry in newest], self._line(now), is_stored

    async def _read(self, since: float) -> bool:
        for _ in range(EVENTS_PAGES):
            page = await within(self._limit_s, self._budget.entries(since, self._after, EVENTS_PAGE))
            if isinstance(page, Unknown):
                return False
            for entry in page:
                self._count(entry)
            if page:
                self._newest.extend(page)
                self._after = page[-1].id
            if len(page) < EVENTS_PAGE:
                break
        return True

    def _count(self, entry: Entry) -> None:
        if (line := COUNTED.get(entry.what)) is not None:
            minute = int(entry.at // 60)
            self._counts[line][minute] = self._counts[line].get(minute, 0) + 1

    def _line(self, now: float) -> dict[str, Any]:
        """Sixty counts each, oldest first, beginning with the minute ``start`` (Unix time / 60)."""
        start = int(now // 60) - MINUTES + 1
        for counts in self._counts.values():
            for minute in [minute for minute in counts if minute < start]:
                del counts[minute]
        lines = {"errors": self._errors, **self._counts}
        shown = {
            name: [counts.get(minute, 0) for minute in range(start, start + MINUTES)] for name, counts in lines.items()
        }
        return {"start": start, **shown}


def _event(entry: Entry) -> dict[str, Any]:
    fields = entry._replace(detail=entry.detail[:DETAIL_SHOWN])._asdict()
    del fields["once"]
    return fields
