"""The newest errors by fingerprint: how many, since when, and what the last of them said.

Messages are kept as the app wrote them; whoever shows them has to redact them. A report costs some lookups whatever
comes, and what is kept is bounded: under a flood of fingerprints the one that was silent longest makes room.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sidecar.core.types import Level, Ping

MOST: Final = 20
MESSAGE_LIMIT: Final = 300
"""Characters of a message that are shown; one more is kept, which tells that it was longer."""

COMPARED: Final = 120
"""Characters of a message that tell it from others."""

_DIGITS: Final = b"0123456789"
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_OPAQUE: Final = re.compile(r"[\w.:/~-]{1,64}", re.ASCII)
"""A fingerprint without blanks, ``=`` or ``@``; an address or a password would have one of them."""


class ErrorSample(NamedTuple):
    """So many ``errors`` of one fingerprint; kind, level and message are the newest's.

    ``first`` and ``last`` are on the clock that ``take`` is handed.
    """

    fingerprint: str
    kind: str
    level: Level
    errors: int
    first: float
    last: float
    message: str


class Kept(NamedTuple):
    """The evidence of a granted cull: the samples of that moment, and what the hook printed. ``at`` is Unix time."""

    claim_id: str
    at: float
    samples: tuple[ErrorSample, ...] = ()
    capture: str | None = None


class _Tally:
    """One fingerprint's counts, changed in place: a flood makes no objects."""

    __slots__ = ("errors", "first", "kind", "last", "level", "message")

    def __init__(self, now: float) -> None:
        self.errors = 0
        self.first = now
        self.message = ""

    def add(self, ping: Ping, now: float) -> None:
        self.errors += ping.errors
        self.last = now
        self.kind = ping.kind
        self.level = ping.level
        if ping.message:
            self.message = ping.message[: MESSAGE_LIMIT + 1]


class Samples:
    """The ``most`` fingerprints that were reported last in one life of the app; ``changes`` counts what is new."""

    def __init__(self, most: int = MOST) -> None:
        self.changes = 0
        self._most = most
        self._tallies: dict[str | bytes, _Tally] = {}

    def take(self, ping: Ping, now: float) -> None:
        """Note a report that has a message or a fingerprint; any other is of no use here."""
        if not ping.errors or not (ping.message or ping.fingerprint):
            return
        key = ping.fingerprint or _pattern(ping.kind, ping.message or "")
        tally = self._tallies.pop(key, None) or self._new(now)
        self._tallies[key] = tally  # the last of the dict is the newest
        tally.add(ping, now)
        self.changes += 1

    def clear(self) -> None:
        """Forget all: they are of a life that has ended."""
        self._tallies.clear()
        self.changes += 1

    def keyed(self) -> Iterator[tuple[str | bytes, ErrorSample]]:
        """All of them, the one that was reported last comes last, each behind the key that reports find it by."""
        return ((key, _sample(key, tally)) for key, tally in self._tallies.items())

    def restore(self, keyed: Iterable[tuple[str | bytes, ErrorSample]]) -> None:
        """Go on with what ``keyed`` gave, in place of all that was known here."""
        self._tallies = dict([(key, _tally(sample)) for key, sample in keyed][-self._most :])
        self.changes += 1

    def newest(self) -> tuple[ErrorSample, ...]:
        """All of them, the one that was reported last first."""
        return tuple(_sample(key, tally) for key, tally in reversed(self._tallies.items()))

    def _new(self, now: float) -> _Tally:
        if len(self._tallies) >= self._most:
            del self._tallies[next(iter(self._tallies))]
        return _Tally(now)


def _pattern(kind: str, message: str) -> bytes:
    """What messages have in common that differ in numbers, hexadecimal words and UUIDs only.

    Two passes over some bytes, which are ten times as fast as over a text, and no search: this is done for each report.
    A message without a digit is told apart as it is.
    """
    said = message[:COMPARED].encode(errors="replace")
    has_digits = len(said.translate(None, _DIGITS)) < len(said)
    return b"%b %b" % (kind.encode(), said.translate(None, _HEX_DIGITS) if has_digits else said)


def _sample(key: str | bytes, tally: _Tally) -> ErrorSample:
    return ErrorSample(_shown(key), tally.kind, tally.level, tally.errors, tally.first, tally.last, tally.message)


def _tally(sample: ErrorSample) -> _Tally:
    tally = _Tally(sample.first)
    tally.errors, tally.last, tally.message = sample.errors, sample.last, sample.message
    tally.kind, tally.level = sample.kind, sample.level
    return tally


def _shown(key: str | bytes) -> str:
    """The app's own fingerprint if it is harmless, else a checksum, which is the same in every process."""
    if isinstance(key, str) and _OPAQUE.fullmatch(key):
        return key
    return f"{crc32(key.encode(errors='replace') if isinstance(key, str) else key):08x}"
