"""Parses the orders of a person: hold, release, cull, revive. An error names the field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from sidecar.inputs.report_bodies import BadReportError, Readers, read_object, read_pairs
from sidecar.runlock import durations

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 7 * 24 * 3600.0
REASON_LIMIT: Final = 200
AUTHOR_LIMIT: Final = 100
INSTANCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
NO_REASON: Final = "no reason given"
SERVICE: Final = "service"
SCOPES: Final = (SERVICE, "instance")
NO_BODY: Final = (
    "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&instance=ID; "
    "without a query it releases the service"
)
"""Without this error a client that puts the scope into a body would release the whole service."""


class HoldOrder(NamedTuple):
    """An order to hold culls; ``instance`` is ``""`` for the whole service."""

    instance: str
    author: str
    reason: str
    for_s: float


def read_hold(body: bytes, own: str) -> HoldOrder:
    """Read one object; scope ``instance`` without a name means ``own``."""
    fields = read_object(body, READERS)
    for name in ("for", "reason", "author"):
        if READERS[name][0] not in fields:
            raise BadReportError(f"{name}: is missing")
    instance = _instance_of(fields.pop("scope", SERVICE), fields.pop("instance", None), own)
    return HoldOrder(instance, **fields)


class OverrideOrder(NamedTuple):
    """An order to cull this container, or to revive it."""

    author: str
    reason: str = NO_REASON


def read_order(body: bytes) -> OverrideOrder:
    """Read one object; the reason is optional, the author is not."""
    fields = read_object(body, ORDER_READERS)
    if "author" not in fields:
        raise BadReportError("author: is missing")
    return OverrideOrder(**fields)


class ReleaseOrder(NamedTuple):
    """An order to end the hold of ``instance``, ``""`` for the service's; ``author`` is ``""`` if not given."""

    instance: str
    author: str = ""


def read_release(query: Sequence[tuple[str, str]], own: str) -> ReleaseOrder:
    """Read the pairs of a query string."""
    fields = read_pairs(query, _QUERY)
    instance = _instance_of(fields.get("scope", SERVICE), fields.get("instance"), own)
    return ReleaseOrder(instance, fields.get("author", ""))


def _instance_of(scope: str, instance: str | None, own: str) -> str:
    if scope != SERVICE:
        return instance or own
    if instance is not None:
        raise BadReportError("instance: goes with scope instance only")
    return ""


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

ORDER_READERS: Final[Readers] = {name: READERS[name] for name in OverrideOrder._fields}

_QUERY: Final[Readers] = {name: READERS[name] for name in ("scope", "instance", "author")}
