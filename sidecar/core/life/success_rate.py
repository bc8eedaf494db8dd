"""How well a node has served of late, and how much weight that gives it among its peers.

After timmc's gist "Success-prioritized, concurrency-limited stochastic fallback cascade": six rolling buckets of five
seconds, a newer one counting three times the one before, and a sticky one that still knows how a node ended that
nobody has called since. The weight is the cube of the success rate, so that nine failures in ten cost a node nearly
all of its first places, and one in ten only a quarter.

This room is handed the time and counts ended calls. It must not know what a call is, or why it failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

BUCKETS: Final = 6
BUCKET_S: Final = 5.0
NEWER_COUNTS: Final = 3
"""How many times the bucket before it a bucket counts."""

NEWEST: Final = 2
"""So many buckets hold the last five to ten seconds."""

ENOUGH: Final = 10
"""Fewer calls say little: one failure among them may be chance."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What is left of a node that ended badly, once its ring is empty: without it, nobody would ever look again.

    ``rate`` is the least that the sticky bucket's rate is read as, ``weight`` the least weight that follows.
    ValueError unless both are within [0, 1].

    The gist floors the *rate* at 0.0001 / n for n nodes, and cubes afterwards. Three nodes, two of them well, ten calls
    a second; how long until the third, well again but unseen, comes first once:

    ======================== ======== ================ ===============
    floor                    weight   one first try in at 10 calls/s
    ======================== ======== ================ ===============
    ``Floor.of_gist(3)``     3.7e-14  5.4e13 calls     171,000 years
    ``Floor(weight=1e-4/3)`` 3.3e-5   60,000 calls     100 minutes
    ``Floor()``              0.01     201 calls        20 seconds
    ======================== ======== ================ ===============

    A floor of 0.01 is cheap: a try that fails fills the ring again, and the floor is out of play for the next 25 to 30
    seconds. One look that goes well brings the node back at once, for then its ring holds nothing but a success.
    """

    rate: float = 0.0
    weight: float = 0.01

    def __post_init__(self) -> None:
        if not (0 <= self.rate <= 1 and 0 <= self.weight <= 1):
            raise ValueError(f"a floor lies between 0 and 1, not {self}")

    @classmethod
    def of_gist(cls, nodes: int) -> Self:
        """Floor the rate by the letter of the gist. For those who call each node by other ways as well."""
        return cls(rate=0.0001 / nodes, weight=0.0)


DEFAULT_FLOOR: Final = Floor()


class Tally(NamedTuple):
    """Calls that have ended, and those of them that ended well."""

    finished: int = 0
    succeeded: int = 0

    def rate(self) -> float:
        """Share of the finished that succeeded; ZeroDivisionError when there are none."""
        return self.succeeded / self.finished


NOTHING: Final = Tally()


class SuccessHistory:
    """How the calls to one node ended. Constant in memory; time is handed in as seconds of one monotonic clock.

    The ring is turned by whoever asks or tells next, so nothing has to run while nobody calls. A clock that steps back
    is read as standing still.
    """

    __slots__ = ("_floor", "_period", "_ring", "_sticky")

    def __init__(self, now_s: float, floor: Floor = DEFAULT_FLOOR) -> None:
        self._floor = floor
        self._period = _period(now_s)
        self._ring = deque([NOTHING] * BUCKETS, maxlen=BUCKETS)  # newest first
        self._sticky = NOTHING

    def record(self, now_s: float, *, succeeded: bool) -> None:
        """Count a call that ended at ``now_s``. A call under way says nothing of its node yet."""
        self.count(now_s, succeeded, not succeeded)

    def count(self, now_s: float, succeeded: int, failed: int) -> None:
        """Count calls that ended by ``now_s``, so many well and so many badly."""
        self._turn(now_s)
        newest = self._ring[0]
        self._ring[0] = Tally(newest.finished + succeeded + failed, newest.succeeded + succeeded)

    def rate(self, now_s: float) -> float:
        """Success rate within [0, 1]: of the ring; if that is empty of the sticky bucket; 1 if nothing ever ended."""
        recent = self._recent(now_s)
        return recent.rate() if recent.finished else self._remembered()

    def steady_rate(self, now_s: float) -> float:
        """Success rate within [0, 1] for a judge who must neither be late nor be moved by chance.

        It is the worse of two: the rate of the ring, mixed with what was remembered if it holds fewer than ``ENOUGH``
        calls, and that of the ``NEWEST`` buckets, if they hold enough. So a node that begins to fail is known for it
        within ten seconds, which the whole ring would take twenty for; one that is well again has to be so for longer.
        """
        recent = self._recent(now_s)
        known = min(1.0, sum(tally.finished for tally in self._ring) / ENOUGH)
        rate = known * recent.rate() + (1 - known) * self._remembered() if known else self._remembered()
        newest = [self._ring[place] for place in range(NEWEST)]
        if sum(tally.finished for tally in newest) < ENOUGH:
            return rate
        return min(rate, _weighed(newest).rate())

    def clear(self) -> None:
        """Forget every call."""
        self._ring.extend([NOTHING] * BUCKETS)
        self._sticky = NOTHING

    def freeze(self, now_s: float) -> dict[str, Any]:
        """What ``thaw`` takes in, in values that JSON knows: the buckets, and when the newest began, as an age."""
        age_s = now_s - self._period * BUCKET_S
        return {"age_s": age_s, "ring": [list(tally) for tally in self._ring], "sticky": list(self._sticky)}

    def thaw(self, frozen: Mapping[str, Any], now_s: float) -> None:
        """Remember what another history held when it was ``now_s``; ValueError or its like if that was none."""
        ring = [_tally(*counts) for counts in frozen["ring"]]
        sticky = _tally(*frozen["sticky"])
        if len(ring) != BUCKETS:
            raise ValueError(f"a history has {BUCKETS} buckets, not {len(ring)}")
        self._period = round((now_s - frozen["age_s"]) / BUCKET_S)
        self._ring.clear()
        self._ring.extend(ring)
        self._sticky = sticky

    def weight(self, now_s: float) -> float:
        """Weight within [0, 1] for the choice among nodes: the rate cubed, floored once the ring is empty.

        It is 0 while the ring holds nothing but failures: then a node is called when no better one answers.
        """
        recent = self._recent(now_s)
        if recent.finished:
            return _cube(recent.rate())
        return max(_cube(self._remembered()), self._floor.weight)

    def _recent(self, now_s: float) -> Tally:
        self._turn(now_s)
        return _weighed(self._ring)

    def _remembered(self) -> float:
        return max(self._sticky.rate(), self._floor.rate) if self._sticky.finished else 1.0

    def _turn(self, now_s: float) -> None:
        period = _period(now_s)
        for _ in range(min(period - self._period, BUCKETS)):
            oldest = self._ring[-1]
            self._sticky = oldest if oldest.finished else self._sticky
            self._ring.appendleft(NOTHING)
        self._period = max(period, self._period)


def _tally(finished: int, succeeded: int) -> Tally:
    if not 0 <= succeeded <= finished:
        raise ValueError(f"{succeeded} of {finished} calls cannot have succeeded")
    return Tally(int(finished), int(succeeded))


def _period(now_s: float) -> int:
    return int(now_s // BUCKET_S)


def _weighed(newest_first: Iterable[Tally]) -> Tally:
    """Sum the buckets by Horner's rule in whole numbers, so that a rate is exact and never leaves [0, 1]."""
    finished = succeeded = 0
    for tally in newest_first:
        finished = finished * NEWER_COUNTS + tally.finished
        succeeded = succeeded * NEWER_COUNTS + tally.succeeded
    return Tally(finished, succeeded)


def _cube(rate: float) -> float:
    return rate * rate * rate
