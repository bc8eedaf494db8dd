"""A past as the engine of the simulation plays it: when incarnations begin and end, and the errors of each second.

The errors of a step are spread evenly over it, because within a step nobody knows when they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from math import ceil, floor
from typing import Final

from sidecar.backtest.busy_times import ALL_TIMES, BusyTimes
from sidecar.backtest.past import BLOCK, Past, PastContainer
from sidecar.simulation.recording import Began, Counted, Departed, Recorded

BEFORE_S: Final = 3600.0
"""Age of a container that was there before the past begins: nobody knows it, and it is no new one."""


PARTS: Final = 3
"""Rows of a step that is longer than a second: each costs the sidecar a turn."""


@dataclass(frozen=True)
class PlayedPast:
    """The rows of a past, of the ``busy`` times only.

    ``with_requests``: also seconds without errors, for rules that judge by requests.
    """

    past: Past
    with_requests: bool = False
    busy: BusyTimes = ALL_TIMES

    @property
    def start_unix(self) -> float:
        """Unix time of second 0."""
        first, _ = self.past.span
        return self.past.at(first - 1)

    @property
    def for_s(self) -> float:
        """Its length in seconds."""
        first, last = self.past.span
        return (last - first + 1) * self.past.step_s

    @property
    def most_containers(self) -> int:
        """The greatest number of containers that were there at once."""
        here: set[str] = set()
        most = 0
        for row in self._lives():
            (here.add if isinstance(row, Began) else here.discard)(row.instance)
            most = max(most, len(here))
        return most

    @property
    def errors(self) -> int:
        """The errors that are played."""
        each = (counts for one in self.past.containers.values() for counts in one.errors.values())
        return sum(errors for counts in each for step, errors in counts if self.busy.has(step))

    def requests_in(self, times: Iterable[tuple[float, float]]) -> int:
        """The requests of all containers in these times, in seconds of the play; those of a step come evenly."""
        step_s, first = self.past.step_s, self.past.span[0]
        shares: dict[int, float] = defaultdict(float)
        for begin_s, end_s in times:
            for number in range(floor(begin_s / step_s), ceil(end_s / step_s)):
                inside_s = min(end_s, (number + 1) * step_s) - max(begin_s, number * step_s)
                shares[first + number] += inside_s / step_s
        containers = self.past.containers.values()
        return round(sum(share * sum(one.requests[step] for one in containers) for step, share in shares.items()))

    def __iter__(self) -> Iterator[Recorded]:
        """All rows in the order of time."""
        return merge(self._lives(), self._counts(), key=lambda row: row.at_s)

    def _lives(self) -> list[Began | Departed]:
        rows = chain.from_iterable(map(self._lives_of, self.past.containers.values()))
        return sorted(rows, key=lambda row: (row.at_s, isinstance(row, Began)))

    def _lives_of(self, container: PastContainer) -> Iterator[Began | Departed]:
        begin, end = self.past.span
        lives = self.past.lives(container)
        for number, life in enumerate(lives):
            is_first = life.first == begin
            yield Began(self._second(life.first - 1), container.instance, BEFORE_S if is_first else 0.0)
            goes_on = number + 1 < len(lives) and lives[number + 1].is_restart
            if life.last < end and not goes_on:
                yield Departed(self._second(life.last), container.instance)

    def _counts(self) -> Iterator[Counted]:
        """The counts, a block of steps after the other, so that no more than a block is in memory."""
        containers = self.past.containers.values()
        first, last = self.past.span
        for number in range(first // BLOCK, last // BLOCK + 1):
            if not self.busy.touches(number * BLOCK, (number + 1) * BLOCK - 1):
                continue
            steps: dict[int, list[tuple[str, str, int]]] = {}
            for one in containers:
                for kind, counts in one.errors.items():
                    for step, errors in counts.of_block(number):
                        steps.setdefault(step, []).append((one.instance, kind, errors))
                if self.with_requests:
                    for step, _ in one.requests.of_block(number):
                        steps.setdefault(step, []).append((one.instance, "", 0))
            for step in sorted(filter(self.busy.has, steps)):
                yield from self._of_step(step, sorted(steps[step]))

    def _of_step(self, step: int, found: list[tuple[str, str, int]]) -> Iterator[Counted]:
        """The rows of one step."""
        parts, begin_s, rows = max(1, min(PARTS, ceil(self.past.step_s))), self._second(step - 1), []
        width_s = self.past.step_s / parts
        for instance, kind, errors in found:
            requests = self.past.containers[instance].requests[step] if not kind else None
            for part in range(parts):
                count = _part(errors, part, parts)
                if count or requests is not None:
                    asked = None if requests is None else _part(requests, part, parts)
                    rows.append(Counted(begin_s + (part + 0.5) * width_s, instance, count, asked, kind or "unknown"))
        return iter(sorted(rows, key=lambda row: row.at_s))

    def _second(self, step: int) -> float:
        """The second of the play at which a step ends."""
        return (step + 1 - self.past.span[0]) * self.past.step_s


def _part(count: int, part: int, parts: int) -> int:
    """What falls into one of the parts, as evenly as whole numbers can be."""
    half = parts // 2
    return ((part + 1) * count + half) // parts - (part * count + half) // parts
