"""Colours for terminals. click removes them where the output is no terminal, and ``NO_COLOR`` switches them off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import click

COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("up", "ok", "granted", "recovered", "helped", "replaced", "redis_back"), "green"),
    **dict.fromkeys(("suspect", "warn", "denied", "hold", "paused", "would_cull", "unclear"), "yellow"),
    **dict.fromkeys(("draining", "down", "culled", "FAIL", "not_honoured", "action_failed", "unhelped"), "red"),
    **dict.fromkeys(("redis_away", "data_loss", "hold_lost", "error", "refused"), "red"),
    **dict.fromkeys(("retiring", "retired"), "cyan"),
    **dict.fromkeys(("silent", "duplicate", "double", "drift", "memory"), "magenta"),
    "gone": "bright_black",
}
"""Colour by state of a container, word of the ledger, level of a finding, or label of a line about the fleet."""


def coloured(line: str, word: str) -> str:
    """``line`` with the first occurrence of ``word``, which is behind a blank or begins the line, in its colour."""
    if word not in COLOURS:
        return line
    style = COLOURS[word]
    return re.sub(rf"(?<!\S){re.escape(word)}\b", lambda found: click.style(found[0], fg=style), line, count=1)
