"""All counts of one app: reports in, evidence out. The detectors judge the evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sidecar.client.success_rate import SuccessHistory
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Heartbeat, Load, Report, Results, Sample
from sidecar.core.explain.samples import Samples
from sidecar.core.measure.usual import OwnUsual
from sidecar.core.measure.window import RequestResults, RollingCounts
from sidecar.core.types import Evidence

IGNORED: Final = "ignored"
"""The key for errors of kinds that never count, among the levels that do not count."""

RESULTS_KEPT_S: Final = 300.0
"""How long the last results count. An app gets requests at any weight, so after this time its reports have stopped, and
missing data never makes a container sick."""


class _Level(NamedTuple):
    """What the app reported last of itself, and when."""

    value: float
    at: float


class Measurements:
    """All counts of one app over the last ``window_s`` seconds.

    ``known_kinds`` always have counts of their own, ``ignored_kinds`` never count. ``now`` is in seconds of one clock;
    ``turn`` makes its second the current one before reports of that second are taken.
    """

    def __init__(
        self, window_s: int, now_s: int, *, known_kinds: Iterable[str] = (), ignored_kinds: Iterable[str] = ()
    ) -> None:
        self.errors = RollingCounts(window_s, now_s, known=known_kinds)
        self.others = RollingCounts(window_s, now_s)
        self.usual = OwnUsual(window_s)
        """Errors of this incarnation while it was well; the controller samples them."""
        self.samples = Samples()
        """The newest errors of this incarnation."""
        self.idle_at: float | None = None
        """When the app reported that no request is in flight, if it has reported none since."""
        self._fatal = RollingCounts(window_s, now_s)
        self._results = RequestResults(window_s, now_s)
        self._windows = (self.errors, self.others, self._fatal, self._results)
        self._successes = SuccessHistory(now_s)
        self._ignored = frozenset(ignored_kinds)
        self._now_s = now_s
        self._in_flight: _Level | None = None
        self._load: _Level | None = None
        self._results_at: float | None = None
        self._heartbeat_at: float | None = None
        self._evidence: Evidence | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no window holds anything, so that the counts are the same in every later second."""
        return all(window.is_empty for window in self._windows)

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second; what is counted from now on is in the next evidence."""
        self._evidence = None
        if now_s == self._now_s:
            return
        self._now_s = now_s
        for window in self._windows:
            window.turn(now_s)

    def take(self, report: Report, now: float) -> None:
        """Count one report; one that only announces an incarnation counts nothing."""
        self._evidence = None
        match report:
            case ErrorReport():
                self._take_errors(report)
                self.samples.take(report, now)
            case Results():
                self._end(report.ok, report.failed, now)
                self._see_in_flight(report.in_flight, now)
                self._load = self._load if report.load is None else _Level(report.load, now)
            case Sample():
                self._see_in_flight(report.in_flight, now)
                failed = min(sum(self._count(kind, errors) for kind, errors in report.errors.items()), report.requests)
                self._end(report.requests - failed, failed, now)
            case Heartbeat():
                self._heartbeat_at = now

    def clear(self, *, heart: bool = True) -> None:
        """Empty the window; with ``heart`` also forget the last heartbeat, success rate, samples and usual errors.

        Counts since the beginning stay.
        """
        for window in self._windows:
            window.clear()
        self._in_flight = self._load = self.idle_at = None
        self._evidence = None
        if heart:
            self._heartbeat_at = self._results_at = None
            self._successes.clear()
            self.samples.clear()
            self.usual.clear()

    def success_rate(self, now: float) -> float | None:
        """The part of recent requests that succeeded, within [0, 1]; None if no requests are known.

        Errors alone, from error reports or from a page without ``requests``, give no rate.
        """
        if self._results_at is None or now - self._results_at > RESULTS_KEPT_S:
            return None
        return self._successes.steady_rate(now)

    def load(self, now: float) -> Load | None:
        """The last reported load; requests in flight if this incarnation has never reported a load."""
        level = self._load or self._in_flight
        return Load(level.value, now - level.at) if level else None

    def evidence(self, now: float) -> Evidence:
        """What the window holds; summed up once for all that a turn asks between two changes of the counts."""
        if self._evidence is None:
            self._evidence = self._sum(now)
        return self._evidence

    def _sum(self, now: float) -> Evidence:
        errors, results = self.errors, self._results
        return Evidence(
            window_s=errors.seconds,
            errors=errors.total,
            kinds=errors.by_key(),
            levels=self.others.by_key(),
            newest_age_s=errors.newest_age_s(),
            fatal=self._fatal.total,
            requests=results.requests,
            failed=results.failed,
            kept_ok=results.kept,
            heartbeat_age_s=None if self._heartbeat_at is None else now - self._heartbeat_at,
            failed_age_s=results.failed_age_s,
        )

    def _take_errors(self, report: ErrorReport) -> None:
        if report.level is not ErrorLevel.SERVER_ERROR:
            self.others.record(report.level, report.errors)
        elif self._count(report.kind, report.errors) and report.fatal:
            self._fatal.record(report.kind, report.errors)

    def _count(self, kind: str, errors: int) -> int:
        """Count errors of a kind; return how many of them count."""
        if kind in self._ignored:
            self.others.record(IGNORED, errors)
            return 0
        self.errors.record(kind, errors)
        return errors

    def _end(self, ok: int, failed: int, now: float) -> None:
        """Count requests that have ended."""
        if ok or failed:
            self._results.record(ok, failed)
            self._successes.count(now, ok, failed)
            self._results_at = now

    def _see_in_flight(self, in_flight: float | None, now: float) -> None:
        if in_flight is not None:
            self._in_flight = _Level(in_flight, now)
            self.idle_at = now if in_flight == 0 else None
