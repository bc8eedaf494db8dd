"""The scenarios of the table, and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.simulation.day_outcome import DayOutcome
from sidecar.simulation.fleet_rules import FleetRules
from sidecar.simulation.incidents import Incident, Outage, Poison, Sick, Stuck, Wave
from sidecar.simulation.traffic import LOAD, RequestLoad
from sidecar.simulation.world import NOMAD, Scheduler, World

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


# -- the rows of the table ----------------------------------------------------------------------------------------

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


def outage(size: int, per_s: float, for_s: float = 600, name: str = "") -> Scenario:
    """``per_s`` errors a second in every container for ``for_s`` seconds."""
    over_s = 300 + for_s
    title = name or f"outage n={size} {per_s:g}/s"
    return Scenario(title, over_s + 600, (Outage(300, for_s, part=per_s),), size, _ONE)


def noise(size: int, stray: float) -> Scenario:
    """Random errors of healthy containers."""
    return Scenario(f"noise n={size} {100 * stray:g} %", 2 * HOUR_S, (), size, RequestLoad(stray=stray))


def after_repair(size: int) -> Scenario:
    """A third of the fleet is repaired by restarts, and a quarter of an hour after it got stuck all containers fail."""
    troubles = (Stuck(300, size // 3, part=_FAIL), Outage(1200, 600, part=1.0))
    return Scenario(f"repair, then outage n={size}", 2400, troubles, size, RequestLoad(2.0))


AFTER_REPAIRS: Final = (after_repair(12), after_repair(30), after_repair(100))
OUTAGES: Final = (outage(30, 1), outage(12, 0.2), outage(30, 0.3))
SICK: Final = Scenario("14 of 30 sick", 300 + 20 * MINUTE_S, (Sick(300, 14, part=_FAIL),), 30)
NOISES: Final = (*(noise(50, stray) for stray in (0.002, 0.005, 0.01, 0.02)), noise(4, 0.002))
SEVENTY: Final = Scenario("70 of 100 stuck", 300 + 2 * HOUR_S, (Stuck(300, 70, part=_FAIL),), 100)
LONG: Final = outage(100, 1, HOUR_S, "outage of 1 h n=100")
LONE: Final = Scenario("lone", HOUR_S, (Poison(600, part=_FAIL),), 50, _ONE)

SCENARIOS: Final = (DAY, *AFTER_REPAIRS, *OUTAGES, SICK, *NOISES, SEVENTY, LONG, LONE)
