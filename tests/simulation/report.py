"""Outcomes side by side, as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from simulation.rules import OURS
from simulation.scenarios import Outcome, Scenario

Figure = Callable[[Scenario, Outcome], str]
AVOIDABLE: Final = "of them avoidable"


def most_within(times: Sequence[float], window_s: float) -> int:
    """The most of these instants, in ascending order, that any closed window of so many seconds holds."""
    most, first = 0, 0
    for last, when in enumerate(times):
        while when - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def duration(seconds: float) -> str:
    """``45 s``, ``12.5 min`` or ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _recovery(scenario: Scenario, outcome: Outcome) -> str:
    """From the beginning of what left containers stuck at once to the last of them being down."""
    blip = next((trouble for trouble in scenario.troubles if getattr(trouble, "stuck", 0)), None)
    if blip is None:
        return ""
    at_s, name = float(getattr(blip, "at_s", 0.0)), str(getattr(blip, "name", ""))
    return duration(outcome.recovered[name] - at_s) if name in outcome.recovered else "never"


def _ages(scenario: Scenario, outcome: Outcome, *, is_busy: bool) -> str:
    """From the least to the greatest age at which one of these went."""
    if not _knows_ages(scenario):
        return ""
    ages = [one.age_s / 3600 for one in outcome.retirements if (one.load > 0) is is_busy]
    return f"{min(ages):.1f} - {max(ages):.1f} h" if ages else ""


def _knows_ages(scenario: Scenario) -> bool:
    return any(one.policy.lifetime_s for one in scenario.ways)


FIGURES: Final[Mapping[str, Figure]] = {
    "failed requests": lambda _, outcome: f"{outcome.failed:,.0f}",
    AVOIDABLE: lambda _, outcome: f"{outcome.avoidable:,.0f}",
    "culls": lambda _, outcome: f"{len(outcome.culls):,}",
    "of them not stuck": lambda _, outcome: f"{len(outcome.vain):,}",
    "most tokens in ten minutes": lambda _, outcome: str(most_within(outcome.grants, 600)),
    "recovery from the blip": _recovery,
    "retirements": lambda _, outcome: f"{len(outcome.retirements):,}" if outcome.renewal_s else "",
    "most away for their age": lambda _, outcome: str(outcome.most_retired) if outcome.renewal_s else "",
    "retiring all by the numbers": lambda _, outcome: duration(outcome.renewal_s) if outcome.renewal_s else "",
    "idle ones retired at age": lambda scenario, outcome: _ages(scenario, outcome, is_busy=False),
    "busy ones retired at age": lambda scenario, outcome: _ages(scenario, outcome, is_busy=True),
    "greatest age": lambda scenario, outcome: duration(outcome.oldest_s) if _knows_ages(scenario) else "",
    "most requests/s to one": lambda _, outcome: f"{outcome.most_load:.0f}",
    "stuck at the end": lambda _, outcome: str(outcome.stuck),
}


def table(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """The figures of one scenario, a column for each way to run the fleet; lines without a figure are left out."""
    rows = [[name, *(figure(scenario, one) for one in outcomes)] for name, figure in FIGURES.items()]
    rows.insert(1 + list(FIGURES).index(AVOIDABLE), ["as a part of ours", *_parts(outcomes)])
    rows = [row for row in rows if any(row[1:])]
    head = [f"{scenario.name}, {duration(scenario.for_s)}", *(one.rules for one in outcomes)]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    rule = [f"{'':-<{widths[0]}}", *(f"{'':-<{width - 1}}:" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(_cells(row, widths))} |" for row in [head, rule, *rows])


def _parts(outcomes: Sequence[Outcome]) -> list[str]:
    """What is avoidable under each of the rules, where ours without weights have 1."""
    ours = sum(one.avoidable for one in outcomes if one.rules == OURS.name)
    return [f"{one.avoidable / ours:.3f}" if ours else "" for one in outcomes]


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
