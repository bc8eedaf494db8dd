"""The data of the status page: why this container is in its state, the budget, the fleet, the holds and the events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.config import shares
from sidecar.core.fleet import about
from sidecar.core.fleet.about import Member, MemberList
from sidecar.core.fleet.terms import Share
from sidecar.core.types import Entry, Fleet, Hold, Unknown
from sidecar.server import unknown_replies
from sidecar.server.history import History
from sidecar.server.unknown_replies import ALONE, within

if TYPE_CHECKING:
    from sidecar.config.slices import BudgetConfig, JudgingConfig
    from sidecar.store.budget_with_holds import BudgetWithHolds

EVENTS: Final = 200
DETAIL_SHOWN: Final = 4_600
"""Maximum number of characters of an event: its sentence, and as much of the evidence as the page shows."""

EVENTS_SINCE_S: Final = 7 * 24 * 3600.0
EVENTS_PAGE: Final = 500
EVENTS_PAGES: Final = 21
AGES_S: Final = 10.0
"""Maximum age of ages and numbers of members while no state changes, because every change sends the whole fleet."""


class PageSources(NamedTuple):
    """The sources of the data.

    ``why``: the local answer to ``GET /why``. ``fleet``: the fleet as of the last beat. ``error_counts``: the errors of
    the last hour by minute. ``local_entries(since)``: the entries that this sidecar knows, since a Unix second.
    """

    why: Callable[[], dict[str, Any]]
    history: History
    budget: BudgetWithHolds
    fleet: Callable[[], Fleet | None]
    error_counts: Callable[[], Sequence[int]]
    local_entries: Callable[[float], Sequence[Entry]]


class PageState:
    """Reads the parts of the page as JSON values. ``limit_s``: maximum time to wait for the store."""

    def __init__(self, judging: JudgingConfig, rules: BudgetConfig, sources: PageSources, *, limit_s: float) -> None:
        self.csrf = token_urlsafe(24)
        self._judging = judging
        self._rules = rules
        self._from = sources
        self._limit_s = limit_s
        self._timeline = _Timeline(sources.budget.entries, sources.local_entries, limit_s)
        self._shown: tuple[Any, float, dict[str, Any]] | None = None

    def quick(self) -> dict[str, Any]:
        """The parts that come from memory: why, the errors of the hour, and what never changes."""
        why = self._from.why()
        del why["at"]  # is sent with every message
        limit, window_s = self._judging.error_limit, self._judging.error_window
        errors = {"limit": limit, "window_s": window_s, "minutes": self._from.error_counts()}
        return {"why": why, "errors": errors, "csrf": self.csrf}

    async def slow(self) -> dict[str, Any]:
        """The parts that come from the store: budget, fleet, holds and events."""
        member_list = await within(self._limit_s, self._from.budget.member_list())
        events, stored = await self._timeline.read()
        return {**self._of_member_list(member_list), "events": events, "stored": stored}

    def _of_member_list(self, member_list: MemberList | Unknown) -> dict[str, Any]:
        if isinstance(member_list, MemberList):
            holds = [*member_list.holds, *filter(None, [self._from.budget.local])]
            return {
                "store": None,
                "budget": self._budget(member_list),
                "fleet": self._fleet(member_list.fleet, member_list.members, member_list.departed),
                "holds": self._holds(holds),
            }
        fleet = None if member_list.error == ALONE else self._from.fleet()
        known = [hold for hold in (fleet.hold if fleet else None, self._from.budget.local) if hold is not None]
        return {
            "store": unknown_replies.fields(member_list),
            "budget": self._own_budget() if member_list.error == ALONE else None,
            "fleet": self._fleet(fleet, (), ()) if fleet else None,
            "holds": self._holds(dict.fromkeys(known)),
        }

    def _budget(self, member_list: MemberList) -> dict[str, Any]:
        """The shared budget, by this sidecar's own settings."""
        fleet, window_s = member_list.fleet.alive + member_list.fleet.down, self._rules.budget_window
        capacity = Share(*shares.parse(self._rules.budget)).at_most(fleet)
        back_at = [round(at + window_s, 3) for at in member_list.grants]
        return {"used": member_list.used, "capacity": capacity, "window_s": window_s, "back_at": back_at}

    def _own_budget(self) -> dict[str, Any]:
        """The budget of a sidecar without a shared store."""
        window_s, capacity = self._rules.budget_window, shares.parse(self._rules.budget)[0]
        since = time.time() - window_s
        taken = [each.at for each in self._from.history.newest() if each.what == "granted" and each.at >= since]
        back_at = [round(at + window_s, 3) for at in reversed(taken)]
        return {"used": len(taken), "capacity": capacity, "window_s": window_s, "back_at": back_at}

    def _fleet(self, fleet: Fleet, every: Sequence[Member], departed: Sequence[tuple[str, float]]) -> dict[str, Any]:
        """The fleet; for up to ``AGES_S`` the last value again, if only ages and numbers have changed."""
        states = [(*member[:3], member.duplicate, member.about and member.about.state) for member in every]
        trials = tuple(trial._replace(paused_s=float(trial.paused_s > 0)) for trial in fleet.trials)
        of, at = (replace(fleet, trials=trials), states, [instance for instance, _ in departed]), time.monotonic()
        if self._shown is None or self._shown[0] != of or at - self._shown[1] >= AGES_S:
            self._shown = (of, at, {**about.fleet(fleet), **about.shown(every, departed)})
        return self._shown[2]

    def _holds(self, holds: Sequence[Hold] | Mapping[Hold, None]) -> list[dict[str, Any]]:
        local = self._from.budget.local
        return [{**(about.hold(hold) or {}), "here_only": hold is local} for hold in holds]


class _Timeline:
    """The newest events; each is read once."""

    def __init__(
        self,
        stored: Callable[[float, str, int], Awaitable[Sequence[Entry] | Unknown]],
        local: Callable[[float], Sequence[Entry]],
        limit_s: float,
    ) -> None:
        self._stored = stored
        self._local = local
        self._limit_s = limit_s
        self._newest: deque[Entry] = deque(maxlen=EVENTS)
        self._after = ""

    async def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The events, oldest first, and whether the store has answered; else they are those that this sidecar knows."""
        since = time.time() - EVENTS_SINCE_S
        for _ in range(EVENTS_PAGES):
            page = await within(self._limit_s, self._stored(since, self._after, EVENTS_PAGE))
            if isinstance(page, Unknown):
                return [_event(entry) for entry in self._local(since)[-EVENTS:]], False
            if page:
                self._newest.extend(page)
                self._after = page[-1].id
            if len(page) < EVENTS_PAGE:
                break
        return [_event(entry) for entry in self._newest], True


def _event(entry: Entry) -> dict[str, Any]:
    fields = entry._replace(detail=entry.detail[:DETAIL_SHOWN])._asdict()
    del fields["once"]
    return fields
