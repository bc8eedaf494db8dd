"""The errors of a fleet's past, by container and quarter of the error window.

The readers fill it, and ``limits`` judges it. It knows neither files nor servers, and its memory is bounded.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isfinite
from typing import Final

PARTS: Final = 4
"""Parts of a window: it moves by one of them."""

MOST_CONTAINERS: Final = 5_000
_BLOCK: Final = 1024
MOST_BLOCKS: Final = 50_000
"""Maximum number of blocks of 4 KiB: 200 MiB."""

_LARGEST: Final = 2**32 - 1
_EARLIEST_S: Final = 946_684_800.0
"""The year 2000."""

_LATER_S: Final = 86_400.0
"""Clocks and zones may be wrong by a day."""

_UNITS: Final = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}


class PastError(Exception):
    """The past cannot be read; the text is one sentence that begins with the place."""


class PartCounts:
    """Counts by part, with memory only for the parts near a count."""

    def __init__(self) -> None:
        self.blocks: dict[int, array[int]] = {}

    def add(self, part: int, count: int) -> None:
        """Add to a part."""
        number, place = divmod(part, _BLOCK)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = array("I", bytes(4 * _BLOCK))
        block[place] = min(_LARGEST, block[place] + count)

    def __getitem__(self, part: int) -> int:
        block = self.blocks.get(part // _BLOCK)
        return block[part % _BLOCK] if block else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The parts that have a count, ascending, each with its count."""
        for number in sorted(self.blocks):
            yield from ((number * _BLOCK + place, count) for place, count in enumerate(self.blocks[number]) if count)


class PastContainer:
    """A container: its errors, and the first and the last part in which it was there."""

    def __init__(self, part: int) -> None:
        self.errors = PartCounts()
        self.first = self.last = part

    def windows(self) -> Iterator[tuple[int, int]]:
        """The errors of the window that ends with each part in which there were any, ascending."""
        recent: deque[tuple[int, int]] = deque()
        total = 0
        for part, count in self.errors:
            recent.append((part, count))
            total += count
            while recent[0][0] <= part - PARTS:
                total -= recent.popleft()[1]
            yield part, total


class ErrorCounts:
    """The errors of all containers. ``source``: a few words for people. ``window_s``: the error window in seconds."""

    def __init__(self, source: str, window_s: float) -> None:
        self.source = source
        self.window_s = window_s
        self.containers: dict[str, PastContainer] = {}
        self.notes: Counter[str] = Counter()
        """What a person has to know of the data, with the number of times."""
        self._part_s = window_s / PARTS
        self._blocks = 0

    def add(self, instance: str, at_s: float, errors: int) -> None:
        """Count errors of a container at a Unix time; 0: it was there. Raises PastError if there are too many."""
        part = int(at_s // self._part_s)
        container = self.containers.get(instance)
        if container is None:
            if len(self.containers) >= MOST_CONTAINERS:
                raise PastError(f"{self.source}: more than {MOST_CONTAINERS:,} containers, such as {instance!r}")
            container = self.containers[instance] = PastContainer(part)
        container.first, container.last = min(container.first, part), max(container.last, part)
        if errors:
            before = len(container.errors.blocks)
            container.errors.add(part, errors)
            self._blocks += len(container.errors.blocks) - before
            if self._blocks > MOST_BLOCKS:
                raise PastError(f"{self.source}: does not fit into memory: set a later --since or a longer --window")

    def at(self, part: int) -> float:
        """Unix time at which a part begins."""
        return part * self._part_s

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last part in which any container was there."""
        found = self.containers.values()
        return min(one.first for one in found), max(one.last for one in found)

    def alive(self) -> AliveCounts:
        """How many containers were there in each part."""
        return AliveCounts(self)


class AliveCounts:
    """The number of containers that were there, by part: from their first to their last data."""

    def __init__(self, counts: ErrorCounts) -> None:
        self._first = sorted(one.first for one in counts.containers.values())
        self._last = sorted(one.last for one in counts.containers.values())

    def __getitem__(self, part: int) -> int:
        return bisect_right(self._first, part) - bisect_left(self._last, part)


def time_problem(unix_s: float) -> str:
    """Why nothing can have been recorded at this Unix time, as part of a sentence; empty if it can."""
    end_s = time.time() + _LATER_S
    if _EARLIEST_S <= unix_s <= end_s:
        return ""
    if not isfinite(unix_s):
        return "a time that is no number"
    if unix_s < _EARLIEST_S:
        return "a time before the year 2000"
    unit = next((name for name, parts in _UNITS.items() if _EARLIEST_S <= unix_s / parts <= end_s), "")
    return f"a time after tomorrow: {unix_s:.0f} s" + (f"; it looks like {unit}" if unit else "")


def clock(unix_s: float) -> str:
    """``2026-11-22 10:00:15Z``."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}Z"
