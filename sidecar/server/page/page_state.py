"""The data of the status page: the service first (banner, containers, tokens, events), then this container.

The page asks for it every two seconds. It is read once for all viewers, and only while there are viewers. While the
store is away, the page shows what was known last, and since when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.config import syntax
from sidecar.core.claims import Fleet, Unknown
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.members import About, MemberList, fleet_json, hold_json
from sidecar.core.types import Entry, Hold
from sidecar.server import long_answer, unknown_replies
from sidecar.server.page.banner import Situation, banner
from sidecar.server.page.containers import ContainerFacts, own_row, row_of, steady
from sidecar.server.page.timeline import Timeline
from sidecar.server.unknown_replies import ALONE, within

if TYPE_CHECKING:
    from sidecar.config.settings import BudgetConfig
    from sidecar.store.budget import FleetBudget

BLOCK: Final = 100
"""Number of containers that are read in one turn of the loop."""

FRESH_S: Final = 1.0
"""Viewers that ask within this time get the same answer."""

STORE_WAIT_S: Final = 1.0
"""Maximum time that an answer waits for the store; then it has what was known before."""

MOST_DEPARTED: Final = 20


class PageSources(NamedTuple):
    """The sources of the data."""

    instance: str
    own: Callable[[], About]
    """What only this sidecar knows of its own container."""
    why: Callable[[], dict[str, Any]]
    """The local answer to ``GET /why``."""
    budget: FleetBudget
    fleet: Callable[[], Fleet | None]
    """The fleet as of the last answered beat, however old, None before the first."""
    fleet_age_s: Callable[[], float]
    """Seconds since that beat."""
    local_entries: Callable[[float], Sequence[Entry]]
    """The entries that this sidecar knows, since a Unix second."""
    listeners: Mapping[str, str] = {}
    """Addresses by name."""
    runbook_url: str = ""
    store: str = ""
    """The address of the store without passwords."""


class _Known(NamedTuple):
    """What the store said of the fleet at ``at`` (Unix seconds)."""

    at: float
    fleet: Fleet | None
    rows: Mapping[str, ContainerFacts] = {}
    budget: dict[str, Any] | None = None
    holds: Sequence[Hold] = ()
    departed: Sequence[tuple[str, float]] = ()
    """Names, and the seconds since they have left."""


class PageState:
    """Reads the parts of the page as JSON values. ``limit_s``: maximum time to wait for the store.

    ``on_failure`` gets the exception of a read, and the parts stay as they were.
    """

    def __init__(
        self,
        rules: BudgetConfig,
        sources: PageSources,
        *,
        limit_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.csrf = token_urlsafe(24)
        self._rules = rules
        self._from = sources
        self._limit_s = limit_s
        self._timeline = Timeline(sources.budget, sources.local_entries, limit_s)
        self._known: _Known | None = None
        self._on_failure = on_failure
        self._lock = asyncio.Lock()
        self._document: list[bytes] = []
        self._written_at = -inf
        self._stored: dict[str, Any] = {}
        self._reading: asyncio.Task[None] | None = None

    # -- when it is read ------------------------------------------------------------------------------------------

    async def document(self) -> list[bytes]:
        """All parts as the pieces of a JSON object; the store's parts may be missing at first, and older later."""
        async with self._lock:
            if time.monotonic() - self._written_at >= FRESH_S:
                await self._refresh()
                now = time.time()
                stored = self._stored or {"banner": self._banner(self._last_known(), None, now)}
                parts = {"now": round(now, 3), **self.quick(), **stored}
                self._document, self._written_at = await long_answer.written(parts), time.monotonic()
        return self._document

    def hurry(self) -> None:
        """Read all parts for the next answer: an order has changed them."""
        self._written_at = -inf

    async def _refresh(self) -> None:
        """Read the store, or go on with the read that is under way, and wait for it a while."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_store())
        await asyncio.wait((self._reading,), timeout=STORE_WAIT_S)

    async def _read_store(self) -> None:
        try:
            self._stored = await self.slow()
        except Exception as error:  # noqa: BLE001 - the page then shows what it showed before
            self._on_failure(error)

    # -- what it says ---------------------------------------------------------------------------------------------

    def quick(self) -> dict[str, Any]:
        """The parts that come from memory: why, and what never changes."""
        why = self._from.why()
        del why["at"]  # the page has "now"
        return {"why": why, "listeners": dict(self._from.listeners), "csrf": self.csrf}

    async def slow(self) -> dict[str, Any]:
        """The parts that come from the store: banner, budget, fleet, containers, holds and events."""
        answer = await within(self._limit_s, self._from.budget.member_list())
        now, unknown = time.time(), answer if isinstance(answer, Unknown) else None
        if isinstance(answer, MemberList):
            self._known = await self._listed(answer, now)
        known = self._last_known()
        if unknown is not None and unknown.error == ALONE:
            known = known._replace(budget=self._own_budget(now))
        is_stored = unknown is None and await self._timeline.read(now)
        return {
            "store": unknown_replies.fields(unknown) if unknown else None,
            "known_at": round(known.at) if unknown and known.at else None,
            "banner": self._banner(known, unknown, now),
            "budget": known.budget,
            "fleet": _fleet(known, now),
            "holds": [{**(hold_json(hold) or {}), "here_only": hold is self._local_hold} for hold in known.holds],
            "containers": list(known.rows.values()),
            "events": self._timeline.events(now, is_stored=is_stored),
            "stored": is_stored,
        }

    async def _listed(self, listed: MemberList, now: float) -> _Known:
        rows, members, beat_s = dict[str, ContainerFacts](), listed.members, self._rules.beat_interval
        for at in range(0, len(members), BLOCK):
            rows |= {each.instance: row_of(each, now=now, beat_s=beat_s) for each in members[at : at + BLOCK]}
            await asyncio.sleep(0)  # health answers go between the blocks
        capacity = Share(*syntax.parse_share(self._rules.budget)).at_most(listed.fleet.alive + listed.fleet.down)
        budget = budget_row(self._rules, listed.used, capacity, listed.grants)
        return _Known(now, listed.fleet, rows, budget, listed.holds, listed.departed)

    def _last_known(self) -> _Known:
        """What the last list of the fleet said, or else the last beat, with what this sidecar knows better."""
        known = self._known
        if known is None:
            fleet, at = self._from.fleet(), time.time() - self._from.fleet_age_s()
            known = _Known(0.0, None) if fleet is None else _Known(at, fleet, holds=(fleet.hold,) if fleet.hold else ())
            if fleet is not None and fleet.capacity:
                known = known._replace(budget=budget_row(self._rules, fleet.used, fleet.capacity))
        name, local = self._from.instance, self._local_hold
        own = own_row(known.rows.get(name, ContainerFacts(name, "")), self._from.own())
        holds = [hold for hold in known.holds if hold.until > time.time() and hold != local]
        rows = dict(sorted({**known.rows, name: own}.items()))
        return known._replace(rows=rows, holds=[*holds, *([local] if local else [])])

    @property
    def _local_hold(self) -> Hold | None:
        """The hold that only this sidecar knows."""
        return self._from.budget.local_holds.in_force

    def _own_budget(self, now: float) -> dict[str, Any]:
        """The budget of a sidecar without a shared store."""
        entries = self._from.local_entries(now - self._rules.budget_window)
        granted = [entry.at for entry in entries if entry.what == "granted"]
        return budget_row(self._rules, len(granted), syntax.parse_share(self._rules.budget)[0], granted)

    def _banner(self, known: _Known, unknown: Unknown | None, now: float) -> dict[str, Any]:
        why, url = self._from.why(), self._from.runbook_url
        is_alone = unknown is not None and unknown.error == ALONE
        made = banner(
            Situation(
                known.fleet,
                list(known.rows.values()),
                known.holds,
                known.budget,
                unknown,
                away_since=now - self._from.fleet_age_s() if self._from.fleet() is not None else None,
                alone=str(why.get("alone", "")) if is_alone else "",
                is_shadow=why.get("mode") == "shadow",
                now=now,
                store=self._from.store,
                denials=self._timeline.denials,
            )
        )
        return {**made._asdict(), "runbook": f"{url}#{made.anchor}" if url and made.anchor else ""}


def budget_row(rules: BudgetConfig, used: int, capacity: int, taken_at: Sequence[float] = ()) -> dict[str, Any]:
    """The budget as JSON values; ``taken_at``: Unix seconds at which the tokens in use were taken, if known."""
    window_s = rules.budget_window
    return {
        "used": used,
        "capacity": capacity,
        "window_s": window_s,
        "back_at": [round(at + window_s, 3) for at in taken_at],
        "bound": rules.bound(capacity),
    }


def _fleet(known: _Known, now: float) -> dict[str, Any] | None:
    """The fleet as JSON values; the end of a pause as an instant, because durations would change at every read."""
    if known.fleet is None:
        return None
    shown = fleet_json(known.fleet)
    for trial in shown["trials"]:
        left_s = trial.pop("paused_s")
        trial["paused_until"] = steady(known.at + left_s) if left_s > 0 else None
    departed = [{"instance": name, "at": steady(now - age_s)} for name, age_s in known.departed[:MOST_DEPARTED]]
    return {**shown, "departed": departed, "departed_count": len(known.departed)}
