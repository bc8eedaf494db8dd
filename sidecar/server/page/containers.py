"""The rows of the page's table: one for each container, as far as the fleet's records know it.

A row changes only when something happens to its container, so that a page of thousands is not sent again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.fleet.members import Member, presence_word
from sidecar.core.types import Presence, State

SILENT: Final = "silent"
SILENT_BEATS: Final = 3
"""As in the store: a beat strikes off the containers that were silent for this many beats."""

ROUNDED_S: Final = 10
"""An instant that is known by an age only is rounded to this: two clocks are compared at every read."""

_AGREES: Final = {
    Presence.WELL: {State.UP, State.STARTING, State.RETIRING, State.STOPPING},
    Presence.SUSPECT: {State.SUSPECT},
    Presence.DOWN: {State.DRAINING, State.DOWN},
}
"""Presence in the fleet -> the states, as told by the own sidecar, that agree with it."""


class ContainerFacts(NamedTuple):
    """One row. ``since`` and ``born`` are Unix seconds; what is not known is None or ``""``.

    ``state``: a word of ``State``, or ``silent``. ``cause``: the kind of most of its errors when it is suspect or down.
    """

    instance: str
    state: str
    cause: str = ""
    since: int | None = None
    errors: int | None = None
    limit: int | None = None
    weight: int | None = None
    version: str = ""
    incarnation: str = ""
    born: int = 0
    duplicate: bool = False
    node: str = ""
    app_version: str = ""


def rows(members: Iterable[Member], *, now: float, beat_s: float) -> dict[str, ContainerFacts]:
    """The rows of these members by name; ``now``: Unix seconds."""
    return {member.instance: _row(member, now, SILENT_BEATS * beat_s) for member in members}


def with_own(known: Mapping[str, ContainerFacts], own: Mapping[str, Any]) -> list[ContainerFacts]:
    """The rows in the order of their names. ``own``: the facts of this sidecar's own container, newer than its beat."""
    instance = str(own["instance"])
    row = known.get(instance, ContainerFacts(instance, ""))
    if not row.duplicate:
        row = row._replace(
            state=str(own["state"]),
            cause=row.cause if own["state"] in (State.SUSPECT, State.DRAINING, State.DOWN) else "",
            since=int(own["since"]),
            born=int(own["born"]),
            **{
                name: own[name]
                for name in ("errors", "limit", "weight", "version", "incarnation", "node", "app_version")
            },
        )
    made = {**known, instance: row}
    return [made[name] for name in sorted(made)]


def _row(member: Member, now: float, silent_after_s: float) -> ContainerFacts:
    state, since = presence_word(member.presence), None
    if member.presence is Presence.DOWN:
        since = round((now - member.age_s) / ROUNDED_S) * ROUNDED_S
    row = ContainerFacts(member.instance, state, member.kind, since, duplicate=member.duplicate)
    about = member.about
    if about is not None:
        row = row._replace(
            errors=about.errors,
            limit=about.limit,
            weight=about.weight,
            version=about.version,
            incarnation=about.incarnation,
            born=about.born,
            node=about.node,
            app_version=about.app_version,
        )
        if about.state in _AGREES.get(member.presence, ()):
            row = row._replace(state=about.state.value, since=about.since)
    if member.presence is not Presence.DOWN and member.age_s > silent_after_s:
        row = row._replace(state=SILENT, since=round((now - member.age_s) / ROUNDED_S) * ROUNDED_S)
    return row
