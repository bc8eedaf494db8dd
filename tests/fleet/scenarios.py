"""Scenarios, and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fleet.day_outcome import DayOutcome
from fleet.incidents import Incident, Outage, Poison, Stuck, Wave
from fleet.rules import FleetRules
from fleet.traffic import LOAD, RequestLoad
from fleet.world import NOMAD, Scheduler, World

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Scenario:
    """Troubles, a duration and a fleet, whose containers were started together ``aged_s`` seconds before."""

    name: str
    for_s: float
    troubles: tuple[Incident, ...]
    size: int
    load: RequestLoad = LOAD
    scheduler: Scheduler = NOMAD
    aged_s: float = 0.0


def play(scenario: Scenario, rules: FleetRules, *, seed: int = 1, lost: int = 0) -> DayOutcome:
    """Run the scenario under these rules."""
    world = World(
        rules,
        size=scenario.size,
        seed=seed,
        lost=lost,
        aged_s=scenario.aged_s,
        load=scenario.load,
        scheduler=scenario.scheduler,
    )
    for trouble in scenario.troubles:
        trouble.plan(world)
    world.run(scenario.for_s)
    outcome = DayOutcome.of(world)
    world.close()
    return outcome


_ONE: Final = RequestLoad(1.0)
_FAIL: Final = 0.6

DAY: Final = Scenario(
    "day",
    12 * HOUR_S,
    (
        Poison(1800, count=8, until_s=41_000, part=_FAIL),
        Outage(12_000, 600, part=1.0),
        Stuck(24_000, 60, part=_FAIL),
        Wave(34_000, 300, 40, part=0.5),
    ),
    200,
)


def outage(size: int, per_s: float, for_s: float = 600) -> Scenario:
    """``per_s`` errors a second in every container for ``for_s`` seconds."""
    over_s = 300 + for_s
    return Scenario(f"outage n={size} {per_s:g}/s", over_s + 600, (Outage(300, for_s, part=per_s),), size, _ONE)


def noise(size: int, stray: float) -> Scenario:
    """Random errors of healthy containers."""
    return Scenario(f"noise n={size} {100 * stray:g} %", 2 * HOUR_S, (), size, RequestLoad(stray=stray))


SEVENTY: Final = Scenario("70 of 100 stuck", 300 + 2 * HOUR_S, (Stuck(300, 70, part=_FAIL),), 100)
LONE: Final = Scenario("lone", 15 * MINUTE_S, (Poison(300, part=_FAIL),), 20, _ONE)
