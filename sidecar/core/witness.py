"""Takes what is reported and gives evidence: everything that is counted of one app, and nothing of what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.core.outcomes import Outcomes
from sidecar.core.window import RollingCounts
from sidecar.core.words import Evidence, Gone, Heartbeat, Level, Missed, Ping, Report, Results, Sample

IGNORED: Final = "ignored"
"""Where errors of kinds that never count are kept, beside the levels that do not count."""


class Witness:
    """All counts of one app over the last ``window_s`` seconds.

    ``known_kinds`` are told apart whatever else comes, ``ignored_kinds`` never count. ``now`` is in seconds of one
    clock throughout; ``turn`` makes its second the current one before anything is taken in it.
    """

    def __init__(
        self, window_s: int, now_s: int, *, known_kinds: Iterable[str] = (), ignored_kinds: Iterable[str] = ()
    ) -> None:
        self.errors = RollingCounts(window_s, now_s, known=known_kinds)
        self.others = RollingCounts(window_s, now_s)
        self.fatal = RollingCounts(window_s, now_s)
        self.outcomes = Outcomes(window_s, now_s)
        self.in_flight: float | None = None
        self._ignored = frozenset(ignored_kinds)
        self._heartbeat_at: float | None = None
        self._missed_scrapes = 0
        self._missed_cause: str | None = None
        self._take: dict[type, Callable[..., None]] = {
            Ping: self._take_ping,
            Results: self._take_results,
            Heartbeat: self._take_heartbeat,
            Sample: self._take_sample,
            Missed: self._take_missed,
            Gone: self._take_nothing,
        }

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second."""
        for counts in (self.errors, self.others, self.fatal, self.outcomes):
            counts.turn(now_s)

    def take(self, report: Report, now: float) -> None:
        """Count one report; what only announces or ends a life counts nothing."""
        self._take[type(report)](report, now)

    def clear(self, *, heart: bool = True) -> None:
        """Forget everything but what was counted ever, and the last heartbeat unless ``heart``."""
        for counts in (self.errors, self.others, self.fatal, self.outcomes):
            counts.clear()
        self.in_flight = None
        self._missed_scrapes = 0
        self._missed_cause = None
        if heart:
            self._heartbeat_at = None

    def evidence(self, now: float) -> Evidence:
        """What the window holds."""
        errors, tally = self.errors, self.outcomes.tally()
        return Evidence(
            window_s=errors.seconds,
            errors=errors.total,
            kinds=errors.by_key(),
            levels=self.others.by_key(),
            oldest_age_s=errors.oldest_age_s(),
            newest_age_s=errors.newest_age_s(),
            fatal=self.fatal.total,
            requests=tally.requests,
            failed=tally.failed,
            consecutive=tally.consecutive,
            kept_ok=tally.kept,
            heartbeat_age_s=None if self._heartbeat_at is None else now - self._heartbeat_at,
            missed_scrapes=self._missed_scrapes,
            missed_cause=self._missed_cause,
        )

    def _take_ping(self, ping: Ping, _now: float) -> None:
        if ping.level is not Level.SERVER_ERROR:
            self.others.record(ping.level, ping.errors)
            return
        if self._count(ping.kind, ping.errors) and ping.fatal:
            self.fatal.record(ping.kind, ping.errors)

    def _take_results(self, results: Results, _now: float) -> None:
        self.outcomes.record(results.ok, results.failed)

    def _take_heartbeat(self, _heartbeat: Heartbeat, now: float) -> None:
        self._heartbeat_at = now

    def _take_sample(self, sample: Sample, _now: float) -> None:
        self._missed_scrapes = 0
        self._missed_cause = None
        self.in_flight = sample.in_flight
        counted = sum(self._count(kind, errors) for kind, errors in sample.errors.items())
        failed = min(counted, sample.requests)
        self.outcomes.record(sample.requests - failed, failed)

    def _take_missed(self, missed: Missed, _now: float) -> None:
        self._missed_scrapes += 1
        self._missed_cause = missed.cause

    def _take_nothing(self, _report: Report, _now: float) -> None:
        pass

    def _count(self, kind: str, errors: int) -> int:
        """Record errors of a kind; so many of them count."""
        if kind in self._ignored:
            self.others.record(IGNORED, errors)
            return 0
        self.errors.record(kind, errors)
        return errors
