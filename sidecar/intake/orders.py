"""What ``POST /hold`` and ``DELETE /hold`` may say: an order out, or an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sidecar import durations
from sidecar.intake.pings import BadReportError, Readers, read_object

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 7 * 24 * 3600.0
REASON_LIMIT: Final = 200
AUTHOR_LIMIT: Final = 100
INSTANCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
SERVICE: Final = "service"
SCOPES: Final = (SERVICE, "instance")
NO_BODY: Final = (
    "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&instance=ID; "
    "without a query it releases the service"
)
"""Who put the scope into a body would otherwise release the whole service."""


class HoldOrder(NamedTuple):
    """A hold that a person wants; ``instance`` is ``""`` for the service."""

    instance: str
    author: str
    reason: str
    for_s: float


def read_hold(body: bytes, own: str) -> HoldOrder:
    """Read one object; scope ``instance`` without a name is ``own``."""
    fields = read_object(body, READERS)
    for name in ("for", "reason", "author"):
        if READERS[name][0] not in fields:
            raise BadReportError(f"{name}: is missing")
    instance = _whom(fields.pop("scope", SERVICE), fields.pop("instance", None), own)
    return HoldOrder(instance, **fields)


def read_release(query: Sequence[tuple[str, str]], own: str) -> str:
    """Read the pairs of a query string: whose hold is over, ``""`` for the service."""
    fields: dict[str, Any] = {}
    for name, value in query:
        if name not in _QUERY or name in fields:
            raise BadReportError(f"{name[:64]}: takes scope once, and instance once")
        try:
            fields[name] = _QUERY[name](value)
        except ValueError as error:
            raise BadReportError(f"{name}: {error}") from None
    return _whom(fields.get("scope", SERVICE), fields.get("instance"), own)


def _whom(scope: str, instance: str | None, own: str) -> str:
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
        raise ValueError("takes 1s to 168h, which is a week")
    return seconds


def _text(value: object, limit: int) -> str:
    """What a person wrote, for one line of a terminal or a log: nothing in it may move the cursor."""
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

_QUERY: Final = {"scope": _scope, "instance": _instance}
