"""The small fleet of the tests of lifetimes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fleet.day_outcome import DayOutcome
from fleet.incidents import Incident
from fleet.rules import OURS, FleetRules
from fleet.world import RESTARTING, World
from sidecar.core.fleet.fleet_settings import FleetSettings

OPEN: Final[list[World]] = []
"""Worlds that the test has not closed."""

HOUR_S: Final = 3600.0
FEW: Final = 12
SHORT_S: Final = HOUR_S
"""Its lifetime."""

PATIENCE_S: Final = 2 * SHORT_S

ASK_S: Final = 12.5
"""The longest wait after a refusal: a check interval, and a quarter of it as jitter."""

ON_THE_WAY_S: Final = 0.02
"""The longest delay of a beat and of a lease."""


def aging(
    slots: str, lifetime_s: float = SHORT_S, *, patience_s: float = 0.0, terms: FleetSettings = OURS.terms
) -> FleetRules:
    """The defaults with a lifetime and ``slots``: ``1``, or ``50p`` for 5 %. ``patience_s``: the longest lifetime."""
    policy = replace(OURS.policy, lifetime_s=lifetime_s, lifetime_max_s=patience_s, retire_slots=slots)
    return replace(OURS, name=f"{slots} slots", policy=policy, terms=terms)


YOUNG: Final = aging("1")
PATIENT: Final = aging("1", patience_s=PATIENCE_S)


def fleet(
    rules: FleetRules, *troubles: Incident, size: int = FEW, seed: int = 1, aged_s: float = 0.0, lost: int = 0
) -> World:
    """A fleet with restarts mostly in place, on a network with delays."""
    world = World(rules, size=size, seed=seed, aged_s=aged_s, lost=lost, scheduler=RESTARTING, has_delay=True)
    OPEN.append(world)
    for trouble in troubles:
        trouble.plan(world)
    return world


def played(
    rules: FleetRules,
    *troubles: Incident,
    until_s: float = 2 * HOUR_S,
    size: int = FEW,
    seed: int = 1,
    aged_s: float = 0.0,
    lost: int = 0,
) -> DayOutcome:
    """The outcome of a run of such a fleet."""
    world = fleet(rules, *troubles, size=size, seed=seed, aged_s=aged_s, lost=lost)
    world.run(until_s)
    outcome = DayOutcome.of(world)
    OPEN.pop().close()
    return outcome
