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
    """What a figure has to keep, in words and as a rule of its row."""

    text: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True)
class Row:
    """One figure: the sidecar's, the baseline's in the same run, and what was asked for, if anything was."""

    figure: str
    unit: str
    ours: float
    baseline: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """Ours in multiples of the baseline."""
        return self.ours / self.baseline if self.baseline else None

    @property
    def result(self) -> str:
        """``met`` or ``MISSED``; empty where there is no target."""
        if self.target is None:
            return ""
        return "met" if self.target.holds(self) else "**MISSED**"


def at_most(limit: float, unit: str) -> Target:
    """The sidecar's own figure is bounded."""
    return Target(f"<= {number(limit)} {unit}", lambda row: row.ours <= limit)


def below(limit: float, unit: str) -> Target:
    """The same, and the bound itself is too much."""
    return Target(f"< {number(limit)} {unit}", lambda row: row.ours < limit)


def at_least_of_baseline(share: float) -> Target:
    """For figures of which more is better."""
    return Target(f"ratio >= {number(share)}", lambda row: row.ratio is not None and row.ratio >= share)


def at_most_of_baseline(share: float) -> Target:
    """For figures of which less is better."""
    return Target(f"ratio <= {number(share)}", lambda row: row.ratio is not None and row.ratio <= share)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float]) -> str:
    """Median, and in brackets the least and the most."""
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """Three figures that matter, whole from 100 on, with thousands set apart."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def markdown(rows: Sequence[Row], reasons: Mapping[str, str]) -> str:
    """The table; ``reasons`` by figure are kept for what is still missed."""
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
    """The reasons that a person wrote into the table of this page, by figure."""
    found = {}
    for line in _between(page)[1].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == len(HEAD) and cells[-1] and cells[0] != HEAD[0] and set(cells[-1]) != {"-"}:
            found[cells[0]] = cells[-1]
    return found


def with_results(page: str, results: str) -> str:
    """The page with these results between its two markers; ValueError when it has not both."""
    before, _, after = _between(page)
    return f"{before}{BEGIN}\n{results}\n{END}{after}"


def _between(page: str) -> tuple[str, str, str]:
    before, begin, rest = page.partition(BEGIN)
    results, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs {BEGIN} and {END}")
    return before, results, after
