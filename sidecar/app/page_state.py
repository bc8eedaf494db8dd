"""Connects what the status page shows: why this container stands as it does, its fleet, and what happened.

Nothing here runs or is imported before somebody looks, but for the count of each minute.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.app.admin_parts import SLACK_S
from sidecar.config import shares
from sidecar.core.explain.history import Decision
from sidecar.core.fleet import about
from sidecar.core.fleet.terms import Share
from sidecar.core.types import Entry, Fleet, Hold, Member, Roll, Unknown
from sidecar.server import unclear
from sidecar.server.page.change_stream import Feed
from sidecar.server.page.pages import Pages
from sidecar.server.unclear import ALONE, within

if TYPE_CHECKING:
    from sidecar.app.why_parts import Explaining
    from sidecar.config.settings import Settings
    from sidecar.controller.error_histogram import Minutes
    from sidecar.controller.membership import Membership
    from sidecar.net.connections import Handler
    from sidecar.store.held_budget import HeldBudget

EVENTS: Final = 200
DETAIL_SHOWN: Final = 4_600
"""Characters of an event: its sentence, and as much of the evidence as the page has room for."""

EVENTS_SINCE_S: Final = 7 * 24 * 3600.0
EVENTS_PAGE: Final = 500
EVENTS_PAGES: Final = 21
AGES_S: Final = 10.0
"""How old ages and numbers of members may be while no state changes: each time would be all the fleet each time."""

LocalEvents = Callable[[float], Sequence[Entry]]
"""What this sidecar itself knows to have happened since a Unix second, oldest first."""


class Sources(NamedTuple):
    """Whom the page asks."""

    explaining: Explaining
    held: HeldBudget
    membership: Membership
    minutes: Minutes
    local_events: LocalEvents


def pages(
    settings: Settings, sources: Sources, orders: Mapping[str, Handler], on_failure: Callable[[Exception], None]
) -> Pages:
    """The status page; ``orders`` are the handlers of POST and DELETE for a hold."""
    status = Status(settings, sources)
    feed = Feed(status.quick, status.slow, wall=time.time, clock=time.monotonic, on_failure=on_failure)
    return Pages(feed, orders, csrf=status.csrf)


class Status:
    """Reads the parts of the page, each as JSON values."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        self.csrf = token_urlsafe(24)
        self._settings = settings
        self._from = sources
        self._held = sources.held
        self._limit_s = settings.redis_timeout + SLACK_S
        self._timeline = _Timeline(sources.held.entries, sources.local_events, self._limit_s)
        self._shown: tuple[Any, float, dict[str, Any]] | None = None

    def quick(self) -> dict[str, Any]:
        """What is known at once: why, the errors of the hour, and what never changes."""
        own = self._settings
        why = self._from.explaining.local()
        del why["at"]  # is told with every message
        errors = {"limit": own.error_limit, "window_s": own.error_window, "minutes": self._from.minutes.counts()}
        return {"why": why, "errors": errors, "csrf": self.csrf}

    async def slow(self) -> dict[str, Any]:
        """What the bucket is asked for: budget, fleet and holds, and the events."""
        roll = await within(self._limit_s, self._held.roll())
        events, stored = await self._timeline.read()
        return {**self._of_roll(roll), "events": events, "stored": stored}

    def _of_roll(self, roll: Roll | Unknown) -> dict[str, Any]:
        if isinstance(roll, Roll):
            holds = [*roll.holds, *filter(None, [self._held.local])]
            return {
                "bucket": None,
                "budget": self._budget(roll),
                "fleet": self._fleet(roll.fleet, roll.members, roll.departed),
                "holds": self._holds(holds),
            }
        fleet = None if roll.error == ALONE else self._from.membership.fleet
        known = [hold for hold in (fleet.hold if fleet else None, self._held.local) if hold is not None]
        return {
            "bucket": unclear.told(roll),
            "budget": self._own_budget() if roll.error == ALONE else None,
            "fleet": self._fleet(fleet, (), ()) if fleet else None,
            "holds": self._holds(dict.fromkeys(known)),
        }

    def _budget(self, roll: Roll) -> dict[str, Any]:
        """By this sidecar's own terms, as the roll counts."""
        fleet, window_s = roll.fleet.alive + roll.fleet.down, self._settings.budget_window
        capacity = Share(*shares.parse(self._settings.budget)).at_most(fleet)
        back_at = [round(at + window_s, 3) for at in roll.grants]
        return {"used": roll.used, "capacity": capacity, "window_s": window_s, "back_at": back_at}

    def _own_budget(self) -> dict[str, Any]:
        """Of a bucket that is ours alone, whose every grant was granted to us."""
        window_s, capacity = self._settings.budget_window, shares.parse(self._settings.budget)[0]
        since = time.time() - window_s
        taken = [each.at for each in self._from.explaining.history.newest() if _is_grant(each) and each.at >= since]
        back_at = [round(at + window_s, 3) for at in reversed(taken)]
        return {"used": len(taken), "capacity": capacity, "window_s": window_s, "back_at": back_at}

    def _fleet(self, fleet: Fleet, every: Sequence[Member], departed: Sequence[tuple[str, float]]) -> dict[str, Any]:
        """As it was shown before, if nothing but ages and numbers has changed, and not for long."""
        states = [(*member[:3], member.duplicate, member.about and member.about.state) for member in every]
        trials = tuple(trial._replace(paused_s=float(trial.paused_s > 0)) for trial in fleet.trials)
        of, at = (replace(fleet, trials=trials), states, [instance for instance, _ in departed]), time.monotonic()
        if self._shown is None or self._shown[0] != of or at - self._shown[1] >= AGES_S:
            self._shown = (of, at, {**about.fleet(fleet), **about.shown(every, departed)})
        return self._shown[2]

    def _holds(self, holds: Sequence[Hold] | Mapping[Hold, None]) -> list[dict[str, Any]]:
        local = self._held.local
        return [
            {"scope": "instance" if hold.instance else "service", "here_only": hold is local, **asdict(hold)}
            for hold in holds
        ]


class _Timeline:
    """The newest events; each is asked for once."""

    def __init__(
        self,
        stored: Callable[[float, str, int], Awaitable[Sequence[Entry] | Unknown]],
        local: LocalEvents,
        limit_s: float,
    ) -> None:
        self._stored = stored
        self._local = local
        self._limit_s = limit_s
        self._newest: deque[Entry] = deque(maxlen=EVENTS)
        self._after = ""

    async def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The events, oldest first, and whether they are the bucket's; else those of this sidecar."""
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


def _is_grant(decision: Decision) -> bool:
    return decision.what == "granted"
