"""The members of the fleet, for people: each sidecar's description of its container, and the list of all members.

A description is a short line: ``state|since|incarnation|weight|errors|limit|version|born|settings``. Numbers are in
digits, and the last two may be missing. Others may write to the store, so ``unpack`` accepts only lines that ``pack``
would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from sidecar.core.types import Fleet, Hold, Presence, State

LONGEST: Final = 300
"""Bytes of a line. The numbers take 84 at most, with the digest of the settings."""

_LONGEST_INCARNATION: Final = 150
_LONGEST_VERSION: Final = 50
_MOST: Final = 999_999_999
_LATEST: Final = 99_999_999_999
"""In the year 5138: an instant has to fit into a date."""

_LINE: Final = re.compile(
    r"([a-z]{1,16})\|([0-9]{1,11})\|([^|]*)\|([0-9]{1,3})\|([0-9]{1,9})\|([0-9]{1,9})\|([^|]*)"
    r"(?:\|([0-9]{1,11})(?:\|([0-9a-f]{8}))?)?",
    re.DOTALL,
)
_DIGEST: Final = re.compile(r"[0-9a-f]{8}")
_ESCAPES: Final = {"%": "%25", "|": "%7C"}
_ESCAPE: Final = re.compile("%(25|7C)?")
_STATES: Final = {state.value: state for state in State}
_FULL: Final = 100


class About(NamedTuple):
    """A sidecar's description of its container: its state ``since`` (Unix seconds), and what led to it.

    ``weight`` in percent; ``errors`` in the window against their ``limit``; ``version`` of the sidecar; ``born``: Unix
    seconds at which the incarnation began, 0 if unknown; ``settings``: ``digest_of`` the sidecar's policy, ``""`` if
    unknown.
    """

    state: State
    since: int
    incarnation: str
    weight: int
    errors: int
    limit: int
    version: str
    born: int = 0
    settings: str = ""


class Member(NamedTuple):
    """One container of the fleet: ``well``, ``suspect`` or ``down``; ``age_s`` since its last beat or its cull.

    ``about``: the last description by its sidecar, None if unknown. ``duplicate``: two containers use its name.
    """

    instance: str
    presence: Presence
    kind: str
    age_s: float
    about: About | None = None
    duplicate: bool = False


class MemberList(NamedTuple):
    """The fleet, its first members by name, and all holds.

    ``used``: tokens in use within the caller's own window. ``policies``: the different settings in force, each as JSON.
    ``grants``: Unix seconds at which tokens in use were taken, ascending, at most ``MOST_GRANTS``. ``departed``:
    members that left or fell silent within the window and were not replaced, each with the seconds since; the newest
    first, at most ``MOST_DEPARTED``.
    """

    fleet: Fleet
    used: int
    members: tuple[Member, ...] = ()
    holds: tuple[Hold, ...] = ()
    policies: tuple[str, ...] = ()
    grants: tuple[float, ...] = ()
    departed: tuple[tuple[str, float], ...] = ()


def pack(about: About) -> str:
    """The line, of at most ``LONGEST`` bytes of UTF-8: too large numbers become the largest, long texts are cut."""
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
            *([about.settings] if _DIGEST.fullmatch(about.settings) else []),
        )
    )


def digest_of(policy: str) -> str:
    """Eight hexadecimal digits that tell one policy (the text of a sidecar's settings in the store) from others."""
    return blake2b(policy.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def unpack(line: str) -> About | None:
    """The description in the line; None if ``pack`` would not write the line."""
    match = _LINE.fullmatch(line) if len(line) <= LONGEST else None
    if match is None or match[1] not in _STATES or int(match[4]) > _FULL:
        return None
    incarnation, version = _read(match[3]), _read(match[7])
    if incarnation is None or version is None:
        return None
    numbers = (int(match[4]), int(match[5]), int(match[6]))
    return About(_STATES[match[1]], int(match[2]), incarnation, *numbers, version, int(match[8] or 0), match[9] or "")


def shown(members: Sequence[Member], departed: Sequence[tuple[str, float]]) -> dict[str, Iterator[dict[str, Any]]]:
    """Members, present and departed, as JSON values; an iterator each, because there may be thousands."""
    return {
        "members": (
            {**member._asdict(), "age_s": round(member.age_s, 3), "about": member.about and member.about._asdict()}
            for member in members
        ),
        "departed": ({"instance": instance, "age_s": round(age_s, 3)} for instance, age_s in departed),
    }


def fleet(value: Fleet) -> dict[str, Any]:
    """The fleet as JSON values: trials by the names of their fields, and the causes whose culls are paused."""
    trials = [{**trial._asdict(), "paused_s": round(trial.paused_s, 3)} for trial in value.trials]
    holds = {"hold": hold(value.hold), "lost_hold": hold(value.lost_hold)}
    return {**asdict(value), "trials": trials, "paused": list(value.paused), **holds}


def hold(value: Hold | None) -> dict[str, Any] | None:
    """A hold and its scope as JSON values."""
    return None if value is None else {"scope": "instance" if value.instance else "service", **asdict(value)}


def _number(value: int, most: int) -> str:
    return str(min(max(0, value), most))


def _bounded(text: str, most: int) -> str:
    """The text with its separators escaped, cut to ``most`` bytes, but not inside an escape."""
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
