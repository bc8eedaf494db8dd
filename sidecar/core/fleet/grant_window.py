"""The tokens of the window: how many are in use, when the next one comes back, and what the store itself enforces.

A fleet counts by one of three strategies, and one that runs with several by the strictest (``fleet_settings``). Of a
budget of N tokens a window, they grant at most:

- ``log``: N in any closed window, with refunds 3N. The store counts them, too, and refuses more.
- ``previous``: 2N - 1 in any window, and close to N on even load. It counts this period, and the share of the previous
  one that still overlaps (the sliding-window counter of CDNs and rate-limit libraries). The store refuses more.
- ``fixed``: N in each wall-clock window, so 2N across a boundary. The key of the seed article counts them, which other
  programs may share, so the gate and the store do not (``store.budget``).

Times are whole microseconds of the store's clock. A rule gets the times of the grants and nothing else, so the three
rules are exchangeable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from sidecar.core.claims import Claim
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.fleet_settings import OFF


class Quota(NamedTuple):
    """``capacity`` tokens per ``window_us`` microseconds, both at least one."""

    capacity: int
    window_us: int


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
    """Count this period, and the part of the last one that a window ending now overlaps.

    In whole numbers: a token fits while ``previous * (window - elapsed) + (current + 1) * window <=
    capacity * window``. ``used`` is the estimate, rounded up.
    """
    window = quota.window_us
    elapsed = now_us % window
    start = now_us - elapsed
    current = _count(times, start, now_us)
    previous = _count(times, start - window, start - 1)
    used = current - (-previous * (window - elapsed) // window)
    allowance = (quota.capacity - current - 1) * window
    if previous * (window - elapsed) <= allowance:
        return Usage(used, 0)
    return Usage(used, _wait(current, previous, allowance, elapsed, quota))


def _wait(current: int, previous: int, allowance: int, elapsed: int, quota: Quota) -> int:
    """Microseconds until the overlap has shrunk enough: in this period if it can, else in the next."""
    to_next = quota.window_us - elapsed
    if allowance >= 0 and previous:
        return to_next - allowance // previous
    next_allowance = (quota.capacity - 1) * quota.window_us
    return to_next + quota.window_us - min(quota.window_us, next_allowance // current)


def _count(times: list[int], first_us: int, last_us: int) -> int:
    return bisect_right(times, last_us) - bisect_left(times, first_us)


RULES: Final[Mapping[str, Rule]] = {
    "log": sliding_log,
    "fixed": fixed_window,
    "previous": previous_period,
}


class Bounds(NamedTuple):
    """What the store itself enforces for a grant, as in ``Edits``; 0: no bound."""

    capacity: int
    """Tokens of the window, without those given back."""
    most: int
    """Grants of the window in all."""


def bounds(draft: Draft) -> Bounds:
    """The bounds of the strategy in force."""
    limits = draft.limits
    if limits.strategy == "fixed":
        return Bounds(0, 0)
    if limits.strategy == "previous":
        return Bounds(max(1, 2 * limits.capacity - 1), 0)
    return Bounds(limits.capacity, limits.capacity if limits.refund_max == OFF else limits.refund_max)


def has_token(draft: Draft, claim: Claim) -> bool:
    """Whether this claim was granted within the window."""
    oldest_us = draft.now_us - draft.limits.window_us
    return draft.view.grants.get(claim.claim_id, oldest_us - 1) >= oldest_us


def usage(draft: Draft) -> Usage:
    """The tokens in use, and the time until one more would fit. Tokens that were given back are not in use."""
    limits, grants = draft.limits, draft.view.grants
    refunded = draft.view.refunded if limits.refund_max != OFF else frozenset[str]()
    in_use = times(draft, (at for claim, at in grants.items() if claim not in refunded))
    return RULES[limits.strategy](in_use, draft.now_us, Quota(max(1, limits.capacity), limits.window_us))


def times(draft: Draft, grants: Iterable[int]) -> list[int]:
    """Grants in ascending order; after a clock has stepped back, grants of the future count as of now."""
    return sorted(min(at, draft.now_us) for at in grants)
