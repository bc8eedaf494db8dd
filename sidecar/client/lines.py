"""The reports of the app: as StatsD lines, and as the JSON objects of the sidecar's local listener.

``errors:3|c|#level:server_error,kind:redis,fingerprint:KeyError@cart:add:12,fatal:true,app_start:7,message:...``, and
``requests:10|c``, ``failed:1|c``, ``heartbeat:1|c``, and the gauges ``in_flight:7|g`` and ``load:0.7|g``. Characters
that the listener would refuse become ``_``, or in a message a character that looks like them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, Final

LEVELS: Final = frozenset({"server_error", "client_error", "investigation", "recovered"})
OTHER: Final = "other"
TAG_LIMIT: Final = 64
MOST: Final = 1_000_000
"""Maximum count in one line or object; the next packet has the rest."""

MESSAGE_LIMIT: Final = 200
"""Characters. Messages are for readers of ``/why``, and packets have to stay small."""

_NOT_IN_A_WORD: Final = re.compile(r"[^A-Za-z0-9_.:/-]", re.ASCII)
_NOT_IN_A_TOKEN: Final = re.compile(r"[^\x21-\x7e]|[,|#]")
_LOOKS: Final = str.maketrans({",": ";", "|": "/", "#": "*"} | dict.fromkeys(map(chr, (*range(32), 127, 0x2028)), " "))
"""A comma would end the tag, a bar the section and a line feed the line."""


class StatsdSeries:
    """One line without its number. Compared by identity, so it is a cheap key: see the caches below.

    ``folded`` is the series to count in if too many series wait; None if there is no wider one.
    ``can_wait``: whether the line is still true later. Over HTTP its number is ``field`` of an object for ``path``.
    """

    __slots__ = ("field", "folded", "head", "path", "tags", "tail")
    can_wait: ClassVar = True

    def __init__(
        self,
        name: str,
        tags: Mapping[str, str] | None = None,
        folded: StatsdSeries | None = None,
        *,
        path: str = "/results",
        field: str = "",
    ) -> None:
        self.head = f"{name}:".encode()
        self.tags = dict(tags or {})
        self.tail = ("|c|#" + ",".join(f"{tag}:{value}" for tag, value in tags.items()) if tags else "|c").encode()
        self.folded = folded
        self.path = path
        self.field = field or name

    def line(self, count: int, message: str | None = None) -> bytes:
        """Return the line with its number; only a line with tags can have a ``message``."""
        line = b"%b%d%b" % (self.head, count, self.tail)
        return line if message is None else line + b",message:" + message.encode(errors="replace")

    def fields(self, count: int, message: str | None = None) -> dict[str, object]:
        """Return the same as fields of a JSON object."""
        fields: dict[str, object] = {self.field: count, **self.tags}
        if "fatal" in fields:
            fields["fatal"] = True
        return fields if message is None else {**fields, "message": message}


class Gauge(StatsdSeries):
    """A line with a present value, which is its message; it does not contain the count."""

    __slots__ = ()
    can_wait: ClassVar = False

    def line(self, _count: int, message: str | None = None) -> bytes:
        """Return the line with its value."""
        return self.head + (message or "0").encode() + b"|g"

    def fields(self, _count: int, message: str | None = None) -> dict[str, object]:
        """Return the field with its value."""
        value = float(message or "0")
        return {self.field: int(value) if value.is_integer() else value}


class Sum:
    """The count of one series that waits, since when, and the last message."""

    __slots__ = ("count", "message", "since")

    def __init__(self, since: float) -> None:
        self.count = 0
        self.since = since
        self.message: str | None = None


HEARTBEAT: Final = StatsdSeries("heartbeat", path="/heartbeat")
OK: Final = StatsdSeries("requests", field="ok")
FAILED: Final = StatsdSeries("failed")
IN_FLIGHT: Final = Gauge("in_flight")
LOAD: Final = Gauge("load")
_LARGEST: Final = 1e15
_SMALLEST: Final = 1e-15


@lru_cache(maxsize=512)
def errors(
    level: str, kind: str | None, fingerprint: str | None, app_start: str | None, *, fatal: bool = False
) -> StatsdSeries:
    """Return the series of these errors. Raises ValueError for an unknown level, which the listener would refuse."""
    if level not in LEVELS:
        raise ValueError(f"level: takes one of {', '.join(sorted(LEVELS))}")
    tags = {"level": level}
    if kind:
        tags["kind"] = _NOT_IN_A_WORD.sub("_", str(kind)[:TAG_LIMIT])
    if fingerprint:
        tags["fingerprint"] = _token(fingerprint)
    if fatal:
        tags["fatal"] = "true"
    if app_start:
        tags["app_start"] = _token(app_start)
    folded = None if kind == OTHER and not fingerprint else errors(level, OTHER, None, app_start, fatal=fatal)
    return StatsdSeries("errors", tags, folded, path="/errors", field="count")


def decimal(number: float) -> str:
    """Write a finite number of 0 or more as the listener reads it, within the digits that it accepts."""
    return f"{min(number, _LARGEST):.12g}" if number >= _SMALLEST else "0"


def message_tag(text: str) -> str:
    """Make a message fit a tag: one line, at most ``MESSAGE_LIMIT`` characters."""
    return str(text)[:MESSAGE_LIMIT].translate(_LOOKS)


def _token(text: str) -> str:
    return _NOT_IN_A_TOKEN.sub("_", str(text)[:TAG_LIMIT])
