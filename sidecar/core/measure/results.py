"""The results of requests: rolling counts of successes and failures, and how many failed in a row.

Successes have two windows: one moves with the clock, the other only with new requests. While an app serves nothing the
second keeps its successes in the ratio, or silence would make the ratio bad. These kept successes are not among the
requests that a ratio needs, or one more failure could make the ratio good.
"""

from __future__ import annotations

from sidecar.core.measure.window import RollingCounts

OK = "ok"
FAILED = "failed"


class RequestResults:
    """Results of the last ``seconds`` seconds; ``turn`` makes a second the current one before results are recorded."""

    def __init__(self, seconds: int, now_s: int) -> None:
        self._counts = RollingCounts(seconds, now_s)
        self._successes = RollingCounts(seconds, now_s)
        self._now_s = now_s
        self.consecutive = 0
        """The last failures in a row; the first of them may have left the window."""

    @property
    def requests(self) -> int:
        """Requests of the window."""
        return self._counts.total

    @property
    def failed(self) -> int:
        """Those that failed."""
        return self._counts.by_key().get(FAILED, 0)

    @property
    def kept(self) -> int:
        """Successes that have left the window without later requests; they count in a ratio, and not as requests."""
        return self._successes.total - (self.requests - self.failed) if self.requests else 0

    @property
    def failed_age_s(self) -> int | None:
        """Whole seconds since the last failure of the window; None if there is none."""
        return self._counts.newest_age_s(FAILED)

    @property
    def is_empty(self) -> bool:
        """Whether the window holds no request. Successes that are kept count only beside requests."""
        return self._counts.is_empty

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second. A row of failures ends when the window is empty."""
        self._now_s = max(now_s, self._now_s)
        self._counts.turn(now_s)
        if self.is_empty:
            self.consecutive = 0

    def record(self, ok: int, failed: int) -> None:
        """Add requests that ended in the current second. A success ends a row of failures."""
        self._successes.turn(self._now_s)
        self._successes.record(OK, ok)
        self._counts.record(OK, ok)
        self._counts.record(FAILED, failed)
        self.consecutive = 0 if ok else self.consecutive + failed

    def clear(self) -> None:
        """Empty the window."""
        self._counts.clear()
        self._successes.clear()
        self.consecutive = 0
