"""All counts of one app: reports in, evidence out. The detectors judge the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.client.success_rate import SuccessHistory
from sidecar.core.measure.outlier import OwnUsual
from sidecar.core.measure.results import RequestResults
from sidecar.core.measure.window import RollingCounts
from sidecar.core.types import (
    AppExited,
    AppListening,
    ErrorLevel,
    ErrorReport,
    Evidence,
    Heartbeat,
    Load,
    Missed,
    Report,
    Results,
    Sample,
)

IGNORED: Final = "ignored"
"""The key for errors of kinds that never count, among the levels that do not count."""

RESULTS_KEPT_S: Final = 300.0
"""How long the last results count. An app gets requests at any weight, so after this time its reports have stopped, and
missing data never makes a container sick."""


class Measurements:
    """All counts of one app over the last ``window_s`` seconds.

    ``known_kinds`` always have counts of their own, ``ignored_kinds`` never count. ``now`` is in seconds of one clock;
    ``turn`` makes its second the current one before reports of that second are taken.

    ``usual``: errors of this incarnation while it was well; the controller samples them. ``in_flight``: the last
    reported number of requests; ``idle_at``: when that was reported as 0, if it still is.
    """

    def __init__(
        self, window_s: int, now_s: int, *, known_kinds: Iterable[str] = (), ignored_kinds: Iterable[str] = ()
    ) -> None:
        self.errors = RollingCounts(window_s, now_s, known=known_kinds)
        self.others = RollingCounts(window_s, now_s)
        self.fatal = RollingCounts(window_s, now_s)
        self.results = RequestResults(window_s, now_s)
        self.usual = OwnUsual(window_s)
        self.in_flight: float | None = None
        self.idle_at: float | None = None
        self._in_flight_at: float | None = None
        self._load: float | None = None
        self._load_at: float | None = None
        self._successes = SuccessHistory(now_s)
        self._now_s = now_s
        self._results_at: float | None = None
        self._ignored = frozenset(ignored_kinds)
        self._heartbeat_at: float | None = None
        self._missed_scrapes = 0
        self._missed_cause: str | None = None
        self._take: dict[type, Callable[..., None]] = {
            ErrorReport: self._take_errors,
            Results: self._take_results,
            Heartbeat: self._take_heartbeat,
            Sample: self._take_sample,
            Missed: self._take_missed,
            AppExited: self._take_nothing,
            AppListening: self._take_nothing,
        }

    @property
    def is_empty(self) -> bool:
        """Whether no window holds anything, so that the counts are the same in every later second."""
        return self.errors.is_empty and self.others.is_empty and self.fatal.is_empty and self.results.is_empty

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second."""
        if now_s == self._now_s:
            return
        self._now_s = now_s
        for counts in (self.errors, self.others, self.fatal, self.results):
            counts.turn(now_s)

    def take(self, report: Report, now: float) -> None:
        """Count one report; one that only announces or ends an incarnation counts nothing."""
        self._take[type(report)](report, now)

    def clear(self, *, heart: bool = True) -> None:
        """Empty the window; with ``heart`` also forget the last heartbeat, the success rate and usual errors.

        Counts since the beginning stay.
        """
        for counts in (self.errors, self.others, self.fatal, self.results):
            counts.clear()
        self.in_flight = self.idle_at = self._load = None
        self._missed_scrapes = 0
        self._missed_cause = None
        if heart:
            self._heartbeat_at = self._results_at = None
            self._successes.clear()
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
        load, at = (self.in_flight, self._in_flight_at) if self._load is None else (self._load, self._load_at)
        return None if load is None or at is None else Load(load, now - at)

    def evidence(self, now: float) -> Evidence:
        """What the window holds."""
        errors, results = self.errors, self.results.counts()
        return Evidence(
            window_s=errors.seconds,
            errors=errors.total,
            kinds=errors.by_key(),
            levels=self.others.by_key(),
            oldest_age_s=errors.oldest_age_s(),
            newest_age_s=errors.newest_age_s(),
            fatal=self.fatal.total,
            requests=results.requests,
            failed=results.failed,
            consecutive=results.consecutive,
            kept_ok=results.kept,
            heartbeat_age_s=None if self._heartbeat_at is None else now - self._heartbeat_at,
            missed_scrapes=self._missed_scrapes,
            missed_cause=self._missed_cause,
            failed_age_s=self.results.failed_age_s() if results.failed else None,
        )

    def _take_errors(self, report: ErrorReport, _now: float) -> None:
        if report.level is not ErrorLevel.SERVER_ERROR:
            self.others.record(report.level, report.errors)
            return
        if self._count(report.kind, report.errors) and report.fatal:
            self.fatal.record(report.kind, report.errors)

    def _take_results(self, results: Results, now: float) -> None:
        self._end(results.ok, results.failed, now)
        self._see_level(results.in_flight, now)
        self._see_load(results.load, now)

    def _take_heartbeat(self, _heartbeat: Heartbeat, now: float) -> None:
        self._heartbeat_at = now

    def _take_sample(self, sample: Sample, now: float) -> None:
        self._missed_scrapes = 0
        self._missed_cause = None
        self._see_level(sample.in_flight, now)
        counted = sum(self._count(kind, errors) for kind, errors in sample.errors.items())
        failed = min(counted, sample.requests)
        self._end(sample.requests - failed, failed, now)

    def _take_missed(self, missed: Missed, _now: float) -> None:
        self._missed_scrapes += 1
        self._missed_cause = missed.cause

    def _take_nothing(self, _report: Report, _now: float) -> None:
        pass

    def _end(self, ok: int, failed: int, now: float) -> None:
        """Count requests that have ended."""
        if ok or failed:
            self.results.record(ok, failed)
            self._successes.count(now, ok, failed)
            self._results_at = now

    def _see_level(self, in_flight: float | None, now: float) -> None:
        if in_flight is not None:
            self.in_flight = in_flight
            self._in_flight_at = now
            self.idle_at = now if in_flight == 0 else None

    def _see_load(self, load: float | None, now: float) -> None:
        if load is not None:
            self._load, self._load_at = load, now

    def _count(self, kind: str, errors: int) -> int:
        """Count errors of a kind; return how many of them count."""
        if kind in self._ignored:
            self.others.record(IGNORED, errors)
            return 0
        self.errors.record(kind, errors)
        return errors
