"""The success rate of a node in the last 30 s, and the weight that it gives the node among its peers.

After timmc's gist "Success-prioritized, concurrency-limited stochastic fallback cascade": six rolling buckets of five
seconds, each counting three times the one before, and a sticky bucket that remembers the last results of a node that
is no longer called. The weight is the cube of the success rate, so that nine failures in ten cost a node nearly all of
its first places, and one in ten only a quarter.

This module counts calls that have ended. It must not know what a call is, or why it failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

BUCKETS: Final = 6
BUCKET_S: Final = 5.0
NEWER_COUNTS: Final = 3
"""A bucket counts this many times as much as the one before it."""

NEWEST: Final = 2
"""Number of buckets that hold the last five to ten seconds."""

ENOUGH: Final = 10
"""Among fewer calls one failure may be chance."""


LEAST_WEIGHT: Final = 0.01
"""Weight of a node whose ring is empty, whatever it did before; without it such a node might never be called again.

With three nodes, two of them well, and ten calls a second, the third comes first once in 20 seconds. A call that fails
fills the ring again, one that succeeds brings the node back at once. The gist floors the *rate*, at 0.0001 / 3, and
cubes afterwards: with that the third node would wait for 171,000 years.
"""


class CallCounts(NamedTuple):
    """Calls that have ended, and those of them that ended well."""

    finished: int = 0
    succeeded: int = 0

    def rate(self) -> float:
        """Share of the finished that succeeded; ZeroDivisionError when there are none."""
        return self.succeeded / self.finished


NOTHING: Final = CallCounts()


class SuccessHistory:
    """The results of calls to one node, in constant memory. Time is an argument, in seconds of one monotonic clock.

    Each call of a method turns the ring, so nothing has to run in between. A clock that steps back stands still.
    """

    __slots__ = ("_period", "_ring", "_sticky")

    def __init__(self, now_s: float) -> None:
        self._period = _period(now_s)
        self._ring = deque([NOTHING] * BUCKETS, maxlen=BUCKETS)  # newest first
        self._sticky = NOTHING

    def count(self, now_s: float, succeeded: int, failed: int) -> None:
        """Count calls that ended by ``now_s``."""
        self._turn(now_s)
        newest = self._ring[0]
        self._ring[0] = CallCounts(newest.finished + succeeded + failed, newest.succeeded + succeeded)

    def rate(self, now_s: float) -> float:
        """Success rate within [0, 1]: of the ring, or if that is empty of the sticky bucket; 1 before any call."""
        recent = self._recent(now_s)
        return recent.rate() if recent.finished else self._remembered()

    def steady_rate(self, now_s: float) -> float:
        """Success rate within [0, 1] for a decision that must be neither late nor moved by chance.

        It is the lower of two rates: that of the ring, mixed with the sticky bucket if the ring holds fewer than
        ``ENOUGH`` calls, and that of the ``NEWEST`` buckets, if they hold enough. So a failing node shows within ten
        seconds, where the whole ring would take twenty; a node that recovers takes longer.
        """
        recent = self._recent(now_s)
        ring_share = min(1.0, sum(tally.finished for tally in self._ring) / ENOUGH)
        rate = self._remembered()
        if ring_share:
            rate = ring_share * recent.rate() + (1 - ring_share) * rate
        newest = [self._ring[place] for place in range(NEWEST)]
        if sum(tally.finished for tally in newest) < ENOUGH:
            return rate
        return min(rate, _weighed(newest).rate())

    def clear(self) -> None:
        """Forget every call."""
        self._ring.extend([NOTHING] * BUCKETS)
        self._sticky = NOTHING

    def weight(self, now_s: float) -> float:
        """Weight within [0, 1] for the choice among nodes: the rate cubed, and ``LEAST_WEIGHT`` if the ring is empty.

        It is 0 while the ring holds only failures: such a node is called when no better one answers.
        """
        recent = self._recent(now_s)
        if recent.finished:
            return recent.rate() ** 3
        return max(self._remembered() ** 3, LEAST_WEIGHT)

    def _recent(self, now_s: float) -> CallCounts:
        self._turn(now_s)
        return _weighed(self._ring)

    def _remembered(self) -> float:
        return self._sticky.rate() if self._sticky.finished else 1.0

    def _turn(self, now_s: float) -> None:
        period = _period(now_s)
        for _ in range(min(period - self._period, BUCKETS)):
            oldest = self._ring[-1]
            self._sticky = oldest if oldest.finished else self._sticky
            self._ring.appendleft(NOTHING)
        self._period = max(period, self._period)


def _period(now_s: float) -> int:
    return int(now_s // BUCKET_S)


def _weighed(newest_first: Iterable[CallCounts]) -> CallCounts:
    """Sum the buckets by Horner's rule in whole numbers, so that a rate is exact and never leaves [0, 1]."""
    finished = succeeded = 0
    for tally in newest_first:
        finished = finished * NEWER_COUNTS + tally.finished
        succeeded = succeeded * NEWER_COUNTS + tally.succeeded
    return CallCounts(finished, succeeded)
