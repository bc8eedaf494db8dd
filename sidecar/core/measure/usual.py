"""The usual errors that an app's errors are compared with: those of its fleet, and its own.

The rate of a healthy container is the largest of three: the fleet's median now, the same smoothed over ten minutes, and
the errors of the app itself over the past hour. The last two are learned only while nothing is excessive. Otherwise an
outage, or a leak that grows slowly, would become usual, and a sick container would be no outlier.

This module must not know where errors are counted, or where the medians come from.
"""

from __future__ import annotations

from collections import deque
from math import ceil, exp, log
from typing import Final, NamedTuple

from sidecar.core.claims import Fleet
from sidecar.core.types import Evidence

SMOOTHED_S: Final = 600.0
KEPT_MIN: Final = 60
MINUTE_S: Final = 60.0


class FleetUsual(NamedTuple):
    """The medians of the fleet, now and smoothed. None: not known, or a fleet of fewer than three."""

    errors: int | None = None  # per window
    ratio: float | None = None  # of failed requests, from 0 to 1
    smooth_errors: float | None = None
    smooth_ratio: float | None = None
    at: float = 0.0  # when they were updated
    since: float = 0.0  # when they were first known
    is_sick: bool = False  # half of the fleet is suspect

    def updated(self, fleet: Fleet, now: float, error_limit: int) -> FleetUsual:
        """The medians after an answered beat. A median at or over the limit is not usual, so it is not smoothed in.

        In the first ten minutes they are smoothed over the time that is known: a fleet that starts with errors in every
        window learns in its first window that they are usual.
        """
        errors, ratio = fleet.median_errors, fleet.median_ratio
        if errors is None:
            return FleetUsual()
        is_sick = 2 * fleet.suspect >= fleet.alive
        if 0 < error_limit <= errors:
            return self._replace(errors=errors, ratio=ratio, at=now, is_sick=is_sick)
        since = now if self.smooth_errors is None else self.since
        part = 1 - exp(min(0.0, _spans(self.at - since) - _spans(now - since)))
        smooth = _smoothed(self.smooth_errors, errors, part), _smoothed(self.smooth_ratio, ratio, part)
        return FleetUsual(errors, ratio, *smooth, now, since, is_sick)

    def smoothed(self) -> float:
        """The smoothed median to compare the median of now with.

        A sidecar that has just started knows none, and believes the others: if half of them are suspect, the errors are
        not usual.
        """
        if self.smooth_errors is not None:
            return self.smooth_errors
        return 0.0 if self.is_sick else float(self.errors or 0)


def _spans(known_s: float) -> float:
    """The integral of dt / span(t) from 0 to ``known_s``: the exponent of the smoothing.

    The span is the time that is known, but at least a minute and at most ten: so the first medians count at once, and
    later ones as in a mean over ten minutes.
    """
    if known_s < MINUTE_S:
        return known_s / MINUTE_S
    if known_s < SMOOTHED_S:
        return 1 + log(known_s / MINUTE_S)
    return log(SMOOTHED_S / MINUTE_S) + known_s / SMOOTHED_S


def _smoothed(before: float | None, now: float | None, part: float) -> float | None:
    return now if before is None or now is None else before + (now - before) * part


class Rates(NamedTuple):
    """Usual errors per window, and per request; 0 where nothing is known."""

    errors: float = 0.0
    ratio: float = 0.0


NO_RATES: Final = Rates()


class OwnUsual:
    """The errors per window of this incarnation over an hour, as three sums for each of ``KEPT_MIN`` minutes.

    The hour ends where the window begins: errors that are being judged may not raise their own limit. For the same
    reason the caller takes no sample while the app is suspect or spared. ``window_s``: the length of the window.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._minutes: deque[_Minute] = deque(maxlen=KEPT_MIN + ceil(window_s / MINUTE_S) + 1)

    def sample(self, evidence: Evidence, now: float) -> None:
        """Add a sample of the window."""
        minute, samples, errors, requests = int(now // MINUTE_S), 1, evidence.errors, evidence.requests
        if self._minutes and (last := self._minutes[-1]).minute >= minute:
            self._minutes.pop()
            minute, samples = last.minute, last.samples + 1
            errors, requests = last.errors + errors, last.requests + requests
        self._minutes.append(_Minute(minute, samples, errors, requests))

    def rates(self, now: float) -> Rates:
        """The rates of the hour."""
        end = int((now - self._window_s) // MINUTE_S)
        kept = [minute for minute in self._minutes if end - KEPT_MIN <= minute.minute < end]
        samples, errors, requests = (sum(minute[at] for minute in kept) for at in (1, 2, 3))
        return Rates(errors / samples if samples else 0.0, min(1.0, errors / requests) if requests else 0.0)

    def clear(self) -> None:
        """Forget everything: a new incarnation begins."""
        self._minutes.clear()


class _Minute(NamedTuple):
    minute: int
    samples: int
    errors: int
    requests: int


class Baseline(NamedTuple):
    """What an app's errors are compared with. By default nothing is known, and the limits alone decide."""

    fleet: FleetUsual = FleetUsual()
    own: Rates = NO_RATES  # of this app
    share: float = 1.0  # the part of its load that a softly drained container had over the window

    def usual(self, evidence: Evidence) -> Usual:
        """The errors that a healthy container would have in this window.

        With request counts they are a part of the app's own requests: a container with ten times the traffic has ten
        times the errors. An app without failed requests does not count its errors among its requests.
        """
        fleet, own = max(self.fleet.errors or 0, self.fleet.smooth_errors or 0.0), self.own.errors
        if self.fleet.ratio is not None and evidence.requests and evidence.failed:
            fleet = evidence.requests * max(self.fleet.ratio, self.fleet.smooth_ratio or 0.0)
            own = evidence.requests * self.own.ratio
        return Usual(fleet, is_own=False) if fleet >= own else Usual(own, is_own=True)


NO_BASELINE: Final = Baseline()


class Usual(NamedTuple):
    """Usual errors per window, of the fleet or of the app itself."""

    errors: float
    is_own: bool
