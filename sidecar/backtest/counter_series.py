"""Counts how much the counters of a fleet rose, by container and step, from the answers of Prometheus.

A counter that falls was started again, and counts from 0, as in ``increase`` of Prometheus. A rise across missing
samples has no time, so it does not count. The first value of a series counts only if its container was there before:
then the app made the series with its first error.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from operator import sub
from typing import Final, NamedTuple

from sidecar.backtest.json_matrix import Points, SeriesRun
from sidecar.backtest.past import LARGEST, Past, PastContainer, PastError, StepCounts
from sidecar.backtest.plausible_times import problem_with
from sidecar.config.selectors import Selector

MOST_SERIES: Final = 200_000
_SHOWN: Final = 5
"""Maximum number of names in a sentence about series that do not fit."""

_NO_COUNT: Final = "values that are no count (NaN, Inf or negative), left out"
_NOT_WHOLE: Final = "values that are not whole, cut off; a counter of errors is whole, a rate or a gauge is not"
_RESTART: Final = "counters that began again, each played as a restart in place"
_BACKWARDS: Final = "samples that go back in time, left out"
_IN_GAP: Final = "rises across missing samples, left out because nobody knows when they were"
_NEW: Final = "series that began while their instance was there; their first value counts"


class _Late(NamedTuple):
    """A value behind a gap, or the first one (``before`` None): what it counts depends on the other series."""

    step: int
    container: PastContainer
    counts: StepCounts
    value: int
    before: tuple[int, int] | None
    is_error: bool


@dataclass
class _Series:
    """One counter: what it counts for, and the step and value of its last sample."""

    container: PastContainer
    counts: StepCounts
    is_error: bool
    last: tuple[int, int] | None = None


class CounterSeries:
    """Reads series into a past. ``label`` names the container; only points from ``since_s`` to ``until_s`` count.

    Without ``step_s`` the usual distance of the first points is the step.
    """

    def __init__(
        self,
        source: str,
        errors: Sequence[Selector],
        requests: Sequence[Selector],
        *,
        label: str = "instance",
        since_s: float = 0.0,
        until_s: float = inf,
        step_s: float = 0.0,
    ) -> None:
        self.past = Past(source, step_s, has_requests=bool(requests))
        self._is_aligned = False
        self._selectors = (tuple(errors), tuple(requests))
        self._label = label
        self._since_s, self._until_s = since_s, until_s
        self._series: dict[tuple[frozenset[tuple[str, str]], bool], _Series] = {}
        self._known_words: Sequence[bytes] = ()
        self._known_times: Sequence[float] = ()
        self._known_steps: Sequence[int] = ()
        self._late: list[_Late] = []
        self._waiting: list[tuple[Sequence[float], Sequence[int | None], Sequence[_Series], str]] = []
        self._found = Counter[bool]()
        self._unfit: set[str] = set()

    def read(self, runs: Iterable[SeriesRun], place: str, *, only: bool | None = None) -> None:
        """Take the series of an answer; ``only``: those of errors (True) or of requests (False). Raises PastError.

        Further answers go on where the former ones ended.
        """
        for run in runs:
            roles = [role for role in (True, False) if only in (None, role)]
            taking = [one for role in roles if (one := self._taker(run.labels, place, is_error=role)) is not None]
            for points in run.points if taking else ():
                self._take(points, taking, place)

    def finish(self) -> Past:
        """The past. Raises PastError if a selector has found nothing."""
        if self._selectors[1] and not self._found[False]:
            raise PastError(f"{self.past.source}: no series fits --requests{self._others()}")
        if not self._found[True]:
            sentence = f"no series fits --errors{self._others()}"
            if not self._found[False]:
                raise PastError(f"{self.past.source}: {sentence}")
            self.past.unknowns.append(f"{sentence}: either there was no error, or the selector is not right.")
        if self._waiting:
            raise PastError(f"{self.past.source}: no series has two points: set --step")
        for container in self.past.containers.values():
            container.merge()
        for late in sorted(self._late, key=lambda one: one.step):
            self._settle(late)
        for container in self.past.containers.values():
            for step in sorted(container.restarts):
                self._note(_RESTART, container, step)
        self.past.finish()
        return self.past

    def _others(self) -> str:
        """What the series are that fit nothing."""
        if "" in self._unfit:
            return "; there are series without a name, as of rate() or sum by (): save the counters themselves"
        return f"; there is {', '.join(sorted(self._unfit))}" if self._unfit else ""

    # -- series ---------------------------------------------------------------------------------------------------

    def _taker(self, labels: dict[str, str], place: str, *, is_error: bool) -> _Series | None:
        name = labels.get("__name__", "")
        selectors = self._selectors[0 if is_error else 1]
        selector = next((one for one in selectors if one.name == name and one.matches(labels)), None)
        if selector is None:
            if len(self._unfit) < _SHOWN:
                self._unfit.add(name)
            return None
        key = (frozenset(labels.items()), is_error)
        known = self._series.get(key)
        if known is not None:
            return known
        instance = labels.get(self._label, "")
        if not instance:
            raise PastError(f"{place}: {name}: a series without the label {self._label!r}; set --instance-label")
        if len(self._series) >= MOST_SERIES:
            raise PastError(f"{place}: more than {MOST_SERIES:,} series fit --errors and --requests")
        container = self.past.container(instance)
        counts = self.past.errors(container, selector.kind_of(labels)) if is_error else container.requests
        self._found[is_error] += 1
        self._series[key] = series = _Series(container, counts, is_error)
        return series

    # -- points ---------------------------------------------------------------------------------------------------

    def _take(self, points: Points, taking: Sequence[_Series], place: str) -> None:
        """Count the points, or keep them until two in a row tell the step."""
        times = self._known_times
        if points.times != self._known_words:  # as a rule all series of an answer have the same
            times = _times(points.times, f"{place}: {taking[0].container.instance}")
            self._known_words, self._known_times, self._known_steps = points.times, times, ()
        values = _values(points.values)
        if not isinstance(values, array):
            self._note_fractions(points, taking[0])
        if not self._is_aligned:
            self._waiting.append((times, values, taking, place))
            if not self._align(times):
                return
            for waiting in self._waiting:
                self._place(*waiting)
            self._waiting.clear()
            return
        self._place(times, values, taking, place)

    def _note_fractions(self, points: Points, series: _Series) -> None:
        """Note the values that are not whole: of a rate or a gauge next to nothing would count."""
        found = [word for word in points.values if _is_fraction(word)]
        if found:
            container = series.container.instance
            self.past.notices.add(_NOT_WHOLE, f"{container}, {found[0].decode(errors='replace')}", len(found))

    def _align(self, times: Sequence[float]) -> bool:
        """Take the step and its offset from the first points, if there are enough."""
        past = self.past
        if not past.step_s:
            steps = Counter(one for one in map(sub, islice(times, 1, None), times) if one > 0)
            past.step_s = min(steps, key=lambda one: (-steps[one], one), default=0.0)
        if past.step_s:
            past.offset_s = self._waiting[0][0][0] % past.step_s
            self._is_aligned = True
        return self._is_aligned

    def _place(self, times: Sequence[float], values: Sequence[int | None], taking: Sequence[_Series], at: str) -> None:
        if times is not self._known_times or not self._known_steps:
            self._known_times, self._known_steps = times, self._steps(times, at)
        begin, end = 0, len(times)
        if times[0] < self._since_s or times[-1] > self._until_s:
            begin, end = bisect_left(times, self._since_s), bisect_right(times, self._until_s)
        if begin < end:
            for series in taking:
                self._count(series, self._known_steps[begin:end], values[begin:end])

    def _steps(self, times: Sequence[float], place: str) -> Sequence[int]:
        """The step of each time; a range if all follow each other. Raises PastError if the steps are too long."""
        step_s, first = self.past.step_s, self.past.step_of(times[0])
        distances = {*map(sub, islice(times, 1, None), times)}
        if distances <= {step_s}:
            return range(first, first + len(times))
        if any(0 < one < step_s / 2 for one in distances):
            raise PastError(f"{place}: has points closer to each other than the step of {step_s:g} s: set --step")
        return [self.past.step_of(time) for time in times]

    def _count(self, series: _Series, steps: Sequence[int], values: Sequence[int | None]) -> None:
        if isinstance(steps, range) and isinstance(values, array):
            self._point(series, steps[0], values[0])
            rises = list(map(sub, islice(values, 1, None), values))
            if series.last == (steps[0], values[0]) and (not rises or (min(rises) >= 0 and max(rises) <= LARGEST)):
                series.counts.add_run(steps[0] + 1, array("I", rises))
                series.container.see(steps[0], steps[-1])
                series.last = (steps[-1], values[-1])
                return
            steps, values = steps[1:], values[1:]
        for step, value in zip(steps, values, strict=True):
            self._point(series, step, value)

    def _point(self, series: _Series, step: int, value: int | None) -> None:
        container, last = series.container, series.last
        if value is None or value < 0:
            self._note(_NO_COUNT, container, step)
        elif last is not None and step <= last[0]:
            if step < last[0]:
                self._note(_BACKWARDS, container, step)
        else:
            container.see(step, step)
            series.last = (step, value)
            if last is None or step > last[0] + 1:
                self._late.append(_Late(step, container, series.counts, value, last, series.is_error))
                return
            if value < last[1]:
                container.restarts.add(step)
            series.counts.add(step, min(LARGEST, value - last[1] if value >= last[1] else value))

    # -- values behind a gap ----------------------------------------------------------------------------------------

    def _settle(self, late: _Late) -> None:
        """Count a value whose series began, or began again, at a known time; note one whose rise has no time."""
        step, container, counts, value, before, is_error = late
        if before is None:
            if value and any(first < step <= last + 1 for first, last in container.seen):
                self._note(_NEW, container, step)
                counts.add(step, min(LARGEST, value))
            return
        if any(before[0] < one <= step for one in container.restarts):
            counts.add(step, min(LARGEST, value))
        elif value < before[1]:
            container.restarts.add(step)
            self._note(_IN_GAP, container, step)
        elif value > before[1] and is_error:
            self._note(_IN_GAP, container, step)

    def _note(self, sentence: str, container: PastContainer, step: int) -> None:
        self.past.notices.add(sentence, f"{container.instance} at {self.past.clock(step)}")


def _whole(words: Sequence[bytes]) -> array[int]:
    """Whole numbers. Raises ValueError."""
    try:
        return array("q", map(int, words))
    except OverflowError:
        raise ValueError("too large") from None


def _values(words: Sequence[bytes]) -> Sequence[int | None]:
    """What was counted; None for a value that is no count."""
    try:
        return _whole(words)
    except ValueError:
        return [_count(word) for word in words]


def _times(words: Sequence[bytes], place: str) -> Sequence[float]:
    """Unix times. Raises PastError if one is no number, or no time at which anything can have been recorded."""
    try:
        times: Sequence[float] = _whole(words)
    except ValueError:
        try:
            times = [float(word) for word in words]
        except ValueError:
            raise PastError(f"{place}: a time that is no number") from None
    strange = next((time for time in times if not isfinite(time)), None)
    for time in (min(times), max(times)) if strange is None else (strange,):
        if problem := problem_with(time):
            raise PastError(f"{place}: {problem}")
    return times


def _is_fraction(word: bytes) -> bool:
    try:
        return float(word) % 1 > 0
    except ValueError:
        return False


def _count(word: bytes) -> int | None:
    """A whole number of what was counted; None if the value is none."""
    try:
        value = int(float(word))
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < 1 << 62 else None
