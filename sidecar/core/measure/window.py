"""Rolling counts: a ring of one-second buckets, constant in memory and time whatever the rate.

``turn`` moves the ring once a second, and recording is one addition to the current bucket, without a clock. The window
must not know what is counted or judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

OTHER: Final = "other"
"""The key that counts for all keys beyond the cap."""


class RollingCounts:
    """Counts by key over the last ``seconds`` seconds, exact to the one-second bucket.

    An event recorded in second ``s`` counts until the ring is turned to second ``s + seconds``. At most ``max_keys``
    distinct keys have counts of their own, ``known`` ones first; later ones are counted as ``other``.
    """

    __slots__ = ("_closed", "_closed_total", "_ever", "_now_s", "_ring", "_slot", "current", "seconds")

    def __init__(self, seconds: int, now_s: int, max_keys: int = 32, known: Iterable[str] = ()) -> None:
        if seconds < 1:
            raise ValueError(f"a window needs at least one second, not {seconds}")
        self.seconds = seconds
        self.current: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        self._closed_total = 0
        self._ever = _Cap(max_keys, known)
        self._ring: list[dict[str, int] | None] = [None] * seconds
        self._slot = 0
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
        key = self._ever.fit(key)
        self.current[key] = self.current.get(key, 0) + count

    @property
    def total(self) -> int:
        """Count of all keys in the window."""
        return self._closed_total + sum(self.current.values())

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
        self._now_s = now_s
        if self.is_empty:
            return
        for _ in range(min(steps, self.seconds)):
            self._step()

    def _step(self) -> None:
        ring, slot = self._ring, self._slot
        if self.current:
            ring[slot] = self.current
            self._closed = _sum(self._closed, self.current)
            self._closed_total += sum(self.current.values())
            self._ever.settle(self.current)
            self.current = {}
        self._slot = slot = (slot + 1) % self.seconds
        expired, ring[slot] = ring[slot], None
        if expired:
            self._forget(expired)

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
        self._ever.settle(self.current)
        self.current, self._closed, self._closed_total = {}, {}, 0
        self._ring = [None] * self.seconds

    def by_key(self) -> dict[str, int]:
        """Count of each key in the window; their sum is ``total``."""
        return _sum(self._closed, self.current)

    def ever(self) -> dict[str, int]:
        """Count of each key since the beginning, for counters that only grow."""
        return _sum(self._ever.counts, self.current)

    def freeze(self, now: float) -> dict[str, Any]:
        """The counts as JSON values for ``thaw``; instants are ages."""
        age_s = now - self._now_s
        buckets: list[list[Any]] = [[age_s, dict(self.current)]] if self.current else []
        for place, bucket in enumerate(self._ring):
            if bucket:
                buckets.append([age_s + (self._slot - place) % self.seconds, dict(bucket)])
        return {"age_s": age_s, "buckets": buckets, "ever": self.ever()}

    def thaw(self, frozen: Mapping[str, Any], now: float) -> None:
        """Take over the counts of another window that were frozen at ``now``.

        Whole seconds on both clocks count as the same. Raises ValueError, TypeError or LookupError for values that
        ``freeze`` does not write; then the counts are undefined.
        """
        buckets = [(round(now - age_s), _checked(bucket)) for age_s, bucket in frozen["buckets"]]
        self.clear()
        for key, count in _checked(frozen["ever"]).items():
            before = count - sum(bucket.get(key, 0) for _, bucket in buckets)
            self._ever.settle({self._ever.fit(key): max(0, before)})
        newest_s = round(now - frozen["age_s"])
        self._now_s = newest_s - self.seconds
        for second, bucket in sorted(buckets, key=lambda dated: dated[0]):
            self.turn(second)
            for key, count in bucket.items():
                self.record(key, count)
        self.turn(newest_s)

    def leaving(self, limit: int) -> tuple[int, int]:
        """Number of events that leave until less than ``limit`` are left, and the seconds until then; 0 if it is less.

        The number may be more than necessary, because all events of one second leave together.
        """
        need, gone = self.total - limit + 1, 0
        for age in reversed(range(self.seconds)):
            if gone >= need:
                break
            gone += sum((self._bucket(age) or {}).values())
            left_s = self.seconds - age
        return (gone, left_s) if need > 0 else (0, 0)

    def newest_age_s(self) -> int | None:
        """Age in whole seconds of the newest bucket that holds something."""
        return next((age for age in range(self.seconds) if self._bucket(age)), None) if self.total else None

    def oldest_age_s(self) -> int | None:
        """Age in whole seconds of the oldest bucket that holds something."""
        return next((age for age in reversed(range(self.seconds)) if self._bucket(age)), None) if self.total else None

    def _bucket(self, age: int) -> dict[str, int] | None:
        return self._ring[(self._slot - age) % self.seconds] if age else self.current


class _Cap:
    """The first ``size`` keys keep their names, so that a flood of invented kinds needs no memory."""

    __slots__ = ("counts", "size")

    def __init__(self, size: int, known: Iterable[str]) -> None:
        self.size = size
        self.counts = dict.fromkeys(known, 0)

    def fit(self, key: str) -> str:
        if key not in self.counts:
            if len(self.counts) >= self.size:
                key = OTHER
            self.counts.setdefault(key, 0)
        return key

    def settle(self, counts: dict[str, int]) -> None:
        for key, count in counts.items():
            self.counts[key] += count


def _checked(counts: Mapping[str, int]) -> Mapping[str, int]:
    if not all(isinstance(key, str) and isinstance(count, int) and count >= 0 for key, count in counts.items()):
        raise ValueError("counts are whole numbers of keys")
    return counts


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}
