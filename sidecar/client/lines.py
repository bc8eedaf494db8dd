"""StatsD lines: what the app reports, as text that the sidecar's datagram door reads.

``errors:3|c|#level:server_error,kind:redis,fingerprint:KeyError@cart:add:12,fatal:true,app_start:7,message:...``, and
``requests:10|c``, ``failed:1|c``, ``heartbeat:1|c``, and the gauges ``in_flight:7|g`` and ``load:0.7|g``. What the door
would refuse is never written: a character that does not fit a tag becomes ``_``, or in a message one that looks
like it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar, Final

LEVELS: Final = frozenset({"server_error", "client_error", "investigation", "recovered"})
OTHER: Final = "other"
TAG_LIMIT: Final = 64
MESSAGE_LIMIT: Final = 200
"""Characters. A message is for a person who reads ``/why``, and the packet has to stay small."""

_NOT_IN_A_WORD: Final = re.compile(r"[^A-Za-z0-9_.:/-]", re.ASCII)
_NOT_IN_A_TOKEN: Final = re.compile(r"[^\x21-\x7e]|[,|#]")
_LOOKS: Final = str.maketrans({",": ";", "|": "/", "#": "*"} | dict.fromkeys(map(chr, (*range(32), 127, 0x2028)), " "))
"""A comma would end the tag, a bar the section and a line feed the line."""


class Series:
    """One line without its number. Compared by identity, which makes it a cheap key: see the caches below.

    ``folded`` is the series that counts instead when too many are waiting; None when this is it already. ``can_wait``
    tells whether it is still true when the sidecar hears of it later.
    """

    __slots__ = ("folded", "head", "tail")
    can_wait: ClassVar = True

    def __init__(self, name: str, tags: tuple[str, ...] = (), folded: Series | None = None) -> None:
        self.head = f"{name}:".encode()
        self.tail = ("|c|#" + ",".join(tags) if tags else "|c").encode()
        self.folded = folded

    def line(self, count: int, message: str | None = None) -> bytes:
        """The line with its number; ``message`` only goes where there are tags."""
        line = b"%b%d%b" % (self.head, count, self.tail)
        return line if message is None else line + b",message:" + message.encode(errors="replace")


class Gauge(Series):
    """A line of what is so at the moment. Its number is not how often that was said but the newest message."""

    __slots__ = ()
    can_wait: ClassVar = False

    def line(self, _count: int, message: str | None = None) -> bytes:
        """The line with its number."""
        return self.head + (message or "0").encode() + b"|g"


HEARTBEAT: Final = Series("heartbeat")
OK: Final = Series("requests")
FAILED: Final = Series("failed")
IN_FLIGHT: Final = Gauge("in_flight")
LOAD: Final = Gauge("load")
_LARGEST: Final = 1e15
_SMALLEST: Final = 1e-15


@lru_cache(maxsize=512)
def errors(
    level: str, kind: str | None, fingerprint: str | None, app_start: str | None, *, fatal: bool = False
) -> Series:
    """The series of these errors; ValueError for a level that does not exist, as the door would refuse it."""
    if level not in LEVELS:
        raise ValueError(f"level: takes one of {', '.join(sorted(LEVELS))}")
    tags = [f"level:{level}"]
    if kind:
        tags.append(f"kind:{_NOT_IN_A_WORD.sub('_', str(kind)[:TAG_LIMIT])}")
    if fingerprint:
        tags.append(f"fingerprint:{_token(fingerprint)}")
    if fatal:
        tags.append("fatal:true")
    if app_start:
        tags.append(f"app_start:{_token(app_start)}")
    folded = None if kind == OTHER and not fingerprint else errors(level, OTHER, None, app_start, fatal=fatal)
    return Series("errors", tuple(tags), folded)


def decimal(number: float) -> str:
    """A finite number of 0 or more as the door reads it: what has too many digits for that is bounded."""
    return f"{min(number, _LARGEST):.12g}" if number >= _SMALLEST else "0"


def message_tag(text: str) -> str:
    """A message as it fits a tag: one line, at most ``MESSAGE_LIMIT`` characters."""
    return str(text)[:MESSAGE_LIMIT].translate(_LOOKS)


def _token(text: str) -> str:
    return _NOT_IN_A_TOKEN.sub("_", str(text)[:TAG_LIMIT])
