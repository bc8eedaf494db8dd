"""The table of outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sidecar.simulation.day_outcome import DayOutcome
from sidecar.simulation.fleet_rules import FleetRules
from simulation.scenarios import AFTER_REPAIRS, DAY, LONE, LONG, NOISES, OUTAGES, SEVENTY, SICK, Scenario

Figure = Callable[[DayOutcome], str]


class Row(NamedTuple):
    """One figure of one scenario, with its limit for the defaults."""

    scenario: Scenario
    words: str
    figure: Figure
    goal: str = ""


def _culls(outcome: DayOutcome) -> str:
    return f"{len(outcome.culls):,}"


def _in_outage(outcome: DayOutcome) -> str:
    during, all_of_them = len(outcome.in_outage), len(outcome.culls)
    return str(during) if during == all_of_them else f"{during} ({all_of_them} in all)"


def _during(outcome: DayOutcome) -> str:
    return str(len(outcome.in_outage))


def _avoidable(outcome: DayOutcome) -> str:
    return f"{outcome.avoidable:,.0f}"


def _vain(outcome: DayOutcome) -> str:
    return f"{len(outcome.culls) - outcome.needs['stuck']:,}"


def _healed(outcome: DayOutcome) -> str:
    by_tokens = outcome.needs["stuck"]
    at_s = max((cull.at_s for cull in outcome.culls if cull.stuck_by), default=0.0)
    if outcome.stuck:
        return f"{by_tokens}, {outcome.stuck} still stuck"
    by_hand = f", {len(outcome.visits)} visits of an engineer" if outcome.visits else ""
    return f"{by_tokens} in {duration(at_s - 300)}{by_hand}"


ROWS: Final = (
    Row(DAY, "a day: avoidable failed requests", _avoidable, "<= 75,000"),
    Row(DAY, "the same day: culls of healthy containers", _vain, "<= 6"),
    *(Row(one, f"{one.name}: culls while it lasts", _during, "<= 1") for one in AFTER_REPAIRS),
    *(Row(one, f"{one.name}, 10 min: culls while it lasts", _in_outage, "<= 1 per cause and pause") for one in OUTAGES),
    Row(SICK, "14 of 30 sick, restarts do not help: culls in 20 min", _culls, "<= 1 per cause and pause"),
    *(Row(one, f"{one.name}, 2 h: culls", _culls, "0" if one.load.stray < 0.01 else "<= 4") for one in NOISES),
    Row(SEVENTY, "70 of 100 stuck, restarts help: avoidable failed requests in 2 h", _avoidable),
    Row(SEVENTY, "the same: culls of stuck containers, until the last of them", _healed, "70"),
    Row(LONG, "outage for all of 1 h, n=100: culls", _in_outage, "<= 1 per cause and pause"),
    Row(LONE, "one lone sick container at 1 rq/s: failed requests until it is culled", _avoidable),
)


def duration(seconds: float) -> str:
    """``45 s``, ``12.5 min`` or ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def head(policies: Sequence[FleetRules]) -> str:
    """The first two lines of the table."""
    names = ["scenario", *(one.name for one in policies), "limit of the defaults"]
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


def lines(scenario: Scenario, outcomes: Sequence[DayOutcome]) -> str:
    """The lines of one scenario, with a column for each policy."""
    rows = [row for row in ROWS if row.scenario == scenario]
    return "\n".join(f"| {row.words} | {' | '.join(map(row.figure, outcomes))} | {row.goal} |" for row in rows)
