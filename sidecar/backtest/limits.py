"""How often each limit of errors would have been reached, and the least limit that chance hardly ever reaches.

A container reaches a limit when it has that many errors in a window. It reaches it once until a whole window has passed
in which it did not. What the fleet would have done about it (the outlier, the trial, the budget) is not played here:
shadow mode does that with the real rules.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from sidecar.backtest.error_counts import PARTS, ErrorCounts, PartCounts, PastContainer, PastError
from sidecar.core.measure.noise import least_limit, most_errors
from sidecar.core.measure.outlier import quantile
from sidecar.core.types import Policy

LADDER: Final = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
SHOWN: Final = 20
"""Maximum number of reaches that are listed: first those of one container, those with the most errors."""

FLEET_WIDE: Final = 0.5
"""If this part of the containers reaches the limit in the same window, the cause is not one container."""


class UsualErrors(NamedTuple):
    """The errors of a container in a window when all is well.

    ``mean``: at most, with 95 % confidence. ``most``: in any of these windows. ``windows``: their number, of ``of``.
    """

    mean: float
    most: int
    windows: int
    of: int


class Reach(NamedTuple):
    """A container reached a limit: from a part to a part, with at most ``errors`` in a window, alone or not."""

    instance: str
    first: int
    last: int
    errors: int
    is_fleet_wide: bool


@dataclass
class LimitReached:
    """How often a limit was reached: ``starts`` are the parts, ``at_once`` the containers in each part."""

    limit: int
    containers: int = 0
    fleet_wide: int = 0
    starts: array[int] = field(default_factory=lambda: array("q"))
    at_once: PartCounts = field(default_factory=PartCounts)

    @property
    def times(self) -> int:
        """How often it was reached."""
        return len(self.starts)


class Findings(NamedTuple):
    """The answer. ``reaches``: those of the suggested limit, in the order of ``SHOWN``."""

    usual: UsualErrors
    suggested: int
    limits: Sequence[LimitReached]
    reaches: Sequence[Reach]


def judge(counts: ErrorCounts) -> Findings:
    """Find the limit to set, and how often it and others would have been reached. Raises PastError without a window."""
    usual = usual_errors(counts)
    first, last = counts.span
    at_a_time = max(1, round(usual.of * PARTS / (last - first + PARTS)))
    suggested = least_limit(usual.mean, counts.window_s, at_a_time)
    top = max((errors for one in counts.containers.values() for _, errors in one.windows()), default=0)
    limits = sorted({*(limit for limit in LADDER if limit <= top), Policy().error_limit, suggested})
    reached = [LimitReached(limit) for limit in limits]
    for container in counts.containers.values():
        _count(container, reached)
    alive = counts.alive()
    for one in reached:
        one.fleet_wide = sum(is_fleet_wide(one, start, alive[start]) for start in one.starts)
    chosen = next(one for one in reached if one.limit == suggested)
    found = (
        Reach(instance, *run, is_fleet_wide(chosen, run[0], alive[run[0]]))
        for instance, container in counts.containers.items()
        for run in _runs(row for row in container.windows() if row[1] >= suggested)
    )
    return Findings(usual, suggested, reached, nlargest(SHOWN, found, key=_most_first))


def usual_errors(counts: ErrorCounts) -> UsualErrors:
    """The errors in a window but in those with more errors than chance gives: these were sick. Raises PastError."""
    windows = Counter[int]()
    for container in counts.containers.values():
        errors = Counter[int]()
        for part, count in container.errors:
            errors[part // PARTS] += count
        windows.update(errors.values())
        windows[0] += max(0, container.last // PARTS - container.first // PARTS + 1 - len(errors))
    of = windows.total()
    too_many = quantile(max(1.0, _median(windows)))
    usual = {errors: number for errors, number in windows.items() if errors < too_many}
    if not (number := sum(usual.values())):
        raise PastError(f"{counts.source}: has no window in which all was well")
    total = sum(errors * number for errors, number in usual.items())
    return UsualErrors(most_errors(total) / number, max(errors for errors, seen in usual.items() if seen), number, of)


def _most_first(reach: Reach) -> tuple[bool, int]:
    return not reach.is_fleet_wide, reach.errors


def is_fleet_wide(reached: LimitReached, start: int, alive: int) -> bool:
    """Whether most containers reached the limit within a window of this start; of one container nobody knows."""
    at_once = max(reached.at_once[part] for part in range(start - PARTS + 1, start + PARTS))
    return alive > 1 and at_once >= FLEET_WIDE * alive


def _median(numbers: Counter[int]) -> float:
    """The median of values that are each there a number of times."""
    half, seen = numbers.total() / 2, 0
    for value in sorted(numbers):
        seen += numbers[value]
        if seen >= half:
            return value
    return 0.0


def _count(container: PastContainer, reached: Iterable[LimitReached]) -> None:
    """Count how often this container reached each of the limits, which are ascending."""
    rows = list(container.windows())
    for one in reached:
        rows = [row for row in rows if row[1] >= one.limit]
        one.containers += bool(rows)
        one.starts.extend(first for first, _, _ in _runs(rows))
        for part, _ in rows:
            one.at_once.add(part, 1)


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
