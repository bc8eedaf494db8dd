"""Rolling counts: one bucket a second for the seconds that hold something, so that what is quiet costs nothing.

``turn`` moves the window once a second, and recording is one addition to the current bucket, without a clock. The
window must not know what is counted or judged.

Results of requests are two such counts, and how many requests failed in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

OTHER: Final = "other"
"""The key that counts for all keys beyond the cap."""


class _Bucket(NamedTuple):
    """The counts by key of one past second."""

    second: int
    counts: dict[str, int]


class RollingCounts:
    """Counts by key over the last ``seconds`` seconds, exact to the one-second bucket.

    An event recorded in second ``s`` counts until the window is turned to second ``s + seconds``. At most ``max_keys``
    distinct keys have counts of their own, ``known`` ones first; later ones are counted as ``other``.
    """

    __slots__ = ("_closed", "_closed_total", "_ever", "_max_keys", "_now_s", "_past", "current", "seconds")

    def __init__(self, seconds: int, now_s: int, max_keys: int = 32, known: Iterable[str] = ()) -> None:
        if seconds < 1:
            raise ValueError(f"a window needs at least one second, not {seconds}")
        self.seconds = seconds
        self.current: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        self._closed_total = 0
        self._ever = dict.fromkeys(known, 0)
        self._max_keys = max_keys
        self._past: deque[_Bucket] = deque()
        self._now_s = now_s

    def record(self, key: str, count: int = 1) -> None:
        """Add ``count`` events of ``key`` to the current second; 0 leaves no trace."""
        try:
            self.current[key] += count
        except KeyError:
            self._open(key, count)

    def _open(self, key: str, count: int) -> None:
        if not count:
            return
        if key not in self._ever and len(self._ever) >= self._max_keys:
            key = OTHER  # so that a flood of invented keys needs no memory
        self._ever.setdefault(key, 0)
        self.current[key] = self.current.get(key, 0) + count

    @property
    def total(self) -> int:
        """Count of all keys in the window."""
        return self._closed_total + sum(self.current.values()) if self.current else self._closed_total

    @property
    def is_empty(self) -> bool:
        """Whether the window holds nothing, so that no later second changes it."""
        return not (self.current or self._closed)

    def turn(self, now_s: int) -> None:
        """Make ``now_s`` the current second, and forget buckets older than the window.

        A clock that stands still or steps back changes nothing.
        """
        steps = now_s - self._now_s
        if steps <= 0:
            return
        if self.current:
            self._close(self._now_s)
        self._now_s = now_s
        past, oldest = self._past, now_s - self.seconds
        while past and past[0].second <= oldest:
            self._forget(past.popleft().counts)

    def _close(self, second: int) -> None:
        self._past.append(_Bucket(second, self.current))
        for key, count in self.current.items():
            self._closed[key] = self._closed.get(key, 0) + count
            self._closed_total += count
        self._ever = _sum(self._ever, self.current)
        self.current = {}

    def _forget(self, expired: dict[str, int]) -> None:
        for key, count in expired.items():
            self._closed_total -= count
            left = self._closed[key] - count
            if left:
                self._closed[key] = left
            else:
                del self._closed[key]

    def clear(self) -> None:
        """Empty the window; ``ever`` stays."""
        self._ever = _sum(self._ever, self.current)
        self.current, self._closed, self._closed_total = {}, {}, 0
        self._past.clear()

    def by_key(self) -> dict[str, int]:
        """Count of each key in the window; their sum is ``total``."""
        return _sum(self._closed, self.current)

    def ever(self) -> dict[str, int]:
        """Count of each key since the beginning, for counters that only grow."""
        return _sum(self._ever, self.current)

    def leaving(self, limit: int) -> tuple[int, int]:
        """Number of events that leave until less than ``limit`` are left, and the seconds until then; 0 if it is less.

        The number may be more than necessary, because all events of one second leave together.
        """
        need, gone, left_s = self.total - limit + 1, 0, 0
        for bucket in self._buckets():
            if gone >= need:
                break
            gone += sum(bucket.counts.values())
            left_s = self.seconds - (self._now_s - bucket.second)
        return (gone, left_s) if need > 0 else (0, 0)

    def newest_age_s(self, key: str | None = None) -> int | None:
        """Age in whole seconds of the newest bucket that holds something, or ``key``."""
        if self.current and (key is None or self.current.get(key)):
            return 0
        seconds = (bucket.second for bucket in reversed(self._past) if key is None or bucket.counts.get(key))
        newest_s = next(seconds, None)
        return None if newest_s is None else self._now_s - newest_s

    def _buckets(self) -> Iterator[_Bucket]:
        """All buckets that hold something, the oldest first."""
        yield from self._past
        if self.current:
            yield _Bucket(self._now_s, self.current)


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    total = dict(left)
    for key, count in right.items():
        total[key] = total.get(key, 0) + count
    return total


OK: Final = "ok"
FAILED: Final = "failed"


class RequestResults:
    """Results of the last ``seconds`` seconds; ``turn`` makes a second the current one before results are recorded.

    Successes have two windows: one moves with the clock, the other only with new requests. While an app serves nothing
    the second keeps its successes in the ratio, or silence would make the ratio bad. These kept successes are not among
    the requests that a ratio needs, or one more failure could make the ratio good.
    """

    def __init__(self, seconds: int, now_s: int) -> None:
        self._counts = RollingCounts(seconds, now_s)
        self._successes = RollingCounts(seconds, now_s)
        self._now_s = now_s

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
        """Make ``now_s`` the current second."""
        self._now_s = max(now_s, self._now_s)
        self._counts.turn(now_s)

    def record(self, ok: int, failed: int) -> None:
        """Add requests that ended in the current second."""
        self._successes.turn(self._now_s)
        self._successes.record(OK, ok)
        self._counts.record(OK, ok)
        self._counts.record(FAILED, failed)

    def clear(self) -> None:
        """Empty the window."""
        self._counts.clear()
        self._successes.clear()
