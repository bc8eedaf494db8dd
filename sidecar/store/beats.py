"""What every store makes of a beat: the member's row, and how much is kept of members that are gone."""

from __future__ import annotations

from typing import Final

from sidecar.core.types import Beat, Presence

MOST_CAUSES: Final = 100
"""Causes that are counted by their own name; the causes come from apps."""

OTHER: Final = "other"
"""The name under which all further causes are counted."""

MOST_DEPARTED: Final = 10_000
"""Members that left or were struck off and are remembered, for two windows at most."""

AHEAD_US: Final = 1_000_000
"""A beat that is further ahead of the store's clock comes from before that clock stepped back."""


def member_row(beat: Beat) -> str:
    """The row as ``Raw.member`` has it, in which a line break is a space."""
    is_suspect = beat.presence is Presence.SUSPECT
    cause = (beat.kind or "unknown") if is_suspect else ""
    life, cause = (text.replace("\n", " ") for text in (beat.incarnation, cause))
    return f"{life}\n{cause}\n{int(is_suspect and beat.refused)}"
