"""Counters to increments: what one page counts more than the last one, never more than what has happened.

It knows neither pages nor clocks: readings and the time of the scrape come in, a ``Sample`` goes out. The rules:

- The first page counts nothing, and neither does the first one of a process that was there before the last scrape.
- A process is known by its start. One that is born since the last scrape counts from zero and is a new incarnation;
  several that answer in turn (workers behind one port) are compared with themselves.
- Where nothing tells processes apart, a counter that went back is unknown: its page counts nothing, and from then on
  a value is compared with the nearest one below it that was seen.
- A series that is born counts from zero when the same process was seen without it, or when its ``_created`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from sidecar.core.types import Sample
from sidecar.inputs.process_starts import Incarnation

MOST_SERIES: Final = 20_000
MOST_LIVES: Final = 8
"""Processes behind one port that are told apart; also values of one series, where nothing else tells."""

TOLERANCE_S: Final = 1.0
"""A start is computed from the boot time in whole seconds: it may seem that much too early."""

SLICE: Final = 500
_MOST_RESTS: Final = 1000
_TINY: Final = 1e-9


class Role(Enum):
    """What a reading is to us."""

    COUNTER = "counter"
    CREATED = "created"
    START = "start"
    LEVEL = "level"
    LOAD = "load"
    BOTH = "both"
    """A level that is the load as well."""


class Use(NamedTuple):
    """One series of the page: ``key`` is the counter's, in its ``_created`` too; ``kind`` of the errors it counts."""

    key: int
    role: Role
    kind: str | None = None
    requests: bool = False


Reading = tuple[Use, float]
Taking = Generator[None, None, Sample]


@dataclass(slots=True)
class _Page:
    """The readings of a page in two columns, and what it says beside its counters."""

    uses: Sequence[Use]
    values: Sequence[float]
    created: dict[int, float] = field(default_factory=dict)
    levels: dict[int, float] = field(default_factory=dict)
    loads: dict[int, float] = field(default_factory=dict)
    start: float | None = None

    @property
    def in_flight(self) -> float | None:
        return sum(self.levels.values()) if self.levels else None

    @property
    def load(self) -> float | None:
        load = sum(self.loads.values()) if self.loads else math.nan
        return load if 0 <= load < math.inf else None

    def slices(self) -> Iterator[Iterable[Reading]]:
        for begin in range(0, len(self.uses), SLICE):
            yield zip(self.uses[begin : begin + SLICE], self.values[begin : begin + SLICE], strict=True)

    def look(self) -> Generator[None, None, None]:
        """Find what is no counter."""
        for part in self.slices():
            for use, value in part:
                if use.role is not Role.COUNTER and math.isfinite(value):
                    self._add(use, value)
            yield

    def _add(self, use: Use, value: float) -> None:
        if use.role is Role.CREATED:
            self.created[use.key] = value
        elif use.role in _LEVELS:
            for readings in _LEVELS[use.role](self):
                readings[use.key] = value
        elif self.start is None or value < self.start:
            self.start = value


_LEVELS: Final[Mapping[Role, Callable[[_Page], tuple[dict[int, float], ...]]]] = {
    Role.LEVEL: lambda page: (page.levels,),
    Role.LOAD: lambda page: (page.loads,),
    Role.BOTH: lambda page: (page.levels, page.loads),
}
"""Where a reading that is no counter belongs."""


@dataclass(slots=True)
class _Life:
    """What was last seen of one process.

    ``others``: more values of series that have gone back, newest first. ``whole``: the last page was. ``doubtful``:
    a series that seems new may be one that was forgotten, or another worker's with the same start.
    """

    values: dict[int, float] = field(default_factory=dict)
    others: dict[int, tuple[float, ...]] = field(default_factory=dict)
    whole: bool = False
    doubtful: bool = False

    def rise(self, key: int, value: float) -> float | None:
        """From the nearest value below that was seen; None when there is none."""
        last = self.values[key]
        others = self.others.get(key, ())
        self.values[key] = value
        if not others and value >= last:
            return value - last
        seen = (last, *others)
        nearest = max((other for other in seen if other <= value), default=None)
        if nearest is None:
            self.others[key] = seen[: MOST_LIVES - 1]
            return None
        at = seen.index(nearest)
        self.others[key] = seen[:at] + seen[at + 1 :]
        return value - nearest

    def restart(self, key: int, value: float) -> None:
        """The series began anew, in this process or in another one."""
        self.others[key] = (self.values[key], *self.others.get(key, ()))[: MOST_LIVES - 1]
        self.values[key] = value

    def forget_all_but(self, keys: Iterable[int]) -> None:
        self.values = {key: self.values[key] for key in keys if key in self.values}
        self.others = {key: seen for key, seen in self.others.items() if key in self.values}
        self.doubtful = True


