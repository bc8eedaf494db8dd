"""Reads the past of a fleet from Prometheus: over its API in parts, or from saved answers of ``query_range``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from sidecar.backtest import json_matrix
from sidecar.backtest.counter_series import CounterSeries
from sidecar.backtest.http_source import HttpSource
from sidecar.backtest.json_matrix import MatrixError
from sidecar.backtest.past import Past, PastError
from sidecar.backtest.saved_file import SavedFile
from sidecar.config.selectors import Selector

MOST_POINTS: Final = 5_000
"""Points of a series in one query. Prometheus allows 11,000, and 50 million of all series together."""

QUERY_RANGE: Final = "/api/v1/query_range"
LOOKBACK: Final = "Prometheus repeats a value for up to five minutes where it has none: shorter gaps may not be seen."


@dataclass(frozen=True)
class PastCounters:
    """What to read: selectors of error and request counters, the label of the instance, and the time (Unix seconds).

    ``step_s``: distance of the points in seconds; 0: as the saved points are.
    """

    errors: tuple[Selector, ...]
    requests: tuple[Selector, ...] = ()
    label: str = "instance"
    since_s: float = 0.0
    until_s: float = inf
    step_s: float = 0.0

    def series(self, source: str) -> CounterSeries:
        """An empty reader of their series."""
        return CounterSeries(
            source,
            self.errors,
            self.requests,
            label=self.label,
            since_s=self.since_s,
            until_s=self.until_s,
            step_s=self.step_s,
        )


def read_api(
    source: HttpSource, counters: PastCounters, on_progress: Callable[[float], None] = lambda _part: None
) -> Past:
    """The past from a running Prometheus; ``on_progress`` gets the part that is read. Raises PastError."""
    series = counters.series(source.place)
    step_s, begin_s = counters.step_s, counters.since_s
    while begin_s <= counters.until_s:
        end_s = min(counters.until_s, begin_s + (MOST_POINTS - 1) * step_s)
        time = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        for is_error, selectors in ((True, counters.errors), (False, counters.requests)):
            for selector in selectors:
                with source.open(QUERY_RANGE, {"query": promql(selector), **time}) as read:
                    _read(series, read, source.place, only=is_error)
        begin_s += MOST_POINTS * step_s
        on_progress((end_s - counters.since_s) / max(step_s, counters.until_s - counters.since_s))
    series.past.unknowns.append(LOOKBACK)
    return series.finish()


def read_files(
    paths: Sequence[Path], counters: PastCounters, on_bytes: Callable[[int], None] = lambda _n: None
) -> Past:
    """The past from saved answers, in the order of time; ``on_bytes`` gets the number of bytes read. Raises PastError.

    A file may have several answers, and may be compressed with gzip.
    """
    series = counters.series(str(paths[0]) if len(paths) == 1 else f"{len(paths)} files")
    for path in paths:
        with SavedFile(path, on_bytes) as file:
            _read(series, file.read, str(path))
    return series.finish()


def promql(selector: Selector) -> str:
    """The selector as Prometheus reads it."""
    names = [("__name__", "=", selector.name), *((one.label, one.operator, one.value) for one in selector.matchers)]
    return "{" + ",".join(f"{_label(name)}{operator}{_quoted(value)}" for name, operator, value in names) + "}"


def _label(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _read(series: CounterSeries, read: Callable[[int], bytes], place: str, *, only: bool | None = None) -> None:
    try:
        series.read(json_matrix.series(read), place, only=only)
    except MatrixError as error:
        raise PastError(f"{place}: {error}") from None
