"""Counts how much error counters rose, from answers of Prometheus to ``query_range``: over its API, or saved.

A counter that falls was started again, and counts from 0, as in ``increase`` of Prometheus. So does a series that
begins while its container is there: the app made it with its first error. A rise across missing samples has no time, so
it does not count. An answer is read as a whole, so its size is bounded.
(https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from sidecar.backtest.error_counts import PARTS, ErrorCounts, PastError, clock, time_problem
from sidecar.backtest.http_source import HttpSource
from sidecar.backtest.saved_file import opened
from sidecar.runlock import durations

LARGEST_ANSWER: Final = 32 << 20
"""Bytes of one answer; as objects they take about eight times as many."""

MOST_SERIES: Final = 100_000
POINTS: Final = 500
"""Points of a series in one query. 200 containers with five series each take 13 MB."""

QUERY_RANGE: Final = "/api/v1/query_range"
_IN_GAP: Final = "rises across missing samples, left out because nobody knows when they were"
_NO_NUMBER: Final = "values that are no number (NaN or Inf), left out"


@dataclass
class CounterRange:
    """Reads answers into ``counts``. ``label``: that of the container. Only ``since_s`` to ``until_s`` counts."""

    counts: ErrorCounts
    label: str = "instance"
    since_s: float = 0.0
    until_s: float = inf
    _last: dict[frozenset[tuple[str, str]], tuple[float, float]] = field(default_factory=dict)
    _begin_s: dict[str, float] = field(default_factory=dict)
    _near: Counter[bool] = field(default_factory=Counter)

    def read_files(self, paths: Sequence[Path]) -> None:
        """Count the errors of saved answers, in the order of time. Raises PastError with the file."""
        for path in paths:
            with opened(path) as file:
                self._take(_parsed(file.read, str(path)), str(path))
        self._check()

    def read_api(self, source: HttpSource, query: str) -> None:
        """Count the errors of the counters that ``query`` selects; both times must be set. Raises PastError."""
        step_s = self.counts.window_s / PARTS
        begin_s = self.since_s
        while begin_s <= self.until_s:
            end_s = min(self.until_s, begin_s + (POINTS - 1) * step_s)
            asked = {"query": query, "start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
            with source.open(QUERY_RANGE, asked) as read:
                self._take(_parsed(read, source.place), source.place)
            begin_s += POINTS * step_s
        self._check()

    def _check(self) -> None:
        if not self._last:
            raise PastError(f"{self.counts.source}: no series within the time of --since and --until")
        if self._near[False] > self._near[True]:
            window = durations.write(self.counts.window_s)
            raise PastError(f"{self.counts.source}: most points are further apart than the window of {window}")

    def _take(self, series: Sequence[Any], place: str) -> None:
        """Count the rises of these series."""
        try:
            for one in series:
                self._note_begin(one["metric"].get(self.label, ""), one["values"])
            for one in series:
                self._series(one["metric"], one["values"], place)
        except (LookupError, TypeError, AttributeError, ValueError):
            shape = '{"metric":{},"values":[[1700000000,"12"]]}'
            raise PastError(f"{place}: expected series such as {shape}") from None

    def _note_begin(self, instance: str, points: Sequence[Any]) -> None:
        """Note when the first series of a container began: those that begin later were made with the first error."""
        begin_s = next((at_s for time, _ in points if (at_s := float(time)) >= self.since_s), inf)
        self._begin_s[instance] = min(begin_s, self._begin_s.get(instance, inf))

    def _series(self, labels: dict[str, str], points: Sequence[Any], place: str) -> None:
        name, instance = labels.get("__name__", ""), labels.get(self.label, "")
        if not name:
            sentence = "a series without a name, as of rate() or sum by (): give the counters themselves"
            raise PastError(f"{place}: {sentence}")
        if not instance:
            raise PastError(f"{place}: {name}: a series without the label {self.label!r}: set --instance-label")
        key = frozenset(labels.items())
        last = self._last.get(key)
        if last is None and len(self._last) >= MOST_SERIES:
            raise PastError(f"{place}: more than {MOST_SERIES:,} series")
        for time, text in points:
            at_s, value = float(time), float(text)
            if problem := time_problem(at_s):
                raise PastError(f"{place}: {name} of {instance}: {problem}")
            if not isfinite(value):
                self.counts.notes[_NO_NUMBER] += 1
            elif value % 1 or value < 0:
                raise PastError(f"{place}: {name} of {instance}: {text} is no count: give a counter, no rate or gauge")
            elif self.since_s <= at_s <= self.until_s:
                self._point(instance, at_s, value, last, place)
                last = self._last[key] = at_s, value

    def _point(self, instance: str, at_s: float, value: float, last: tuple[float, float] | None, place: str) -> None:
        before_s, before = last or (at_s, value if at_s <= self._begin_s[instance] else 0.0)
        if at_s < before_s:
            sentence = "goes back in time: give the files in the order of time"
            raise PastError(f"{place}: {instance} at {clock(at_s)}: {sentence}")
        rise = value - before if value >= before else value
        is_known = at_s - before_s <= self.counts.window_s
        self._near[is_known] += 1
        if rise and not is_known:
            self.counts.notes[_IN_GAP] += 1
        self.counts.add(instance, at_s, int(rise) if is_known else 0)


def _parsed(read: Callable[[int], bytes], place: str) -> Sequence[Any]:
    """The series of an answer. Raises PastError."""
    pieces, size = [], 0
    while piece := read(1 << 20):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER:
            sentence = f"the answer has more than {LARGEST_ANSWER >> 20} MiB"
            raise PastError(f"{place}: {sentence}: take fewer series, or save it in several files")
    try:
        answer = json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise PastError(f"{place}: is not JSON: {str(error).lower()}") from None
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict):
        said = answer.get("error", "") if isinstance(answer, dict) else ""
        raise PastError(f"{place}: is no answer of Prometheus{f': {said}' if said else ''}")
    if data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise PastError(f"{place}: is a {data.get('resultType')}, not a matrix: it has to be an answer to query_range")
    found: Sequence[Any] = data["result"]
    return found
