"""The rules of the token bucket, in memory: who may have a token, and when the next one comes.

Times are whole microseconds of the bucket's own clock. A ``Bucket`` remembers which claim id was granted when; a
``Rule`` only counts those times, so the three rules are exchangeable. The Lua of the shared bucket is the
twin of this file, and one contract suite runs over both.

- ``log``: sliding log. Never more than ``capacity`` grants in any closed window.
- ``fixed``: the seed article's counter a window of the wall clock. Up to twice the capacity across a boundary.
- ``previous``: this period plus the share of the previous one that still overlaps (the sliding-window counter of
  CDNs and rate-limit libraries). Close to ``log`` on even load, up to ``2 * capacity - 1`` at a boundary.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.core.words import US_PER_S, Answer, Denied, Granted


@dataclass(frozen=True, slots=True)
class Quota:
    """``capacity`` tokens per ``window_us`` microseconds; ValueError unless both are at least one."""

    capacity: int
    window_us: int

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.window_us < 1:
            raise ValueError(f"a quota needs a token and a window, not {self.capacity} in {self.window_us} us")


class Usage(NamedTuple):
    """Tokens in use at an instant, and the microseconds until one more would fit (0: it fits now)."""

    used: int
    wait_us: int


Rule = Callable[[list[int], int, Quota], Usage]
"""``(grant times in ascending order, now, quota) -> usage``."""


def sliding_log(times: list[int], now_us: int, quota: Quota) -> Usage:
    """Count the grants of the closed window that ends now: one that is exactly a window old still counts."""
    live = times[bisect_left(times, now_us - quota.window_us) :]
    if len(live) < quota.capacity:
        return Usage(len(live), 0)
    leaver = live[len(live) - quota.capacity]
    return Usage(len(live), leaver + quota.window_us + 1 - now_us)


def fixed_window(times: list[int], now_us: int, quota: Quota) -> Usage:
    """Count the grants of the current wall-clock window."""
    start = now_us - now_us % quota.window_us
    used = _count(times, start, now_us)
    if used < quota.capacity:
        return Usage(used, 0)
    return Usage(used, start + quota.window_us - now_us)


def previous_period(times: list[int], now_us: int, quota: Quota) -> Usage:
    """Count this period, and the last one by the share of it that a window ending now would still see.

    In whole numbers: a token fits while ``previous * (window - elapsed) + (current + 1) * window <=
    capacity * window``. ``used`` is the estimate, rounded up.
    """
    window = quota.window_us
    elapsed = now_us % window
    start = now_us - elapsed
    current = _count(times, start, now_us)
    previous = _count(times, start - window, start - 1)
    used = current - (-previous * (window - elapsed) // window)
    room = (quota.capacity - current - 1) * window
    if previous * (window - elapsed) <= room:
        return Usage(used, 0)
    return Usage(used, _wait(current, previous, room, elapsed, quota))


def _wait(current: int, previous: int, room: int, elapsed: int, quota: Quota) -> int:
    """Microseconds until the overlap has shrunk enough: in this period if it can, else in the next."""
    if room >= 0 and previous:
        return quota.window_us - elapsed - room // previous
    to_next = quota.window_us - elapsed
    room_then = (quota.capacity - 1) * quota.window_us
    return to_next + quota.window_us - min(quota.window_us, room_then // current)


def _count(times: list[int], first_us: int, last_us: int) -> int:
    return bisect_right(times, last_us) - bisect_left(times, first_us)


RULES: Final[Mapping[str, Rule]] = {
    "log": sliding_log,
    "fixed": fixed_window,
    "previous": previous_period,
}


class Grants:
    """Which claim id was granted when: those that count, and those that have been given back."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        self._earned: dict[str, int] = {}

    @property
    def newest_us(self) -> int:
        """When the last token was granted; 0 when none ever was."""
        return max((*self._counted.values(), *self._earned.values()), default=0)

    def counted(self) -> list[int]:
        """Times of the grants that count, in ascending order."""
        return sorted(self._counted.values())

    def every(self) -> list[int]:
        """Times of all grants, in ascending order."""
        return sorted([*self._counted.values(), *self._earned.values()])

    def holds(self, claim_id: str, now_us: int, window_us: int) -> bool:
        """Whether this claim was granted within the window that ends now."""
        at_us = self._counted.get(claim_id, self._earned.get(claim_id))
        return at_us is not None and now_us - at_us <= window_us

    def note(self, claim_id: str, now_us: int, window_us: int) -> None:
        """Write down a grant, or that one counts from now on; forget what no rule will look at again."""
        log = self._earned if claim_id in self._earned else self._counted
        log[claim_id] = now_us
        oldest = now_us - 2 * window_us
        self._counted = {claim: at for claim, at in self._counted.items() if at >= oldest}
        self._earned = {claim: at for claim, at in self._earned.items() if at >= oldest}

    def earn(self, claim_id: str) -> None:
        """Give a token back: its grant no longer counts."""
        if claim_id in self._counted:
            self._earned[claim_id] = self._counted.pop(claim_id)

    def unearn(self) -> None:
        """Count every grant again."""
        self._counted |= self._earned
        self._earned.clear()


class Bucket:
    """The bucket of one process: a rule, a quota, and the least time between grants. A denied claim leaves no trace.

    A claim id that was granted within the window is granted again and costs nothing; its grant counts from then on, for
    only now the container goes down. A grant that has left the window makes no more room for its claim than for any
    other. Otherwise late replays and fresh grants would add up to more than the capacity within one window.

    A clock that steps back is read as standing still at the newest grant, so a skewed clock can delay a token and never
    adds one.
    """

    def __init__(self, rule: Rule, quota: Quota, spacing_us: int = 0) -> None:
        self.quota = quota
        self._rule = rule
        self._spacing_us = spacing_us
        self._grants = Grants()

    def used(self, now_us: int) -> int:
        """Tokens in use, as a claim would be told."""
        return self._rule(self._grants.counted(), max(now_us, self._grants.newest_us), self.quota).used

    def claim(self, claim_id: str, now_us: int) -> Answer:
        """Answer a claim at ``now_us``: granted (perhaps replayed) or denied with the time to wait."""
        newest_us = self._grants.newest_us
        at_us = max(now_us, newest_us)
        usage = self._rule(self._grants.counted(), at_us, self.quota)
        if self._grants.holds(claim_id, at_us, self.quota.window_us):
            if renews(self._rule):
                self._grants.note(claim_id, at_us, self.quota.window_us)
            return Granted(usage.used, self.quota.capacity, replayed=True)
        spacing_us = spaced(newest_us, at_us, self._spacing_us)
        if spacing_us or usage.wait_us:
            wait_us = at_us - now_us + (spacing_us or usage.wait_us)
            return Denied("spacing" if spacing_us else "window", usage.used, self.quota.capacity, wait_us / US_PER_S)
        self._grants.note(claim_id, at_us, self.quota.window_us)
        return Granted(usage.used + 1, self.quota.capacity)


def renews(rule: Rule) -> bool:
    """Whether a replay counts from its own time on: the article's counter knows no claim ids."""
    return rule is not fixed_window


def spaced(newest_us: int, now_us: int, spacing_us: int) -> int:
    """Microseconds until the next grant may follow the newest one."""
    return max(0, newest_us + spacing_us - now_us) if newest_us else 0
