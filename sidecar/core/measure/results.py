"""The results of requests: rolling counts of successes and failures, and how many failed in a row.

Successes have two windows: one moves with the clock, the other only with new requests. While an app serves nothing the
second keeps its successes in the ratio, or silence would make the ratio bad. These kept successes are not among the
requests that a ratio needs, or one more failure could make the ratio good.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.core.measure.window import RollingCounts

OK = "ok"
FAILED = "failed"


class RequestCounts(NamedTuple):
    """Requests of the window, those that failed, the last failures in a row, and successes just before the window.

    ``kept`` successes have left the window without later requests; they count in a ratio, and not as requests.
    """

    requests: int = 0
    failed: int = 0
    consecutive: int = 0
    kept: int = 0


class RequestResults:
    """Results of the last ``seconds`` seconds; ``turn`` makes a second the current one before results are recorded."""

    def __init__(self, seconds: int, now_s: int) -> None:
        self._counts = RollingCounts(seconds, now_s)
        self._successes = RollingCounts(seconds, now_s)
        self._now_s = now_s
        self._consecutive = 0

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second. A row of failures ends when the window is empty."""
        self._now_s = max(now_s, self._now_s)
        self._counts.turn(now_s)
        if not self._counts.total:
            self._consecutive = 0

    @property
    def is_empty(self) -> bool:
        """Whether the window holds no request. Successes that are kept count only beside requests."""
        return self._counts.is_empty

    def record(self, ok: int, failed: int) -> None:
        """Add requests that ended in the current second. A success ends a row of failures."""
        if not ok and not failed:
            return
        self._successes.turn(self._now_s)
        self._successes.record(OK, ok)
        self._counts.record(OK, ok)
        self._counts.record(FAILED, failed)
        self._consecutive = 0 if ok else self._consecutive + failed

    def counts(self) -> RequestCounts:
        """The counts of the window."""
        requests, counts = self._counts.total, self._counts.by_key()
        if not requests:
            return RequestCounts()
        kept = self._successes.total - counts.get(OK, 0)
        return RequestCounts(requests, counts.get(FAILED, 0), self._consecutive, kept)

    def failed_age_s(self) -> int | None:
        """Whole seconds since the last failure of the window; None if there is none."""
        return self._counts.newest_age_s(FAILED)

    def clear(self) -> None:
        """Empty the window."""
        self._counts.clear()
        self._successes.clear()
        self._consecutive = 0

    def ever(self) -> dict[str, int]:
        """Requests since the beginning by result, for counters that only grow."""
        return self._counts.ever()
