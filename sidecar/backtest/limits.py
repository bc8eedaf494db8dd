"""How often each limit of errors would have been reached, and the least limit that chance hardly ever reaches.

A container reaches a limit when it has that many errors in a window. It reaches it once until a whole window has passed
in which it did not. What the fleet would have done about it (the outlier, the trial, the budget) is not played here:
shadow mode does that with the real rules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sidecar.backtest.error_counts import PARTS, ErrorCounts, PastError
from sidecar.core.measure.noise import least_limit, most_errors, quantile
from sidecar.core.types import Policy

LADDER: Final = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
FLEET_WIDE: Final = 0.5
"""If this part of the containers reaches the limit in the same window, the cause is not one container."""


class UsualErrors(NamedTuple):
    """The errors of a container in a window when all is well."""

    mean: float
    """At most, with 95 % confidence."""
    most: int
    """In any of these windows."""
    windows: int
    of: int
    """The number of all windows; in the others the container was sick."""


class Reach(NamedTuple):
    """A container reached a limit; times are Unix seconds."""

    container: str
    begin: float
    end: float
    errors: int
    """The most in any of these windows."""
    fleet_wide: bool
    """Whether most of the fleet reached it in the same window."""


class LimitFindings(NamedTuple):
    """The answer."""

    usual: UsualErrors
    suggested: int
    reaches: dict[int, list[Reach]]
    """Each limit, ascending, and when it was reached."""


def judge(counts: ErrorCounts) -> LimitFindings:
    """Find the limit to set, and how often it and others would have been reached. Raises PastError without a window."""
    usual = usual_errors(counts)
    first, last = counts.span
    at_a_time = max(1, round(usual.of * PARTS / (last - first + PARTS)))
    suggested = least_limit(usual.mean, counts.window_s, at_a_time)
    top = max((errors for one in counts.containers.values() for _, errors in one.windows()), default=0)
    limits = sorted({*(limit for limit in LADDER if limit <= top), Policy().error_limit, suggested})
    return LimitFindings(usual, suggested, {limit: _reaches(counts, limit) for limit in limits})


def usual_errors(counts: ErrorCounts) -> UsualErrors:
    """The errors in a window but in those with more errors than chance gives: these were sick. Raises PastError."""
    windows = Counter[int]()
    for container in counts.containers.values():
        errors = Counter[int]()
        for part, count in container.errors.items():
            errors[part // PARTS] += count
        windows.update(errors.values())
        windows[0] += max(0, container.last // PARTS - container.first // PARTS + 1 - len(errors))
    too_many = quantile(max(1.0, _median(windows)))
    usual = {errors: number for errors, number in windows.items() if number and errors < too_many}
    if not (number := sum(usual.values())):
        raise PastError(f"{counts.source}: has no window in which all was well")
    total = sum(errors * number for errors, number in usual.items())
    return UsualErrors(most_errors(total) / number, max(usual), number, windows.total())


def _median(numbers: Counter[int]) -> float:
    """The median of values that are each there a number of times."""
    half, below = numbers.total() / 2, 0
    for value in sorted(numbers):
        below += numbers[value]
        if below >= half:
            return value
    return 0.0


def _reaches(counts: ErrorCounts, limit: int) -> list[Reach]:
    """When this limit was reached, container by container."""
    at_once = Counter[int]()
    found = []
    for instance, container in counts.containers.items():
        rows = [row for row in container.windows() if row[1] >= limit]
        at_once.update(part for part, _ in rows)
        found += [(instance, *run) for run in _runs(rows)]
    firsts = sorted(one.first for one in counts.containers.values())
    lasts = sorted(one.last for one in counts.containers.values())

    def is_fleet_wide(start: int) -> bool:
        alive = bisect_right(firsts, start) - bisect_left(lasts, start)  # of one container nobody knows
        most = max(at_once[part] for part in range(start - PARTS + 1, start + PARTS))
        return alive > 1 and most >= FLEET_WIDE * alive

    return [
        Reach(instance, counts.at(first), counts.at(last + 1), errors, is_fleet_wide(first))
        for instance, first, last, errors in found
    ]


def _runs(rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Runs of parts with no whole window between: the first and the last part, and the most errors in a window."""
    run: tuple[int, int, int] | None = None
    for part, errors in rows:
        if run and part - run[1] <= PARTS:
            run = run[0], part, max(run[2], errors)
            continue
        if run:
            yield run
        run = part, part, errors
    if run:
        yield run
