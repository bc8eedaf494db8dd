"""What a sidecar tells the fleet of its container, as one short line; and how fleet and members are shown as JSON.

``state|since|incarnation|weight|errors|limit|version|born``, numbers in digits; the last may be missing. The line comes
back from a store that many may write to, so it is read strictly: what is not just as it is packed here is no line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from sidecar.core.types import About, Fleet, Member, State

LONGEST: Final = 300
"""Bytes of a line. The numbers take 75 at most."""

_LONGEST_INCARNATION: Final = 150
_LONGEST_VERSION: Final = 50
_MOST: Final = 999_999_999
_LATEST: Final = 99_999_999_999
"""In the year 5138: what is read has to fit into a date."""

_LINE: Final = re.compile(
    r"([a-z]{1,16})\|([0-9]{1,11})\|([^|]*)\|([0-9]{1,3})\|([0-9]{1,9})\|([0-9]{1,9})\|([^|]*)"
    r"(?:\|([0-9]{1,11}))?",
    re.DOTALL,
)
_ESCAPES: Final = {"%": "%25", "|": "%7C"}
_ESCAPE: Final = re.compile("%(25|7C)?")
_STATES: Final = {state.value: state for state in State}
_FULL: Final = 100


def pack(about: About) -> str:
    """The line, of at most ``LONGEST`` bytes of UTF-8: numbers that have no room are the largest, texts are cut."""
    return "|".join(
        (
            about.state,
            _number(about.since, _LATEST),
            _bounded(about.incarnation, _LONGEST_INCARNATION),
            _number(about.weight, _FULL),
            _number(about.errors, _MOST),
            _number(about.limit, _MOST),
            _bounded(about.version, _LONGEST_VERSION),
            _number(about.born, _LATEST),
        )
    )


def unpack(line: str) -> About | None:
    """What was packed; None for any other line."""
    match = _LINE.fullmatch(line) if len(line) <= LONGEST else None
    if match is None or match[1] not in _STATES or int(match[4]) > _FULL:
        return None
    incarnation, version = _read(match[3]), _read(match[7])
    if incarnation is None or version is None:
        return None
    numbers = (int(match[4]), int(match[5]), int(match[6]))
    return About(_STATES[match[1]], int(match[2]), incarnation, *numbers, version, int(match[8] or 0))


def shown(members: Sequence[Member], departed: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Members, and who departed, as JSON has them."""
    return {
        "members": [
            {**member._asdict(), "age_s": round(member.age_s, 3), "about": member.about and member.about._asdict()}
            for member in members
        ],
        "departed": [{"instance": instance, "age_s": round(age_s, 3)} for instance, age_s in departed],
    }


def fleet(value: Fleet) -> dict[str, Any]:
    """The fleet as JSON has it: trials by the names of their fields, and the causes whose culls are paused."""
    trials = [{**trial._asdict(), "paused_s": round(trial.paused_s, 3)} for trial in value.trials]
    return {**asdict(value), "trials": trials, "paused": list(value.paused)}


def _number(value: int, most: int) -> str:
    return str(min(max(0, value), most))


def _bounded(text: str, most: int) -> str:
    """The text with its separators escaped, as much of it as fits; half an escape never does."""
    parts: list[str] = []
    for character in text[:most].encode(errors="replace").decode():
        part = _ESCAPES.get(character, character)
        most -= len(part.encode())
        if most < 0:
            break
        parts.append(part)
    return "".join(parts)


def _read(text: str) -> str | None:
    if "%" not in text:
        return text
    is_whole = all(match[1] for match in _ESCAPE.finditer(text))
    return text.replace("%7C", "|").replace("%25", "%") if is_whole else None
