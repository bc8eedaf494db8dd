"""The rows of the page's table: one for each container, as far as the fleet's records know it.

A row changes only when something happens to its container, so that the page draws it again only then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.core.claims import Presence
from sidecar.core.fleet.members import About, Member, presence_word
from sidecar.core.types import State

SILENT: Final = "silent"
SILENT_BEATS: Final = 3
"""As in the store: a beat strikes off the containers that were silent for this many beats."""

ROUNDED_S: Final = 10

_AGREES: Final = {
    Presence.WELL: {State.UP, State.STARTING, State.RETIRING, State.STOPPING},
    Presence.SUSPECT: {State.SUSPECT},
    Presence.DOWN: {State.DRAINING, State.DOWN},
}
"""Presence in the fleet -> the states, as told by the own sidecar, that agree with it."""

_DESCRIBED: Final = ("errors", "limit", "weight", "version", "incarnation", "born", "node", "app_version")
"""The fields of a row that its sidecar describes."""


class ContainerFacts(NamedTuple):
    """One row; what is not known is None or ``""``."""

    instance: str
    state: str
    """A word of ``State``, or ``silent``."""
    cause: str = ""
    """The kind of most of its errors when it is suspect or down."""
    since: int | None = None
    """Unix seconds."""
    errors: int | None = None
    limit: int | None = None
    weight: int | None = None
    version: str = ""
    incarnation: str = ""
    born: int = 0
    duplicate: bool = False
    node: str = ""
    app_version: str = ""


def row_of(member: Member, *, now: float, beat_s: float) -> ContainerFacts:
    """The row of a member; ``now``: Unix seconds."""
    is_down, about, heard = member.presence is Presence.DOWN, member.about, steady(now - member.age_s)
    state, since = presence_word(member.presence), heard if is_down else None
    if not is_down and member.age_s > SILENT_BEATS * beat_s:
        state, since = SILENT, heard
    elif about is not None and about.state in _AGREES.get(member.presence, ()):
        state, since = about.state.value, about.since
    row = ContainerFacts(member.instance, state, member.kind, since, duplicate=member.duplicate)
    return row if about is None else _described(row, about)


def own_row(row: ContainerFacts, about: About) -> ContainerFacts:
    """The row of this sidecar's own container with what is newer than its beat, unless another has its name."""
    if row.duplicate:
        return row
    cause = row.cause if about.state in (State.SUSPECT, State.DRAINING, State.DOWN) else ""
    return _described(row._replace(state=about.state.value, cause=cause, since=about.since), about)


def _described(row: ContainerFacts, about: About) -> ContainerFacts:
    return row._replace(**{name: getattr(about, name) for name in _DESCRIBED})


def steady(at: float) -> int:
    """An instant that is known by an age only, rounded: two clocks are compared, and would differ at every read."""
    return round(at / ROUNDED_S) * ROUNDED_S
