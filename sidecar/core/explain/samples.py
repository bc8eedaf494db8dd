"""The newest errors by fingerprint: their number, their first and last time, and the last message.

Messages are kept as the app wrote them, so code that shows them has to redact them. A report costs a few lookups. The
number of fingerprints is bounded: a new one replaces the one that was reported longest ago.
"""

from __future__ import annotations

import re
from binascii import crc32
from typing import Final, NamedTuple

from sidecar.core.app_reports import ErrorLevel, ErrorReport

MOST: Final = 20
MESSAGE_LIMIT: Final = 300
"""Characters of a message that are shown; one more is kept, to recognise a longer message."""

COMPARED: Final = 120
"""Characters of a message that distinguish it from others."""

_DIGITS: Final = b"0123456789"
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_OPAQUE: Final = re.compile(r"[\w.:/~-]{1,64}", re.ASCII)
"""A fingerprint that may be shown: an address or a password would have a blank, ``=`` or ``@``."""


class ErrorSample(NamedTuple):
    """``errors`` of one fingerprint, with kind, level and message of the newest.

    ``first`` and ``last`` are on the clock of ``Samples.take``.
    """

    fingerprint: str
    kind: str
    level: ErrorLevel
    errors: int
    first: float
    last: float
    message: str


class CullEvidence(NamedTuple):
    """The evidence of a cull: the samples at that time, and the output of the hook. ``at`` is Unix time."""

    claim_id: str
    at: float
    samples: tuple[ErrorSample, ...] = ()
    capture: str | None = None


class _SampleCounts:
    """The counts of one fingerprint, changed in place, so that a flood creates no objects."""

    __slots__ = ("errors", "first", "kind", "last", "level", "message")

    def __init__(self, now: float) -> None:
        self.errors = 0
        self.first = now
        self.message = ""

    def add(self, report: ErrorReport, now: float) -> None:
        self.errors += report.errors
        self.last = now
        self.kind = report.kind
        self.level = report.level
        if report.message:
            self.message = report.message[: MESSAGE_LIMIT + 1]


class Samples:
    """The last ``most`` fingerprints that one incarnation of the app reported."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._counts: dict[str | bytes, _SampleCounts] = {}

    def take(self, report: ErrorReport, now: float) -> None:
        """Count a report that has a message or a fingerprint; reports with neither are not samples."""
        if not report.errors or not (report.message or report.fingerprint):
            return
        key = report.fingerprint or _pattern(report.kind, report.message or "")
        counts = self._counts.pop(key, None) or self._new(now)
        self._counts[key] = counts  # the last of the dict is the newest
        counts.add(report, now)

    def clear(self) -> None:
        """Forget all: the incarnation has ended."""
        self._counts.clear()

    def newest(self) -> tuple[ErrorSample, ...]:
        """All samples, the last reported first."""
        return tuple(
            ErrorSample(
                _shown(key), counts.kind, counts.level, counts.errors, counts.first, counts.last, counts.message
            )
            for key, counts in reversed(self._counts.items())
        )

    def _new(self, now: float) -> _SampleCounts:
        if len(self._counts) >= self._most:
            del self._counts[next(iter(self._counts))]
        return _SampleCounts(now)


def _pattern(kind: str, message: str) -> bytes:
    """A key that is the same for messages that differ only in numbers, hexadecimal words and UUIDs.

    Every report needs one: two passes over bytes are ten times as fast as over a text. A message without a digit is its
    own key.
    """
    start = message[:COMPARED].encode(errors="replace")
    has_digits = len(start.translate(None, _DIGITS)) < len(start)
    return b"%b %b" % (kind.encode(), start.translate(None, _HEX_DIGITS) if has_digits else start)


def _shown(key: str | bytes) -> str:
    """The app's own fingerprint if it may be shown, else a checksum, which is the same in every process."""
    if isinstance(key, str) and _OPAQUE.fullmatch(key):
        return key
    return f"{crc32(key.encode(errors='replace') if isinstance(key, str) else key):08x}"
