"""The series of one run as columns of a picture: few enough for a page, however long and large the run was.

The input is the JSON of ``simulate --json`` with its series. Times are seconds since the beginning of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, inf
from typing import Any, Final

COLUMNS: Final = 240
ROWS: Final = 200
"""Maximum number of columns and of rows of a picture."""

MINUTE_S: Final = 60
DAY_S: Final = 86_400

Steps = Sequence[Sequence[Any]]
"""Pairs of a time and the value from then on, ascending."""


def columns(duration_s: float, step_s: float) -> int:
    """The number of columns for a run with values each ``step_s`` seconds."""
    return max(1, min(COLUMNS, -int(-duration_s // step_s) if step_s > 0 else 1))


def in_window(errors: Steps, step_s: float, window_s: float) -> list[tuple[int, int]]:
    """The errors of each bucket together with those of the buckets before it, as far as the window reaches back."""
    reach = max(1, round(window_s / step_s))
    sums = Counter[int]()
    for bucket, number in errors:
        for later in range(reach):
            sums[bucket + later] += number
    return sorted(sums.items())


def peaks(errors: Steps, step_s: float, duration_s: float, count: int) -> list[int]:
    """The largest number of errors of a bucket in each of ``count`` columns; ``errors`` are pairs (bucket, errors)."""
    found = [0] * count
    for bucket, number in errors:
        column = min(count - 1, int(bucket * step_s / duration_s * count))
        found[column] = max(found[column], number)
    return found


def extremes(steps: Steps, first: float, duration_s: float, count: int, *, lowest: bool) -> list[float]:
    """The lowest or the largest value in each of ``count`` columns; ``first`` holds until the first step."""
    pick, found = (min, [inf] * count) if lowest else (max, [-inf] * count)
    for (at_s, value), (end_s, _) in pairwise([(0.0, first), *steps, (duration_s, first)]):
        begin, end = (each * count / duration_s for each in (at_s, end_s))
        for column in range(max(0, int(begin)), min(count, ceil(end))):
            found[column] = pick(found[column], value)
    return found


def merged(rows: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """At most ``most`` rows: neighbours become one row with the larger of their values."""
    group = -(-len(rows) // most) if rows else 1
    return [[max(values) for values in zip(*rows[at : at + group], strict=True)] for at in range(0, len(rows), group)]


def lowest_share(containers: Iterable[Mapping[str, Any]], fleet: int, duration_s: float, count: int) -> list[float]:
    """The weight of the whole fleet in each column, in percent of all its containers at full weight."""
    missing = [0.0] * count
    for one in containers:
        weights = extremes(one.get("weight") or [], 100.0, duration_s, count, lowest=True)
        for column, percent in enumerate(weights):
            missing[column] += 100.0 - percent
    return [max(0.0, 100.0 - each / max(1, fleet)) for each in missing]


def clock(at_s: float, start_unix: float | None, duration_s: float) -> str:
    """A time of the run: UTC if the run has a date, else since its beginning."""
    if start_unix is not None:
        at = datetime.fromtimestamp(start_unix + at_s, UTC)
        return f"{at:%m-%d %H:%M}" if duration_s > DAY_S else f"{at:%H:%M}"
    minutes, second = divmod(int(at_s), MINUTE_S)
    hour, minute = divmod(minutes, MINUTE_S)
    if duration_s > 2 * DAY_S:
        return f"day {hour // 24 + 1}, {hour % 24}:{minute:02}"
    return f"{hour}:{minute:02}" if duration_s >= 3 * MINUTE_S * MINUTE_S else f"{hour}:{minute:02}:{second:02}"
