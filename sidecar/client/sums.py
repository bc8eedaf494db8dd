"""Adds reports up, within bounds, until the sidecar has them. It knows no thread, no socket and no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from .local_http import Outcome
from .reports import MESSAGE_LIMIT, MOST, ReportSeries

KEEP_S: Final = 30.0
"""Maximum age of a sum. An older one would count as new errors of an app that may have recovered."""

OBJECTS: Final = 40
"""Maximum number of objects in one request; its body stays below the 64 KiB that the listener takes."""

KEPT_SERIES: Final = 256
FOLDED_SERIES: Final = 64


KEPT_OF_MESSAGE: Final = 512
"""Characters. Secrets are removed when a message is sent, once for all reports that are added up."""


class Increment(NamedTuple):
    """One call."""

    series: ReportSeries
    number: int
    message: str | None = None


class ReportRequest(NamedTuple):
    """Sums on their way."""

    path: str
    body: bytes
    counts: dict[ReportSeries, int]


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

    def add(self, report: Increment, now: float) -> None:
        """Add a report. Of too many series the further ones are folded, and then dropped."""
        self.taken += report.number
        total = self._sum_of(report.series, now)
        if total is None:
            self.dropped += report.number
        else:
            total.count += report.number
            total.message = report.message or total.message

    def drop(self, count: int) -> None:
        """Count reports that cannot be sent."""
        self.taken += count
        self.dropped += count

    def _sum_of(self, series: ReportSeries, now: float) -> Sum | None:
        total = self.kept.get(series)
        if total is None and len(self.kept) >= KEPT_SERIES and series.folded is not None:
            series = series.folded
            total = self.kept.get(series)
        if total is None and len(self.kept) < KEPT_SERIES + FOLDED_SERIES:
            total = self.kept[series] = Sum(now)
        return total

    def requests(self) -> Iterator[ReportRequest]:
        """Yield all sums and gauges: errors are an array, results one object, a heartbeat has no body."""
        from json import dumps  # noqa: PLC0415 - for a quick import of the app

        errors, results, heartbeats = [
            {series: min(total.count, MOST) for series, total in self.kept.items() if series.path == path}
            for path in ("/errors", "/results", "/heartbeat")
        ]
        for at in range(0, len(errors), OBJECTS):
            part = dict([*errors.items()][at : at + OBJECTS])
            objects = [_error(series, count, self.kept[series].message) for series, count in part.items()]
            yield ReportRequest("/errors", dumps(objects, ensure_ascii=False).encode(errors="replace"), part)
        gauges = {field: self.gauges.pop(field) for field in [*self.gauges]}
        if fields := {series.field: count for series, count in results.items()} | gauges:
            yield ReportRequest("/results", dumps(fields).encode(), results)
        if heartbeats:
            yield ReportRequest("/heartbeat", b"", heartbeats)

    def settle(self, outcome: Outcome, counts: dict[ReportSeries, int], now: float) -> None:
        """Note the outcome of a request: its counts need not be sent again, or what is too old is dropped."""
        if outcome in (Outcome.SENT, Outcome.REFUSED):
            for series, count in counts.items():
                self.kept[series].count -= count
                if not self.kept[series].count:
                    del self.kept[series]
            self.sent += sum(counts.values()) * (outcome is Outcome.SENT)
            self.dropped += sum(counts.values()) * (outcome is Outcome.REFUSED)
            return
        keep_s = 0.0 if outcome is Outcome.NOWHERE else KEEP_S
        for series in [series for series, total in self.kept.items() if now - total.since >= keep_s]:
            self.dropped += self.kept.pop(series).count


def _error(series: ReportSeries, count: int, message: str | None) -> dict[str, object]:
    fields: dict[str, object] = {series.field: count, **dict(series.tags)}
    if message is not None:
        from .redaction import redacted  # noqa: PLC0415 - as above

        fields["message"] = redacted(message)[:MESSAGE_LIMIT]
    return fields