@dataclass(slots=True)
class _Tally:
    """The sums of one page."""

    errors: dict[str, float] = field(default_factory=dict)
    requests: float = 0.0
    series: int = 0
    unknown: int = 0
    restarted: bool = False

    def add(self, use: Use, rise: float) -> None:
        if use.requests:
            self.requests += rise
        if use.kind is not None:
            self.errors[use.kind] = self.errors.get(use.kind, 0.0) + rise


class Counters:
    """Remembers what the pages of one app have counted; at most ``most_series`` values and those of one page."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._lives: dict[float | None, _Life] = {}
        self._at: float | None = None
        self._incarnation = Incarnation()
        self._rests: dict[str | None, float] = {}

    def taking(self, uses: Sequence[Use], values: Sequence[float], at: float, *, complete: bool = True) -> Taking:
        """What these readings count more than those before, scraped at the Unix time ``at`` (begin of the scrape).

        ``complete``: no wanted series of the page is missing in them. It comes in slices, for who must not work for
        long without a pause, and has to be run to its end.
        """
        page = _Page(uses, values)
        yield from page.look()
        life, born, known = self._life(page.start)
        from_zero = born or (known and page.start is not None and life.whole and not life.doubtful)
        tally = yield from self._counted(page, life, from_zero=from_zero)
        self._see(page, tally, born=born)
        life.whole = complete
        life.doubtful = life.doubtful or tally.unknown > 0
        if not known and not born and self._at is not None:
            tally.unknown = tally.series
        self._bound(life, page)
        self._at = at
        return self._sample(page, tally)

    def _life(self, start: float | None) -> tuple[_Life, bool, bool]:
        """The memory of this process, whether it is born since the last scrape, and whether it was seen before."""
        if (start is None) is not (None in self._lives):
            self._lives.clear()  # the same process may be meant: what it counts would be counted twice
        known = start in self._lives
        life = self._lives.pop(start) if known else _Life()
        self._lives[start] = life
        return life, start is not None and not known and self._is_new(start), known

    def _is_new(self, start: float) -> bool:
        return self._at is not None and start > self._at - TOLERANCE_S

    def _counted(self, page: _Page, life: _Life, *, from_zero: bool) -> Generator[None, None, _Tally]:
        tally, seen = _Tally(), life.values.get
        for part in page.slices():
            for use, value in part:
                if use.role is Role.COUNTER and 0 <= value < math.inf:
                    tally.series += 1
                    if seen(use.key) != value:
                        self._count(tally, life, (use, value), page.created.get(use.key), from_zero=from_zero)
            yield
        return tally

    def _count(self, tally: _Tally, life: _Life, reading: Reading, created: float | None, *, from_zero: bool) -> None:
        use, value = reading
        is_new = created is not None and self._is_new(created)
        if use.key not in life.values:
            life.values[use.key] = value
            if from_zero or is_new:
                tally.add(use, value)
        elif is_new and value < life.values[use.key]:
            life.restart(use.key, value)
            tally.restarted = True
            tally.add(use, value)
        elif (rise := life.rise(use.key, value)) is None:
            tally.unknown += 1
        else:
            tally.add(use, rise)

    def _see(self, page: _Page, tally: _Tally, *, born: bool) -> None:
        """Which incarnation it is, by the start of the process, else by series that all were created anew."""
        if page.start is not None:
            self._incarnation.see(page.start, born=born)
        elif tally.restarted and self._is_new(oldest := min(page.created.values())):
            self._incarnation.begin(oldest)

    def _bound(self, life: _Life, page: _Page) -> None:
        held = sum(len(each.values) for each in self._lives.values())
        for start in list(self._lives)[:-1]:
            if len(self._lives) <= MOST_LIVES and held <= self._most_series:
                return
            held -= len(self._lives.pop(start).values)
        if held > self._most_series:
            life.forget_all_but({use.key for use in page.uses})

    def _sample(self, page: _Page, tally: _Tally) -> Sample:
        app_start = self._incarnation.app_start
        if tally.unknown:
            return Sample({}, 0, page.in_flight, app_start, tally.unknown, page.load)
        whole = {kind: self._whole(kind, rise) for kind, rise in tally.errors.items()}
        errors = {kind: count for kind, count in whole.items() if count}
        return Sample(errors, self._whole(None, tally.requests), page.in_flight, app_start, load=page.load)

    def _whole(self, kind: str | None, rise: float) -> int:
        """The whole errors in a sum; the rest is kept for the next time."""
        total = rise + self._rests.pop(kind, 0.0)
        whole = math.floor(total + _TINY)
        if total - whole > _TINY and len(self._rests) < _MOST_RESTS:
            self._rests[kind] = total - whole
        return whole
