"""Every world of a test ends with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fleet.rules import OURS, FleetRules
from fleet.scenarios import Scenario
from fleet.world import World

Begin = Callable[..., World]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Makes the fleet of a scenario, which a test lets run piece by piece."""
    worlds: list[World] = []

    def make(scenario: Scenario, rules: FleetRules = OURS, seed: int = 1) -> World:
        worlds.append(scenario.world(rules, seed))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
