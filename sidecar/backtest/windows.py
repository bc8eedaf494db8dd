"""The errors of a fleet's past in windows: how often each limit was reached, and the least that chance hardly reaches.

A container reaches a limit when it has that many errors in a window. It reaches it once until a whole window has passed
in which it did not. What the fleet would have done about it (the outlier, the trial, the budget) is not played here:
shadow mode does that with the real rules. Memory is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from sidecar.core.measure.noise import least_limit, most_errors, quantile
from sidecar.core.types import Policy

PARTS: Final = 4
"""Parts of a window: it moves by one of them."""

MOST_CONTAINERS: Final = 5_000
MOST_PARTS: Final = 2_000_000
"""Maximum number of parts with errors, of all containers: about 200 MiB."""

LADDER: Final = (3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
FLEET_WIDE: Final = 0.5
"""If this part of the containers reaches the limit in the same window, the cause is not one container."""


class PastError(Exception):
    """The past cannot be used; the text is one sentence that begins with the place."""


class PastContainer:
    """A container: its errors by part, and the first and the last part in which it was there."""

    def __init__(self, part: int) -> None:
        self.errors = Counter[int]()
        self.first = self.last = part

    def windows(self) -> Iterator[tuple[int, int]]:
        """The errors of the window that ends with each part in which there were any, ascending."""
        recent: deque[tuple[int, int]] = deque()
        total = 0
        for part, count in sorted(self.errors.items()):
            recent.append((part, count))
            total += count
            while recent[0][0] <= part - PARTS:
                total -= recent.popleft()[1]
            yield part, total


class ErrorCounts:
    """The errors of all containers since a Unix time. ``source``: a few words for people."""

    def __init__(self, source: str, window_s: float, since_s: float = 0.0) -> None:
        self.source = source
        self.window_s = window_s
        self.since_s = since_s
        self.containers: dict[str, PastContainer] = {}
        self.notes: Counter[str] = Counter()
        """What a person has to know of the data, with the number of times."""
        self._part_s = window_s / PARTS
        self._parts = 0

    def add(self, instance: str, at_s: float, errors: int) -> None:
        """Count errors of a container at a Unix time; 0: it was there. Raises PastError if there are too many."""
        if at_s < self.since_s:
            return
        part = int(at_s // self._part_s)
        container = self.containers.get(instance)
        if container is None:
            if len(self.containers) >= MOST_CONTAINERS:
                raise PastError(f"{self.source}: more than {MOST_CONTAINERS:,} containers, such as {instance!r}")
            container = self.containers[instance] = PastContainer(part)
        container.first, container.last = min(container.first, part), max(container.last, part)
        if errors:
            self._parts += part not in container.errors
            container.errors[part] += errors
            if self._parts > MOST_PARTS:
                raise PastError(f"{self.source}: does not fit into memory: set a later --since or a longer --window")

    def at(self, part: int) -> float:
        """Unix time at which a part begins."""
        return part * self._part_s

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last part in which any container was there."""
        containers = self.containers.values()
        return min(each.first for each in containers), max(each.last for each in containers)


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
    """Find the limit to set, and how often it and others would have been reached."""
    usual = usual_errors(counts)
    first, last = counts.span
    at_a_time = max(1, round(usual.of * PARTS / (last - first + PARTS)))
    suggested = least_limit(usual.mean, counts.window_s, at_a_time)
    top = max((errors for each in counts.containers.values() for _, errors in each.windows()), default=0)
    limits = sorted({*(limit for limit in LADDER if limit <= top), Policy().error_limit, suggested})
    return LimitFindings(usual, suggested, {limit: _reaches(counts, limit) for limit in limits})


def usual_errors(counts: ErrorCounts) -> UsualErrors:
    """The errors in a window but in those with more errors than chance gives: these were sick."""
    windows = Counter[int]()
    for container in counts.containers.values():
        errors = Counter[int]()
        for part, count in container.errors.items():
            errors[part // PARTS] += count
        windows.update(errors.values())
        windows[0] += max(0, container.last // PARTS - container.first // PARTS + 1 - len(errors))
    too_many = quantile(max(1.0, _median(windows)))
    usual = {errors: number for errors, number in windows.items() if number and errors < too_many}
    number, total = sum(usual.values()), sum(errors * number for errors, number in usual.items())
    return UsualErrors(most_errors(total) / number, max(usual), number, windows.total())


def _median(numbers: Counter[int]) -> float:
    """The median of values that are each there a number of times."""
    values = sorted(numbers)
    below = accumulate(numbers[value] for value in values)
    return next(value for value, number in zip(values, below, strict=True) if number >= numbers.total() / 2)


def _reaches(counts: ErrorCounts, limit: int) -> list[Reach]:
    """When this limit was reached, container by container."""
    at_once = Counter[int]()
    runs = []
    for instance, container in counts.containers.items():
        rows = [row for row in container.windows() if row[1] >= limit]
        at_once.update(part for part, _ in rows)
        runs += [(instance, *run) for run in _runs(rows)]
    firsts = sorted(each.first for each in counts.containers.values())
    lasts = sorted(each.last for each in counts.containers.values())

    def is_fleet_wide(start: int) -> bool:
        alive = bisect_right(firsts, start) - bisect_left(lasts, start)  # of one container nobody knows
        most = max(at_once[part] for part in range(start - PARTS + 1, start + PARTS))
        return alive > 1 and most >= FLEET_WIDE * alive

    return [
        Reach(instance, counts.at(first), counts.at(last + 1), errors, is_fleet_wide(first))
        for instance, first, last, errors in runs
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
