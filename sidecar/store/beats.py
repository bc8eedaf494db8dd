"""What every store keeps of beats: the row of a member, and limits."""

from __future__ import annotations

from typing import Final

from sidecar.core.types import Beat, Presence

MAX_CAUSES: Final = 100
"""Maximum number of causes that are counted by name; the names come from apps."""

OTHER: Final = "other"
"""The name for all further causes."""

MAX_DEPARTED: Final = 10_000
"""Maximum number of departed members that are remembered, for two windows at most."""

AHEAD_US: Final = 1_000_000
"""A beat that is further ahead of the store's clock came before that clock stepped back."""


def member_row(beat: Beat) -> str:
    """The row as ``Raw.member`` has it, in which a line break is a space."""
    is_suspect = beat.presence is Presence.SUSPECT
    cause = (beat.kind or "unknown") if is_suspect else ""
    life, identity, cause = (text.replace("\n", " ") for text in (beat.incarnation, beat.identity, cause))
    member = f"{life}\n{identity}" if identity else life
    return f"{member}\n{cause}\n{int(is_suspect and beat.refused)}"
