"""Policies that differ, for a person: which settings, and their values. They come as ``core.terms`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.core.words import US_PER_S
from sidecar.notation import durations, shares

_Written = Callable[[str], str]


def _share(text: str) -> str:
    return shares.write(int(text.removesuffix("p")), is_part=text.endswith("p"))


def _duration(us: str) -> str:
    return durations.write(int(us) / US_PER_S)


def _part(thousandths: str) -> str:
    return f"{int(thousandths) / 1000:g}"


def _earn_max(text: str) -> str:
    return "off (ARBITER_EARN)" if text == "-1" else text


def _never_last(flags: str) -> str:
    return "true" if flags[0] == "1" else "false"


def _lost_memory(flags: str) -> str:
    return "empty" if flags[1] == "1" else "full"


_FIELDS: Final[tuple[tuple[int, str, _Written], ...]] = (
    (0, "ARBITER_BUDGET_STRATEGY", str),
    (1, "ARBITER_BUDGET", _share),
    (2, "ARBITER_MIN_HEALTHY", _share),
    (3, "ARBITER_NEVER_LAST", _never_last),
    (3, "ARBITER_LOST_MEMORY", _lost_memory),
    (4, "ARBITER_BUDGET_WINDOW", _duration),
    (5, "ARBITER_SPACING", _duration),
    (6, "ARBITER_BRAKE", _part),
    (7, "ARBITER_PROBATION", _duration),
    (8, "ARBITER_USELESS_AFTER", str),
    (9, "ARBITER_EARN_MAX", _earn_max),
    (10, "ARBITER_BEAT", _duration),
    (11, "the server's place in ARBITER_REDIS_URL", lambda index: str(int(index) + 1)),
    (12, "servers in ARBITER_REDIS_URL", str),
)
"""Where in the text each one stands, the setting it comes from, and how that is written."""


def differences(texts: Sequence[str]) -> str:
    """The settings that differ with all of their values; the texts as they are if this version cannot read them."""
    try:
        return "; ".join(_differing([text.split("|") for text in texts])) or "  ".join(texts)
    except (ValueError, IndexError):
        return "  ".join(texts)


def _differing(rows: list[list[str]]) -> list[str]:
    if any(len(row) != _FIELDS[-1][0] + 1 for row in rows):
        raise ValueError("the terms of another version")
    values = {name: dict.fromkeys(written(row[place]) for row in rows) for place, name, written in _FIELDS}
    return [f"{name} is {' and '.join(several)}" for name, several in values.items() if len(several) > 1]
