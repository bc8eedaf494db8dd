"""The orders of a person: what their bodies and queries may say. An error names the field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sidecar.net.json_fields import BadFieldError, Readers, read_object, read_pairs
from sidecar.runlock import durations

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 7 * 24 * 3600.0
REASON_LIMIT: Final = 200
AUTHOR_LIMIT: Final = 100
INSTANCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
NO_REASON: Final = "no reason given"
SERVICE: Final = "service"
SCOPES: Final = (SERVICE, "instance")


class Order(NamedTuple):
    """An order of a person."""

    instance: str  # whom it is about; ``""``: the whole service, or this container if it is to be culled or revived
    author: str = ""  # ``""`` if a release names none
    reason: str = NO_REASON
    for_s: float = 0.0  # how long a hold lasts


def read_hold(body: bytes, own: str) -> Order:
    """Read an order to hold culls; scope ``instance`` without a name means ``own``."""
    return _order(read_object(body, READERS), own, needs=("for", "reason", "author"))


def read_release(query: Sequence[tuple[str, str]], own: str) -> Order:
    """Read an order to end a hold, from the pairs of a query string."""
    return _order(read_pairs(query, _OF_RELEASE), own)


def read_cull_or_revive(body: bytes) -> Order:
    """Read an order about this container; the reason is optional, the author is not."""
    return _order(read_object(body, _OF_CULL_OR_REVIVE), "", needs=("author",))


def _order(fields: dict[str, Any], own: str, needs: Sequence[str] = ()) -> Order:
    for name in needs:
        if READERS[name][0] not in fields:
            raise BadFieldError(f"{name}: is missing")
    scope, instance = fields.pop("scope", SERVICE), fields.pop("instance", "")
    if scope == SERVICE and instance:
        raise BadFieldError("instance: goes with scope instance only")
    return Order("" if scope == SERVICE else instance or own, **fields)


def _scope(value: object) -> str:
    if not isinstance(value, str) or value not in SCOPES:
        raise ValueError(f"takes one of {', '.join(SCOPES)}")
    return value


def _instance(value: object) -> str:
    if not isinstance(value, str) or not INSTANCE.fullmatch(value):
        raise ValueError("takes 1 to 128 of A-Z a-z 0-9 _ . : -")
    return value


def _for(value: object) -> float:
    seconds = durations.parse(value)
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError("takes 1s to 168h (a week)")
    return seconds


def _text(value: object, limit: int) -> str:
    """One line of text for a terminal or a log, without control characters."""
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > limit or not text.isprintable():
        raise ValueError(f"takes a line of 1 to {limit} printable characters")
    return text


READERS: Final[Readers] = {
    "for": ("for_s", _for),
    "reason": ("reason", lambda value: _text(value, REASON_LIMIT)),
    "author": ("author", lambda value: _text(value, AUTHOR_LIMIT)),
    "scope": ("scope", _scope),
    "instance": ("instance", _instance),
}

_OF_RELEASE: Final[Readers] = {name: READERS[name] for name in ("scope", "instance", "author")}
_OF_CULL_OR_REVIVE: Final[Readers] = {name: READERS[name] for name in ("author", "reason")}
