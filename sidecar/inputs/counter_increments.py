"""Turns counters into increments between two pages, which never exceed what has happened.

It knows neither pages nor clocks: readings and the time of the scrape come in, a ``Sample`` goes out. The rules:

- The first page counts nothing, and neither does the first page of a process that began before the last scrape.
- A process is known by its start. A process that began after the last scrape counts from zero and is a new incarnation;
  workers that answer behind one port in turns are each compared with themselves.
- If nothing distinguishes processes, a counter that has decreased is unknown: its page counts nothing, and from then on
  a value is compared with the nearest lower earlier value.
- A new series counts from zero if the same process was seen without it.
- A replaced worker is no restart of the app: see ``AppIncarnation``.
- A value beyond ``MAX_COUNT`` (or infinite) is no count and is ignored.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from sidecar.core.app_reports import Sample

MOST_SERIES: Final = 20_000
MOST_PROCESSES: Final = 8
"""Maximum number of processes behind one port, and of values of one series where nothing distinguishes processes."""

TOLERANCE_S: Final = 1.0
"""Exporters compute the start from the boot time in whole seconds: it may be this much too early."""

MAX_COUNT: Final = 2.0**53
"""Above it a float no longer counts by ones; a sum of such values could overflow."""

SLICE: Final = 500

SETTLED_PAGES: Final = 30
"""Pages without an answer of an older process after which a newer one is believed to be the app."""


class Role(Enum):
    """What a reading is used for."""

    COUNTER = "counter"
    START = "start"
    LEVEL = "level"


class SeriesUse(NamedTuple):
    """The use of one series. ``kind`` of the errors that it counts; ``requests``: whether it counts requests."""

    key: int
    role: Role
    kind: str | None = None
    requests: bool = False


Reading = tuple[SeriesUse, float]


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

    def rise(self, key: int, value: float, *, from_zero: bool) -> float | None:
        """The increment since the nearest lower earlier value; None if there is none.

        ``from_zero``: a series that is new has begun at zero; otherwise it counts nothing yet.
        """
        last = self.values.get(key)
        self.values[key] = value
        if last is None:
            return value if from_zero else 0.0
        if value >= last and key not in self.others:  # nearly always
            return value - last
        others = self.others.get(key, ())
        earlier = (last, *others)
        nearest = max((other for other in earlier if other <= value), default=None)
        if nearest is None:
            self.others[key] = earlier[: MOST_PROCESSES - 1]
            return None
        at = earlier.index(nearest)
        if others:
            self.others[key] = earlier[:at] + earlier[at + 1 :]
        return value - nearest

    def forget_all_but(self, keys: Iterable[int]) -> None:
        self.values = {key: self.values[key] for key in keys if key in self.values}
        self.others = {key: earlier for key, earlier in self.others.items() if key in self.values}
        self.is_doubtful = True


@dataclass(slots=True)
class _Tally:
    """The sums of one page."""

    errors: dict[str, float] = field(default_factory=dict)
    requests: float = 0.0
    series: int = 0
    unknown: int = 0

    def add(self, use: SeriesUse, rise: float) -> None:
        if use.requests:
            self.requests += rise
        if use.kind is not None:
            self.errors[use.kind] = self.errors.get(use.kind, 0.0) + rise


@dataclass(slots=True)
class AppIncarnation:
    """The newest start. It does not change when workers behind one port answer in turns.

    A replaced worker looks like a restarted app. So once an older process has answered after a newer one, a newer start
    counts only after ``SETTLED_PAGES`` pages without an answer of an older process.
    """

    start: float | None = None
    _has_workers: bool = False
    _newer: int = 0

    @property
    def app_start(self) -> str | None:
        """The start (Unix time in seconds) as text; None before one is known."""
        return None if self.start is None else repr(self.start)

    def see(self, start: float, *, is_born: bool) -> None:
        """Record that a process with this start has answered; ``is_born``: it began after the last scrape."""
        if self.start is None:
            self.start = start
        elif start <= self.start:
            self._has_workers = self._has_workers or self._newer > 0
            self._newer = 0
        else:
            self._newer += 1
            if (is_born and not self._has_workers) or self._newer >= SETTLED_PAGES:
                self.start, self._has_workers, self._newer = start, False, 0


class Counters:
    """Remembers the counters of one app; at most ``most_series`` values and those of one page."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._processes: dict[float | None, _Process] = {}
        self._at: float | None = None
        self._incarnation = AppIncarnation()

    def take(
        self, uses: Sequence[SeriesUse], values: Sequence[float], at: float, *, complete: bool = True
    ) -> Generator[None, None, Sample]:
        """The increments since the page before; ``at`` is the Unix time at which the scrape began.

        ``complete``: no selected series of the page is missing. The generator yields between slices, so that the loop
        can do other work, and must be run to its end.
        """
        start, levels = None, dict[int, float]()
        for part in _slices(uses, values):
            for use, value in part:
                if use.role is not Role.COUNTER and abs(value) <= MAX_COUNT:
                    if use.role is Role.LEVEL:
                        levels[use.key] = value
                    elif start is None or value < start:
                        start = value
            yield
        process, is_born, is_known = self._process(start)
        from_zero = is_born or (is_known and start is not None and process.is_whole and not process.is_doubtful)
        tally = _Tally()
        for part in _slices(uses, values):
            _count(part, process, tally, from_zero=from_zero)
            yield
        if start is not None:
            self._incarnation.see(start, is_born=is_born)
        process.is_whole = complete
        process.is_doubtful = process.is_doubtful or tally.unknown > 0
        if not is_known and not is_born and self._at is not None:
            tally.unknown = tally.series
        self._bound(process, uses)
        self._at = at
        return self._sample(tally, sum(levels.values()) if levels else None)

    def _process(self, start: float | None) -> tuple[_Process, bool, bool]:
        """The process, whether it began after the last scrape, and whether it was seen before."""
        if (start is None) is not (None in self._processes):
            self._processes.clear()  # it may be the same process, and would count twice
        is_known = start in self._processes
        process = self._processes.pop(start) if is_known else _Process()
        self._processes[start] = process
        is_new = start is not None and self._at is not None and start > self._at - TOLERANCE_S
        return process, is_new and not is_known, is_known

    def _bound(self, process: _Process, uses: Sequence[SeriesUse]) -> None:
        remembered = sum(len(each.values) for each in self._processes.values())
        for start in list(self._processes)[:-1]:
            if len(self._processes) <= MOST_PROCESSES and remembered <= self._most_series:
                return
            remembered -= len(self._processes.pop(start).values)
        if remembered > self._most_series:
            process.forget_all_but({use.key for use in uses})

    def _sample(self, tally: _Tally, in_flight: float | None) -> Sample:
        app_start = self._incarnation.app_start
        if tally.unknown:
            return Sample({}, 0, in_flight, app_start, tally.unknown)
        errors = {kind: count for kind, rise in tally.errors.items() if (count := _whole(rise))}
        return Sample(errors, _whole(tally.requests), in_flight, app_start)


def _whole(rise: float) -> int:
    return int(min(rise, MAX_COUNT))


def _slices(uses: Sequence[SeriesUse], values: Sequence[float]) -> Iterator[Iterable[Reading]]:
    for begin in range(0, len(uses), SLICE):
        yield zip(uses[begin : begin + SLICE], values[begin : begin + SLICE], strict=True)


def _count(part: Iterable[Reading], process: _Process, tally: _Tally, *, from_zero: bool) -> None:
    """Add the increments of these readings."""
    for use, value in part:
        if use.role is Role.COUNTER and 0 <= value <= MAX_COUNT:
            tally.series += 1
            rise = process.rise(use.key, value, from_zero=from_zero)
            if rise is None:
                tally.unknown += 1
            elif rise:
                tally.add(use, rise)
