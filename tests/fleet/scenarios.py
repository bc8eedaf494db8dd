"""Scenarios: incidents of a fleet, all planned before the run, and what comes of them under some rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import inf
from typing import Final, Protocol

from fleet.network import seeded
from fleet.outcome import Outcome
from fleet.rules import OURS, FleetRules
from fleet.traffic import LOAD, RequestLoad
from fleet.world import NOMAD, RESTARTING, Scheduler, World
from sidecar.core.types import State

_ON_THE_WAY: Final = (State.SUSPECT, State.RETIRING, State.DRAINING, State.DOWN)


class Incident(Protocol):
    """An incident of the fleet."""

    def plan(self, world: World) -> None:
        """Plan its events on the loop of the fleet."""


@dataclass(frozen=True)
class Stuck:
    """``count`` containers get stuck: at once, one every ``every_s`` seconds, or at random times until ``until_s``."""

    at_s: float
    count: int = 1
    part: float = 0.6
    kind: str = "database"
    name: str = "stuck"
    every_s: float = 0.0
    until_s: float = 0.0

    def plan(self, world: World) -> None:
        rng = seeded(f"{world.seed}/{self.name}/when")
        for turn, place in enumerate(world.places(self.name, self.count)):
            at_s = rng.uniform(self.at_s, self.until_s) if self.until_s else self.at_s + turn * self.every_s
            world.loop.plan(at_s, partial(world.stick, place, self.part, self.kind, self.name))


poison = partial(Stuck, name="poisoned", kind="connection")
"""Lone containers get stuck."""


@dataclass(frozen=True)
class Outage:
    """A dependency of all containers is down for ``for_s`` seconds; ``stuck`` of them stay stuck."""

    at_s: float
    for_s: float
    part: float = 1.0
    stuck: int = 0
    name: str = "blip"
    kind: str = "database"

    def plan(self, world: World) -> None:
        world.loop.plan(self.at_s, partial(world.fail_all, self.part, self.kind))
        Stuck(self.at_s, self.stuck, self.part, self.kind, self.name).plan(world)
        world.loop.plan(self.at_s + self.for_s, partial(world.fail_all, 0.0, ""))


@dataclass(frozen=True)
class Sick:
    """In ``count`` places containers fail for ``for_s`` seconds, before and after restarts."""

    at_s: float
    count: int
    for_s: float = inf
    part: float = 0.5
    kind: str = "timeout"
    name: str = "sick"

    def plan(self, world: World) -> None:
        for place in world.places(self.name, self.count):
            world.loop.plan(self.at_s, partial(world.flaw, place, self.part, self.kind))
            world.loop.plan(self.at_s + self.for_s, partial(world.flaw, place, 0.0, ""))


@dataclass(frozen=True)
class Held:
    """A person holds the whole service."""

    at_s: float
    for_s: float

    def plan(self, world: World) -> None:
        """Plan the hold; it ends by itself."""
        world.hold(self.at_s, self.for_s)


@dataclass(frozen=True)
class NoRestarts:
    """The scheduler restarts no container that goes down before ``until_s``."""

    until_s: float

    def plan(self, world: World) -> None:
        self._set(world, is_deaf=True)
        world.loop.plan(self.until_s, partial(self._set, world, is_deaf=False))

    def _set(self, world: World, *, is_deaf: bool) -> None:
        for app in world.apps:
            app.deaf = is_deaf


@dataclass(frozen=True)
class Kills:
    """``count`` sidecars are killed, one every ``every_s`` seconds, and restarted within a minute with their state.

    Every other one is the sidecar of a suspect, retiring, draining or down container, if there is one.
    """

    count: int
    every_s: float

    def plan(self, world: World) -> None:
        rng = seeded("kills")

        def kill(turn: int) -> None:
            places = world.watched(_ON_THE_WAY) if turn % 2 == 0 else []
            world.kill(rng.choice(places or range(len(world.apps))), rng.uniform(0, 60))

        for turn in range(self.count):
            world.loop.plan(turn * self.every_s, partial(kill, turn))


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
        poison(600, count=8, until_s=14_000),
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
        poison(200, count=2, until_s=2200),
        Outage(400, 150),
        Stuck(1000, 14),
        Sick(2000, 6, for_s=150, name="wave"),
    ),
)
"""What is in ``DAY``, in forty minutes of 30 containers."""
