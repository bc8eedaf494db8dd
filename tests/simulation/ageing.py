"""Troubles of fleets whose containers have a lifetime: leaks, loads, holds, failed restarts and killed sidecars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from sidecar.core.types import State
from simulation.app import SimulatedApp
from simulation.world import World

_ON_THE_WAY: Final = (State.SUSPECT, State.RETIRING, State.DRAINING, State.DOWN)


@dataclass(frozen=True)
class Leak:
    """Every incarnation begins to fail at the age ``from_s``, or up to a quarter later, and fails more and more."""

    from_s: float
    steps: Sequence[tuple[float, float]] = ((0, 0.002), (600, 0.02), (1800, 0.2), (3600, 0.8))
    kind: str = "memory"
    name: str = "leak"

    def plan(self, world: World) -> None:
        """Plan it for every incarnation, also for later ones."""
        world.at_every_life(partial(self._ages, world))

    def _ages(self, world: World, app: SimulatedApp) -> None:
        chance = Random(f"{self.name}/{app.app_start}").random()
        onset_s = app.born + self.from_s * (1 + chance / 4)
        for after_s, part in self.steps:
            worsens = partial(world.worsen, app, app.life, part, self.kind, self.name)
            world.timeline.at(onset_s + after_s, worsens)


@dataclass(frozen=True)
class Mute:
    """``count`` containers get stuck without reporting an error, for example with wrong answers."""

    at_s: float
    count: int = 1
    part: float = 0.5
    name: str = "mute"

    def plan(self, world: World) -> None:
        """Plan it for each of them."""
        for place in world.places(self.name, self.count):
            world.timeline.at(self.at_s, partial(world.stick, place, self.part, "", self.name, mute=True))


@dataclass(frozen=True)
class Busy:
    """``count`` containers report the load ``load`` until ``until_s``, and 0 from then on."""

    count: int
    until_s: float
    load: float = 1.0
    name: str = "busy"

    def plan(self, world: World) -> None:
        """Set the load now, and plan its end."""
        for place in world.places(self.name, self.count):
            app = world.apps[place]
            app.load = self.load
            world.timeline.at(self.until_s, partial(setattr, app, "load", 0.0))


@dataclass(frozen=True)
class Freeze:
    """A person holds the whole service."""

    at_s: float
    for_s: float

    def plan(self, world: World) -> None:
        """Plan the hold; it ends by itself."""
        world.timeline.at(self.at_s, partial(self._hold, world))

    def _hold(self, world: World) -> None:
        world.timeline.begin(world.hold("ann", "migration", self.for_s))


@dataclass(frozen=True)
class NoRestarts:
    """The orchestrator restarts no container that goes down within this time."""

    at_s: float
    for_s: float

    def plan(self, world: World) -> None:
        """Plan beginning and end."""
        for when, is_deaf in ((self.at_s, True), (self.at_s + self.for_s, False)):
            for app in world.apps:
                world.timeline.at(when, partial(setattr, app, "deaf", is_deaf))


@dataclass(frozen=True)
class Kills:
    """``count`` sidecars are killed, one every ``every_s`` seconds, and restarted within ``for_s`` with their state.

    Every other one is the sidecar of a suspect, retiring, draining or down container, if there is one.
    """

    at_s: float
    count: int
    every_s: float
    for_s: float = 60.0
    name: str = "kills"

    def plan(self, world: World) -> None:
        """Plan each of them."""
        rng = Random(self.name)
        for turn in range(self.count):
            kill = partial(self._kill, world, rng, is_picked=turn % 2 == 0)
            world.timeline.at(self.at_s + turn * self.every_s, kill)

    def _kill(self, world: World, rng: Random, *, is_picked: bool) -> None:
        places = world.watched(_ON_THE_WAY) if is_picked else []
        world.kill(rng.choice(places or range(len(world.apps))), rng.uniform(0, self.for_s))
