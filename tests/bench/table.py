"""Figures with their limits: the arithmetic, and the lines of the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

NOW: Final = "now"
BEFORE: Final = "before"


@dataclass(frozen=True)
class Limit:
    """The limit of a figure, in words and as a predicate of its row."""

    text: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True)
class Row:
    """One figure: its samples by checkout, those of a baseline in the same run, and its limit, if there is one."""

    figure: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    limit: Limit | None = None
    baseline: Sequence[float] = ()
    of: Callable[[Sequence[float]], float] = field(default=median)
    """What the figure is of its samples."""

    note: str = ""

    @property
    def now(self) -> float:
        """The figure of this checkout."""
        return self.of(self.samples[NOW])

    @property
    def ratio(self) -> float:
        """The figure of this checkout, divided by that of the baseline."""
        return self.now / self.of(self.baseline)

    @property
    def is_met(self) -> bool | None:
        """Whether the figure keeps to its limit; None without one."""
        return self.limit.holds(self) if self.limit else None

    def markdown(self, columns: Sequence[str]) -> str:
        """The line of the table; ``columns``: the checkouts."""
        cells = [self._cell(self.samples.get(column, ())) for column in columns]
        ratio = f", x {number(self.ratio)}" if self.baseline else ""
        result = {None: "", True: "met", False: "**MISSED**"}[self.is_met]
        limit = self.limit.text if self.limit else ""
        words = (f"{self.figure}, {self.unit}", self._cell(self.baseline), *cells)
        return f"| {' | '.join(words)}{ratio} | {limit} | {' '.join(filter(None, (result, self.note)))} |"

    def _cell(self, samples: Sequence[float]) -> str:
        if not samples:
            return ""
        spread = f" ({number(min(samples))} to {number(max(samples))})" if len(samples) > 1 else ""
        return number(self.of(samples)) + spread


def head(columns: Sequence[str]) -> str:
    """The first two lines of the table."""
    names = ("figure", "baseline", *columns, "limit", "result")
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


def at_most(limit: float) -> Limit:
    """An absolute limit."""
    return Limit(f"<= {number(limit)}", lambda row: row.now <= limit)


def at_most_of_baseline(share: float) -> Limit:
    """At most this part of the baseline."""
    return Limit(f"<= {number(share)} x", lambda row: row.ratio <= share)


def at_least_of_baseline(share: float) -> Limit:
    """At least this part of the baseline."""
    return Limit(f">= {number(share)} x", lambda row: row.ratio >= share)


def not_worse(tolerance: float = 1.05) -> Limit:
    """Not worse than before, with some tolerance for chance; met where nothing is beside this checkout."""

    def holds(row: Row) -> bool:
        return BEFORE not in row.samples or row.now <= tolerance * row.of(row.samples[BEFORE])

    return Limit("not more than before", holds)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return percentile(values, 99)


def number(value: float) -> str:
    """Three significant digits, with commas between thousands."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"
