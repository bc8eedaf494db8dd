"""The list of members, read from what the servers hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from sidecar.core.fleet import about as lines
from sidecar.core.fleet import hold
from sidecar.core.fleet.about import Member, MemberList
from sidecar.core.fleet.raw import BeatReply, Raw
from sidecar.core.fleet.summary import Reading, fleet_of
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S, Presence

MOST_GRANTS: Final = 100
MOST_DEPARTED: Final = 100
"""Bounds of the list: tokens in use, and members that have left."""

FIELDS: Final = 3
"""Number of fields of a member row: life, cause, and whether it was refused."""


class Listed(Protocol):
    """The members as a store lists them: ``store.protocol.Listing``."""

    @property
    def members(self) -> Sequence[tuple[str, int, str, str]]:
        """Instance, last beat, member row, and the description by its sidecar."""

    @property
    def departed(self) -> Sequence[tuple[str, int]]:
        """Instance, and when it left."""

    @property
    def culled(self) -> Mapping[str, str]:
        """The last descriptions of culled containers, by instance."""


def present(view: View, rows: Iterable[tuple[str, int, str, str]]) -> dict[str, Member]:
    """Some members of a listing by name. Reading thousands at once would take 8 ms."""
    return {row[0]: _member(view, *row) for row in rows}


def member_list_of(
    view: View, raws: Sequence[Raw], listing: Listed, members: Mapping[str, Member], terms: Terms, *, most: int
) -> MemberList:
    """The fleet as the view has it, and its first ``most`` by name: ``members`` of the listing, and who is missing."""
    readings = [Reading.of(_as_reply(raw, terms)) for raw in raws]
    now_us, oldest_us = view.now_us, view.now_us - terms.window_us
    grants = [at for server in view.servers for claim, at in server.grants.items() if claim not in server.refunded]
    in_use = sorted(at for at in grants if at >= oldest_us)
    rows = {**members, **_missing(view, listing)}
    holds = (hold.shown(scope, row) for scope, row in sorted(view.holds.items()) if row.left_us(now_us))
    departed = [(name, (now_us - at) / US_PER_S) for name, at in listing.departed if name not in rows]
    return MemberList(
        fleet_of(readings, terms, ""),
        len(in_use),
        tuple(rows[name] for name in sorted(rows)[:most]),
        tuple(holds),
        tuple(sorted({text for raw in raws for text in raw.settings})),
        tuple(at / US_PER_S for at in in_use[:MOST_GRANTS]),
        tuple(departed[:MOST_DEPARTED]),
    )


def _member(view: View, instance: str, heard_us: int, row: str, about: str) -> Member:
    parts = row.rsplit("\n", 2)
    cause = parts[1] if len(parts) == FIELDS else ""
    presence = Presence.SUSPECT if cause else Presence.WELL
    age_s = max(0, view.now_us - heard_us) / US_PER_S
    is_duplicate = instance in view.state.duplicates
    return Member(instance, presence, cause, age_s, lines.unpack(about) if about else None, is_duplicate)


def _missing(view: View, listing: Listed) -> dict[str, Member]:
    """The containers that were granted a token or a lease and are not replaced, with their last descriptions."""
    abouts = {name: about for name, _, _, about in listing.members if about} | dict(listing.culled)
    return {
        name: Member(
            name,
            Presence.DOWN,
            cull.cause,
            max(0, view.now_us - cull.at_us) / US_PER_S,
            lines.unpack(abouts[name]) if abouts.get(name) else None,
            name in view.state.duplicates,
        )
        for name, cull in view.culls.items()
        if cull.phase == "out"
    }


def _as_reply(raw: Raw, terms: Terms) -> BeatReply:
    in_use = [
        at for claim, at in raw.grants.items() if claim not in raw.refunded and at >= raw.now_us - terms.window_us
    ]
    return BeatReply(
        raw.now_us,
        raw.epoch,
        raw.state,
        alive=raw.alive,
        causes=raw.causes,
        policies=max(1, len(raw.settings)),
        holds=(raw.holds.get("", ""), ""),
        used=len(in_use),
        run_id=raw.run_id,
        median_errors=raw.median_errors,
    )
