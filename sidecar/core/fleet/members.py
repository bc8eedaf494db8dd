"""The list of members, read from what the store holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.core.fleet import about as lines
from sidecar.core.fleet import hold
from sidecar.core.fleet.about import Member, MemberList
from sidecar.core.fleet.raw import BeatReply, Listing, Raw
from sidecar.core.fleet.summary import Reading, fleet_of
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S, Presence

MOST_GRANTS: Final = 100
MOST_DEPARTED: Final = 100
"""Bounds of the list: tokens in use, and members that have left."""

FIELDS: Final = 3
"""Number of fields of a member row: life, cause, and whether it was refused."""


def present(view: View, rows: Iterable[tuple[str, int, str, str]]) -> dict[str, Member]:
    """Some members of a listing by name. Reading thousands at once would take 8 ms."""
    return {row[0]: _member(view, *row) for row in rows}


def member_list_of(
    view: View, raw: Raw, listing: Listing, members: Mapping[str, Member], terms: Terms, *, most: int
) -> MemberList:
    """The fleet as the view has it, and its first ``most`` by name: ``members`` of the listing, and who is missing."""
    now_us, in_use = view.now_us, _in_use(raw, terms)
    rows = {**members, **_missing(view, listing)}
    holds = (hold.shown(scope, row) for scope, row in sorted(view.holds.items()) if row.left_us(now_us))
    departed = [(name, (now_us - at) / US_PER_S) for name, at in listing.departed if name not in rows]
    return MemberList(
        fleet_of(Reading.of(_as_reply(raw, len(in_use))), terms, ""),
        len(in_use),
        tuple(rows[name] for name in sorted(rows)[:most]),
        tuple(holds),
        tuple(sorted(raw.settings)),
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


def _missing(view: View, listing: Listing) -> dict[str, Member]:
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


def _in_use(raw: Raw, terms: Terms) -> list[int]:
    """When each token in use was granted, in ascending order."""
    oldest_us = raw.now_us - terms.window_us
    return sorted(at for claim, at in raw.grants.items() if claim not in raw.refunded and at >= oldest_us)


def _as_reply(raw: Raw, used: int) -> BeatReply:
    return BeatReply(
        raw.now_us,
        raw.epoch,
        raw.state,
        alive=raw.alive,
        causes=raw.causes,
        policies=max(1, len(raw.settings)),
        holds=(raw.holds.get("", ""), ""),
        used=used,
        run_id=raw.run_id,
        median_errors=raw.median_errors,
    )
