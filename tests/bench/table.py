"""Figures against their baselines and targets: the arithmetic, and the markdown table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

BEGIN: Final = "<!-- results: begin -->"
END: Final = "<!-- results: end -->"
HEAD: Final = ("figure", "sidecar", "baseline", "ratio", "target", "result", "reason of a miss")


@dataclass(frozen=True)
class Target:
    """The target of a figure, as text and as a predicate of its row."""

    text: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True)
class Row:
    """One figure of the sidecar, that of the baseline in the same run, and the target, if there is one."""

    figure: str
    unit: str
    ours: float
    baseline: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """The figure divided by the baseline."""
        return self.ours / self.baseline if self.baseline else None

    @property
    def result(self) -> str:
        """``met`` or ``MISSED``; empty where there is no target."""
        if self.target is None:
            return ""
        return "met" if self.target.holds(self) else "**MISSED**"


def at_most(limit: float, unit: str) -> Target:
    """An upper bound of the figure."""
    return Target(f"<= {number(limit)} {unit}", lambda row: row.ours <= limit)


def below(limit: float, unit: str) -> Target:
    """An upper bound that must not be reached."""
    return Target(f"< {number(limit)} {unit}", lambda row: row.ours < limit)


def at_least_of_baseline(share: float) -> Target:
    """A lower bound of the ratio."""
    return Target(f"ratio >= {number(share)}", lambda row: row.ratio is not None and row.ratio >= share)


def at_most_of_baseline(share: float) -> Target:
    """An upper bound of the ratio."""
    return Target(f"ratio <= {number(share)}", lambda row: row.ratio is not None and row.ratio <= share)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float]) -> str:
    """The median, with minimum and maximum in brackets."""
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """Three significant digits, no decimals from 100 on, and commas between thousands."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def markdown(rows: Sequence[Row], reasons: Mapping[str, str]) -> str:
    """The table; ``reasons`` by figure stay while the figure is missed."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    for row in rows:
        missed = "MISSED" in row.result
        lines.append(_line([*_cells(row), reasons.get(row.figure, "") if missed else ""]))
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    return [
        row.figure,
        f"{number(row.ours)} {row.unit}",
        "" if row.baseline is None else f"{number(row.baseline)} {row.unit}",
        "" if row.ratio is None else number(row.ratio),
        row.target.text if row.target else "",
        row.result,
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def reasons(page: str) -> dict[str, str]:
    """The reasons in the table of this page, by figure."""
    found = {}
    for line in _between(page)[1].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == len(HEAD) and cells[-1] and cells[0] != HEAD[0] and set(cells[-1]) != {"-"}:
            found[cells[0]] = cells[-1]
    return found


def with_results(page: str, results: str) -> str:
    """The page with these results between its two markers; ValueError without them."""
    before, _, after = _between(page)
    return f"{before}{BEGIN}\n{results}\n{END}{after}"


def _between(page: str) -> tuple[str, str, str]:
    before, begin, rest = page.partition(BEGIN)
    results, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs {BEGIN} and {END}")
    return before, results, after
