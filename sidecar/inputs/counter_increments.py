"""Turns counters into increments between two pages, which never exceed what has happened.

It knows neither pages nor clocks: readings and the time of the scrape come in, a ``Sample`` goes out. The rules:

- The first page counts nothing, and neither does the first page of a process that began before the last scrape.
- A process is known by its start. A process that began after the last scrape counts from zero and is a new incarnation;
  workers that answer behind one port in turns are each compared with themselves.
- If nothing distinguishes processes, a counter that has decreased is unknown: its page counts nothing, and from then on
  a value is compared with the nearest lower earlier value.
- A new series counts from zero if the same process was seen without it, or if its ``_created`` says so.
- A value beyond ``MAX_COUNT`` (or infinite) is no count and is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from sidecar.core.types import Sample
from sidecar.inputs.app_incarnation import AppIncarnation

MOST_SERIES: Final = 20_000
MOST_PROCESSES: Final = 8
"""Maximum number of processes behind one port, and of values of one series where nothing distinguishes processes."""

TOLERANCE_S: Final = 1.0
"""Exporters compute the start from the boot time in whole seconds: it may be this much too early."""

MAX_COUNT: Final = 2.0**53
"""Above it a float no longer counts by ones; a sum of such values could overflow."""

SLICE: Final = 500
_MOST_RESTS: Final = 1000
_TINY: Final = 1e-9


class Role(Enum):
    """What a reading is used for."""

    COUNTER = "counter"
    CREATED = "created"
    START = "start"
    LEVEL = "level"


class SeriesUse(NamedTuple):
    """The use of one series. ``key`` is the counter's, also for its ``_created``; ``kind`` of the errors it counts."""

    key: int
    role: Role
    kind: str | None = None
    requests: bool = False


Reading = tuple[SeriesUse, float]


@dataclass(slots=True)
class _Readings:
    """The readings of a page in two columns, and those that are no counters."""

    uses: Sequence[SeriesUse]
    values: Sequence[float]
    created: dict[int, float] = field(default_factory=dict)
    levels: dict[int, float] = field(default_factory=dict)
    start: float | None = None

    @property
    def in_flight(self) -> float | None:
        return sum(self.levels.values()) if self.levels else None

    def slices(self) -> Iterator[Iterable[Reading]]:
        for begin in range(0, len(self.uses), SLICE):
            yield zip(self.uses[begin : begin + SLICE], self.values[begin : begin + SLICE], strict=True)

    def sort_out(self) -> Generator[None, None, None]:
        """Find the readings that are no counters."""
        counter = Role.COUNTER
        for part in self.slices():
            for use, value in part:
                if use.role is not counter and abs(value) <= MAX_COUNT:
                    self._add(use, value)
            yield

    def _add(self, use: SeriesUse, value: float) -> None:
        if use.role is Role.CREATED:
            self.created[use.key] = value
        elif use.role is Role.LEVEL:
            self.levels[use.key] = value
        elif self.start is None or value < self.start:
            self.start = value


@dataclass(slots=True)
class _Process:
    """The last values of one process.

    ``others``: earlier values of series that have decreased, newest first. ``is_whole``: the last page was complete.
    ``is_doubtful``: a series that seems new may be an old one that was dropped, or one of another worker with the same
    start.
    """

    values: dict[int, float] = field(default_factory=dict)
    others: dict[int, tuple[float, ...]] = field(default_factory=dict)
    is_whole: bool = False
    is_doubtful: bool = False

    def rise(self, key: int, value: float) -> float | None:
        """The increment since the nearest lower earlier value; None if there is none."""
        last = self.values[key]
        others = self.others.get(key, ())
        self.values[key] = value
        if not others and value >= last:
            return value - last
        seen = (last, *others)
        nearest = max((other for other in seen if other <= value), default=None)
        if nearest is None:
            self.others[key] = seen[: MOST_PROCESSES - 1]
            return None
        at = seen.index(nearest)
        self.others[key] = seen[:at] + seen[at + 1 :]
        return value - nearest

    def restart(self, key: int, value: float) -> None:
        """Record that the series began again from zero, in this process or in another one."""
        self.others[key] = (self.values[key], *self.others.get(key, ()))[: MOST_PROCESSES - 1]
        self.values[key] = value

    def forget_all_but(self, keys: Iterable[int]) -> None:
        self.values = {key: self.values[key] for key in keys if key in self.values}
        self.others = {key: seen for key, seen in self.others.items() if key in self.values}
        self.is_doubtful = True


@dataclass(slots=True)
class _Tally:
    """The sums of one page."""

    errors: dict[str, float] = field(default_factory=dict)
    requests: float = 0.0
    series: int = 0
    unknown: int = 0
    restarted: bool = False

    def add(self, use: SeriesUse, rise: float) -> None:
        if use.requests:
            self.requests += rise
        if use.kind is not None:
            self.errors[use.kind] = self.errors.get(use.kind, 0.0) + rise


