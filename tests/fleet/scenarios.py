"""Scenarios, and what comes of them under some rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from fleet.incidents import Incident, Outage, Poison, Sick, Stuck
from fleet.outcome import Outcome
from fleet.rules import OURS, FleetRules
from fleet.traffic import LOAD, RequestLoad
from fleet.world import NOMAD, RESTARTING, Scheduler, World

HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Scenario:
    """Troubles of a fleet for a time. The containers were started together ``aged_s`` seconds before."""

    for_s: float
    size: int
    troubles: tuple[Incident, ...] = ()
    load: RequestLoad = LOAD
    scheduler: Scheduler = NOMAD
    aged_s: float = 0.0
    lost: int = 0
    has_delay: bool = False

    def world(self, rules: FleetRules = OURS, seed: int = 1) -> World:
        """Its fleet, at the beginning."""
        world = World(
            rules,
            size=self.size,
            seed=seed,
            lost=self.lost,
            aged_s=self.aged_s,
            load=self.load,
            scheduler=self.scheduler,
            has_delay=self.has_delay,
        )
        for trouble in self.troubles:
            trouble.plan(world)
        return world


@cache
def play(scenario: Scenario, rules: FleetRules = OURS, seed: int = 1) -> Outcome:
    """Run the scenario under these rules. The same arguments give the same outcome."""
    world = scenario.world(rules, seed)
    try:
        return world.run(scenario.for_s)
    finally:
        world.close()


def restarting(for_s: float, *troubles: Incident, size: int = 12, aged_s: float = 0.0, lost: int = 0) -> Scenario:
    """A fleet with restarts mostly in place, on a network with delays."""
    return Scenario(for_s, size, troubles, scheduler=RESTARTING, aged_s=aged_s, lost=lost, has_delay=True)


DAY: Final = Scenario(
    4 * HOUR_S,
    200,
    (
        Poison(600, count=8, until_s=14_000),
        Outage(2400, 600),
        Stuck(8400, 60),
        Sick(12_600, 40, for_s=300, name="wave"),
    ),
)
"""A day of 200 containers without its quiet hours: some get stuck, an outage, 60 stuck at once, a wave that passes.

Between two of these a cause is forgotten, as in twelve hours.
"""

SHORT_DAY: Final = Scenario(
    2400,
    30,
    (
        Poison(200, count=2, until_s=2200),
        Outage(400, 150),
        Stuck(1000, 14),
        Sick(2000, 6, for_s=150, name="wave"),
    ),
)
"""What is in ``DAY``, in forty minutes of 30 containers."""
