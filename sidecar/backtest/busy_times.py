"""Finds the times of a past in which a container could have been a suspect; the rest need not be played.

A container is a suspect only with as many errors in its window as the limit. What a sidecar compares them with (the
median of the fleet, its own usual rate) goes back an hour at most. So the times that matter begin an hour before a
container reaches the limit. Leaving the others out changes no judgement, only the jitter, as another seed does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import ceil
from typing import Final

from sidecar.backtest.past import Past, PastContainer, merged
from sidecar.core.measure.outlier import KEPT_MIN, MINUTE_S
from sidecar.core.types import Policy

AFTER_S: Final = 600.0
"""Time for a suspect to recover, and for the outcome of its cull to be known."""


@dataclass(frozen=True)
class BusyTimes:
    """The runs of steps that are played, ascending; None: all."""

    runs: Sequence[tuple[int, int]] | None = None

    def has(self, step: int) -> bool:
        """Whether this step is played."""
        if self.runs is None:
            return True
        at = bisect_right(self.runs, step, key=lambda run: run[0])
        return at > 0 and step <= self.runs[at - 1][1]

    def touches(self, first: int, last: int) -> bool:
        """Whether any of these steps is played."""
        return self.runs is None or any(begin <= last and end >= first for begin, end in self.runs)


ALL_TIMES: Final = BusyTimes()


def least_errors(policy: Policy) -> int | None:
    """The least errors in a window with which a container can be a suspect, whose app reports errors only.

    None: the rules have no limit of errors.
    """
    limits = [limit for limit in (policy.error_limit, *(limit for _, limit in policy.kind_limits)) if limit > 0]
    return min(limits, default=None)


def busy_times(past: Past, least: int, window_s: float) -> BusyTimes:
    """The times around each window of ``window_s`` seconds in which a container has ``least`` errors or more."""
    before, after = (ceil(seconds / past.step_s) for seconds in (KEPT_MIN * MINUTE_S + window_s, AFTER_S + window_s))
    window = ceil(window_s / past.step_s) + 1
    runs: list[tuple[int, int]] = []
    for container in past.containers.values():
        for step in _reached(container, least, window):
            if runs and runs[-1][0] <= step - before <= runs[-1][1]:
                runs[-1] = (runs[-1][0], step + after)
            else:
                runs.append((step - before, step + after))
        runs = merged(runs)
    return BusyTimes(runs)


def _reached(container: PastContainer, least: int, window: int) -> Iterator[int]:
    """The steps at which the last ``window`` steps have ``least`` errors or more."""
    recent: deque[tuple[int, int]] = deque()
    total = 0
    for step, errors in merge(*container.errors.values()):
        recent.append((step, errors))
        total += errors
        while recent[0][0] <= step - window:
            total -= recent.popleft()[1]
        if total >= least:
            yield step