class Counters:
    """Remembers the counters of one app; at most ``most_series`` values and those of one page."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._processes: dict[float | None, _Process] = {}
        self._at: float | None = None
        self._incarnation = AppIncarnation()
        self._rests: dict[str | None, float] = {}

    def take(
        self, uses: Sequence[SeriesUse], values: Sequence[float], at: float, *, complete: bool = True
    ) -> Generator[None, None, Sample]:
        """The increments since the page before; ``at`` is the Unix time at which the scrape began.

        ``complete``: no selected series of the page is missing. The generator yields between slices, so that the loop
        can do other work, and must be run to its end.
        """
        page = _Readings(uses, values)
        yield from page.sort_out()
        process, born, known = self._process(page.start)
        from_zero = born or (known and page.start is not None and process.is_whole and not process.is_doubtful)
        tally = yield from self._counted(page, process, from_zero=from_zero)
        self._see(page, tally, born=born)
        process.is_whole = complete
        process.is_doubtful = process.is_doubtful or tally.unknown > 0
        if not known and not born and self._at is not None:
            tally.unknown = tally.series
        self._bound(process, page)
        self._at = at
        return self._sample(page, tally)

    def _process(self, start: float | None) -> tuple[_Process, bool, bool]:
        """The process, whether it began after the last scrape, and whether it was seen before."""
        if (start is None) is not (None in self._processes):
            self._processes.clear()  # it may be the same process, and would count twice
        known = start in self._processes
        process = self._processes.pop(start) if known else _Process()
        self._processes[start] = process
        return process, start is not None and not known and self._is_new(start), known

    def _is_new(self, start: float) -> bool:
        return self._at is not None and start > self._at - TOLERANCE_S

    def _counted(self, page: _Readings, process: _Process, *, from_zero: bool) -> Generator[None, None, _Tally]:
        tally, last_values, others, counter = _Tally(), process.values, process.others, Role.COUNTER
        for part in page.slices():
            for use, value in part:
                key, role, _, _ = use
                if role is counter and 0 <= value <= MAX_COUNT:
                    tally.series += 1
                    last = last_values.get(key)
                    if last is None or value < last or key in others:
                        self._count(tally, process, (use, value), page.created.get(key), from_zero=from_zero)
                    elif value > last:
                        last_values[key] = value
                        tally.add(use, value - last)
            yield
        return tally

    def _count(
        self, tally: _Tally, process: _Process, reading: Reading, created: float | None, *, from_zero: bool
    ) -> None:
        use, value = reading
        is_new = created is not None and self._is_new(created)
        if use.key not in process.values:
            process.values[use.key] = value
            if from_zero or is_new:
                tally.add(use, value)
        elif is_new and value < process.values[use.key]:
            process.restart(use.key, value)
            tally.restarted = True
            tally.add(use, value)
        elif (rise := process.rise(use.key, value)) is None:
            tally.unknown += 1
        else:
            tally.add(use, rise)

    def _see(self, page: _Readings, tally: _Tally, *, born: bool) -> None:
        """Find the incarnation by the start of the process, else by series that were all created again."""
        if page.start is not None:
            self._incarnation.see(page.start, is_born=born)
        elif tally.restarted and self._is_new(oldest := min(page.created.values())):
            self._incarnation.begin(oldest)

    def _bound(self, process: _Process, page: _Readings) -> None:
        remembered = sum(len(each.values) for each in self._processes.values())
        for start in list(self._processes)[:-1]:
            if len(self._processes) <= MOST_PROCESSES and remembered <= self._most_series:
                return
            remembered -= len(self._processes.pop(start).values)
        if remembered > self._most_series:
            process.forget_all_but({use.key for use in page.uses})

    def _sample(self, page: _Readings, tally: _Tally) -> Sample:
        app_start = self._incarnation.app_start
        if tally.unknown:
            return Sample({}, 0, page.in_flight, app_start, tally.unknown)
        whole = {kind: self._whole(kind, rise) for kind, rise in tally.errors.items()}
        errors = {kind: count for kind, count in whole.items() if count}
        return Sample(errors, self._whole(None, tally.requests), page.in_flight, app_start)

    def _whole(self, kind: str | None, rise: float) -> int:
        """The whole errors in a sum; the fraction is kept for the next page."""
        total = min(rise + self._rests.pop(kind, 0.0), MAX_COUNT)
        whole = math.floor(total + _TINY)
        if total - whole > _TINY and len(self._rests) < _MOST_RESTS:
            self._rests[kind] = total - whole
        return whole
