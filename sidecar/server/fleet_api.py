"""``GET /fleet`` at the local listener: the fleet member by member, and in one sentence what is wrong and what to do.

An answer waits for the shared store, at most ``limit_s``. The fleet is read once for all viewers of the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sidecar.config import syntax
from sidecar.config.settings import SHADOW
from sidecar.core.claims import Fleet, Presence, Unknown
from sidecar.core.fleet.common_trait import as_json, of_members
from sidecar.core.fleet.fleet_settings import Share
from sidecar.core.fleet.members import About, Member, MemberList, fleet_json, hold_json, members_json, presence_word
from sidecar.core.types import Entry, State
from sidecar.server import replies
from sidecar.server.banner import SILENT, ContainerRow, Situation, banner
from sidecar.server.replies import SharedAnswer, within

if TYPE_CHECKING:
    from sidecar.config.settings import BudgetConfig
    from sidecar.store.budget import FleetBudget

BLOCK: Final = 100
"""Number of members that are read in one turn of the loop."""

SILENT_BEATS: Final = 3
"""As in the store: a beat strikes off the containers that were silent for this many beats."""

ROUNDED_S: Final = 10
"""Instants that are known by an age only are rounded: two clocks are compared, and would differ at every read."""

_AGREES: Final = {
    Presence.WELL: {State.UP, State.STARTING, State.RETIRING, State.STOPPING},
    Presence.SUSPECT: {State.SUSPECT},
    Presence.DOWN: {State.DRAINING, State.DOWN},
}
"""Presence in the fleet -> the states, as told by the own sidecar, that agree with it."""


@dataclass(eq=False)
class FleetApi:
    """Shows the fleet, and what this sidecar knows beside it."""

    budget: FleetBudget
    rules: BudgetConfig  # the settings of the budget
    identity: Mapping[str, str]  # has ``instance``, ``mode`` and ``store``
    own: Callable[[], About]  # what only this sidecar knows of its container
    fleet: Callable[[], Fleet | None]  # as of the last beat, however old
    fleet_age_s: Callable[[], float]  # seconds since then
    local_entries: Callable[[float], Sequence[Entry]]  # of the ledger since a Unix second, those kept here
    limit_s: float  # how long an answer waits for the store
    wall: Callable[[], float]  # Unix time
    alone: str = ""  # what it means that there is no shared store; empty if there is one
    runbook_url: str = ""

    def __post_init__(self) -> None:
        self.get = SharedAnswer(self._make).get

    async def _make(self) -> tuple[int, list[bytes]]:
        """The fleet member by member; without an answer of the store the last known summary, and a 502 or 504."""
        answer = await within(self.limit_s, self.budget.member_list())
        fields = await self._document(answer, self.wall())
        return replies.status_of(answer), await replies.dump(fields)

    async def _document(self, answer: MemberList | Unknown, now: float) -> dict[str, Any]:
        """The fields; without an answer of the store those of the last beat, and of the members only this one."""
        listed, unknown = (None, answer) if isinstance(answer, Unknown) else (answer, None)
        fleet = listed.fleet if listed else self.fleet()
        age_s = 0.0 if listed else self.fleet_age_s()
        own, local = self.own(), self.budget.local_holds.in_force
        holds = listed.holds if listed else filter(None, [fleet.hold if fleet else None])
        shared = [hold for hold in holds if hold != local]
        members = _with_own(listed.members if listed else (), self.identity["instance"], own)
        rows, common, tokens = await self._rows(members, now), of_members(members), self._tokens(listed, fleet, now)
        situation = Situation(
            fleet,
            rows,
            [*shared, local] if local else shared,
            tokens,
            unknown,
            away_since=now - age_s if fleet else None,
            alone=self.alone,
            is_shadow=self.identity["mode"] == SHADOW,
            now=now,
            store=self.identity["store"],
            common=common,
        )
        lists = members_json(members, listed.departed if listed else ())
        return {
            **self.identity,
            "at": round(now, 3),
            "banner": banner(situation).as_json(self.runbook_url),
            **tokens,
            "beat_interval": self.rules.beat_interval,
            "fleet": fleet_json(fleet) if fleet else None,
            **({} if listed else {"fleet_age_s": round(age_s, 3) if fleet else None}),
            "settings": list(listed.settings) if listed else [],
            "common": as_json(common),
            "own": own._asdict(),
            "local_hold": hold_json(local),
            "holds": [hold_json(hold) for hold in shared],
            "departed": lists["departed"],
            "members": _with_states(lists["members"], rows),
            **replies.unknown_fields(answer),
        }

    async def _rows(self, members: Sequence[Member], now: float) -> list[ContainerRow]:
        rows, silent_s = list[ContainerRow](), SILENT_BEATS * self.rules.beat_interval
        for at in range(0, len(members), BLOCK):
            rows += [_row(member, now, silent_s) for member in members[at : at + BLOCK]]
            await asyncio.sleep(0)  # health answers go between the blocks
        return rows

    def _tokens(self, listed: MemberList | None, fleet: Fleet | None, now: float) -> dict[str, Any]:
        """The budget; ``grants``: Unix seconds at which the tokens in use were taken, as far as they are known."""
        rules, grants = self.rules, listed.grants if listed else ()
        share = Share(*syntax.parse_share(rules.budget))
        used: int | None = None
        capacity = None if share.is_part else share.amount
        if listed is not None:
            used, capacity = listed.used, share.at_most(listed.fleet.alive + listed.fleet.down)
        elif fleet is not None and fleet.capacity:
            used, capacity = fleet.used, fleet.capacity
        elif self.alone:
            entries = self.local_entries(now - rules.budget_window)
            grants = tuple(entry.at for entry in entries if entry.what == "granted")
            used, capacity = len(grants), share.at_most(1)
        return {
            "budget": rules.budget,
            "bound": rules.bound(capacity),
            "budget_window": rules.budget_window,
            "used": used,
            "capacity": capacity,
            "grants": grants,
        }


def _with_own(members: Sequence[Member], instance: str, own: About) -> list[Member]:
    """The members by name; of the own container with what is newer than its beat, unless another has its name."""
    by_name = {member.instance: member for member in members}
    beaten = by_name.get(instance, Member(instance, Presence.WELL, "", 0.0))
    if not beaten.duplicate:
        presence = next(presence for presence, states in _AGREES.items() if own.state in states)
        kind = "" if presence is Presence.WELL else beaten.kind
        by_name[instance] = beaten._replace(presence=presence, kind=kind, about=own)
    return [by_name[name] for name in sorted(by_name)]


def _row(member: Member, now: float, silent_s: float) -> ContainerRow:
    """The row of a member; ``now``: Unix seconds."""
    is_down, about = member.presence is Presence.DOWN, member.about
    heard = round((now - member.age_s) / ROUNDED_S) * ROUNDED_S
    state, since = presence_word(member.presence), heard if is_down else None
    if not is_down and member.age_s > silent_s:
        state, since = SILENT, heard
    elif about is not None and about.state in _AGREES.get(member.presence, ()):
        state, since = about.state.value, about.since
    row = ContainerRow(member.instance, state, member.kind, since, duplicate=member.duplicate)
    return row if about is None else row._replace(errors=about.errors, weight=about.weight)


def _with_states(members: Iterator[dict[str, Any]], rows: Sequence[ContainerRow]) -> Iterator[dict[str, Any]]:
    """The members with the state of their container, and since when."""
    return ({**member, "state": row.state, "since": row.since} for member, row in zip(members, rows, strict=True))
