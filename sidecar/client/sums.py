"""What waits for the sidecar: reports added up, within bounds, as the JSON objects that its local listener reads.

It knows no thread, no socket and no clock. Characters that the listener would refuse become ``_``, because one bad
object would refuse the whole request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from .local_http import Outcome

LEVELS: Final = frozenset({"server_error", "client_error", "investigation", "recovered"})
WORD_LIMIT: Final = 64
"""Characters of a kind, a fingerprint and the start of an app."""

MESSAGE_LIMIT: Final = 200
"""Characters. Messages are for readers of ``/why``, and requests have to stay small."""

MOST: Final = 1_000_000
"""Maximum number in one object; the next request has the rest."""

KEEP_S: Final = 30.0
"""Maximum age of a sum. An older one would count as new errors of an app that may have recovered."""

KEPT_SERIES: Final = 256
"""Maximum number of series of errors that wait. Errors of further kinds, fingerprints and starts are dropped."""

OBJECTS: Final = 40
"""Maximum number of objects in one request; its body stays below the 64 KiB that the listener takes."""

_NOT_IN_A_WORD: Final = re.compile(r"[^A-Za-z0-9_.:/-]", re.ASCII)
_NOT_IN_A_TOKEN: Final = re.compile(r"[^\x21-\x7e]")


class ReportSeries(NamedTuple):
    """What is added up in one number, and leaves in one object."""

    path: str  # of the listener
    field: str  # that has the number
    tags: tuple[tuple[str, str | bool], ...] = ()  # the other fields


HEARTBEAT: Final = ReportSeries("/heartbeat", "")
OK: Final = ReportSeries("/results", "ok")
FAILED: Final = ReportSeries("/results", "failed")


@lru_cache(maxsize=512)
def errors(
    level: str, kind: str | None, fingerprint: str | None, app_start: str | None, *, fatal: bool = False
) -> ReportSeries:
    """Return the series of these errors. Raises ValueError for an unknown level, which the listener would refuse."""
    if level not in LEVELS:
        raise ValueError(f"level: takes one of {', '.join(sorted(LEVELS))}")
    tags: dict[str, str | bool] = {"level": level}
    if kind:
        tags["kind"] = _NOT_IN_A_WORD.sub("_", str(kind)[:WORD_LIMIT])
    if fingerprint:
        tags["fingerprint"] = _NOT_IN_A_TOKEN.sub("_", str(fingerprint)[:WORD_LIMIT])
    if app_start:
        tags["app_start"] = _NOT_IN_A_TOKEN.sub("_", str(app_start)[:WORD_LIMIT])
    if fatal:
        tags["fatal"] = True
    return ReportSeries("/errors", "count", tuple(tags.items()))


class ReportRequest(NamedTuple):
    """Sums on their way."""

    path: str
    body: bytes
    series: list[ReportSeries]


class Sum:
    """The count of one series that waits, since when, and the last message."""

    __slots__ = ("count", "message", "since")

    def __init__(self, since: float) -> None:
        self.count = 0
        self.since = since
        self.message: str | None = None


class Sums:
    """What waits for the sidecar, and what has become of all reports. ``now``: seconds on a monotonic clock."""

    def __init__(self) -> None:
        self.kept: dict[ReportSeries, Sum] = {}
        self.gauges: dict[str, float] = {}  # present values by field; not kept for a sidecar that is away
        self.taken = self.sent = self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self.kept or self.gauges)

    def add(self, series: ReportSeries, number: int, message: str | None, now: float) -> None:
        """Add a report up. Results and heartbeats are three series at most, and always have room."""
        self.taken += number
        total = self.kept.get(series)
        if total is None:
            if len(self.kept) >= KEPT_SERIES and series.path == "/errors":
                self.dropped += number
                return
            total = self.kept[series] = Sum(now)
        total.count += number
        total.message = message or total.message

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self.taken += count
        self.dropped += count

    def requests(self) -> Iterator[ReportRequest]:
        """Yield all sums and gauges: errors are an array, results one object, a heartbeat has no body."""
        from json import dumps  # noqa: PLC0415 - for a quick import of the app

        errors, results, heartbeats = (
            [series for series in self.kept if series.path == path] for path in ("/errors", "/results", "/heartbeat")
        )
        for at in range(0, len(errors), OBJECTS):
            part = errors[at : at + OBJECTS]
            body = dumps([self._error(series) for series in part], ensure_ascii=False)
            yield ReportRequest("/errors", body.encode(errors="replace"), part)
        gauges = {field: self.gauges.pop(field) for field in [*self.gauges]}
        if fields := {series.field: self._due(series) for series in results} | gauges:
            yield ReportRequest("/results", dumps(fields).encode(), results)
        if heartbeats:
            yield ReportRequest("/heartbeat", b"", heartbeats)

    def settle(self, outcome: Outcome, series: list[ReportSeries], now: float) -> None:
        """Note the outcome of a request: its sums need not be sent again, or what is too old is dropped."""
        if outcome in (Outcome.FULL, Outcome.AWAY):
            for each in [each for each, total in self.kept.items() if now - total.since >= KEEP_S]:
                self.dropped += self.kept.pop(each).count
            return
        for each in series:
            number = self._due(each)
            if outcome is Outcome.SENT:
                self.sent += number
            else:
                self.dropped += number
            self.kept[each].count -= number
            if not self.kept[each].count:
                del self.kept[each]

    def _due(self, series: ReportSeries) -> int:
        """What the next request has of this sum."""
        return min(self.kept[series].count, MOST)

    def _error(self, series: ReportSeries) -> dict[str, object]:
        fields: dict[str, object] = {series.field: self._due(series), **dict(series.tags)}
        message = self.kept[series].message
        if message is not None:
            from .redaction import redacted  # noqa: PLC0415 - as above

            fields["message"] = redacted(message)[:MESSAGE_LIMIT]
        return fields
