"""Troubles of fleets whose containers have a lifetime: leaks, loads, holds, failed restarts and killed sidecars."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from fleet.world import World
from sidecar.core.types import State

_ON_THE_WAY: Final = (State.SUSPECT, State.RETIRING, State.DRAINING, State.DOWN)


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
            world.loop.plan(self.at_s, partial(world.stick, place, self.part, "", self.name, mute=True))


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
            world.loop.plan(self.until_s, partial(setattr, app, "load", 0.0))


@dataclass(frozen=True)
class Freeze:
    """A person holds the whole service."""

    at_s: float
    for_s: float

    def plan(self, world: World) -> None:
        """Plan the hold; it ends by itself."""
        world.loop.plan(self.at_s, partial(self._hold, world))

    def _hold(self, world: World) -> None:
        world.loop.create_task(world.hold("ann", "migration", self.for_s))


@dataclass(frozen=True)
class NoRestarts:
    """The orchestrator restarts no container that goes down within this time."""

    at_s: float
    for_s: float

    def plan(self, world: World) -> None:
        """Plan beginning and end."""
        for when, is_deaf in ((self.at_s, True), (self.at_s + self.for_s, False)):
            for app in world.apps:
                world.loop.plan(when, partial(setattr, app, "deaf", is_deaf))


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
            world.loop.plan(self.at_s + turn * self.every_s, kill)

    def _kill(self, world: World, rng: Random, *, is_picked: bool) -> None:
        places = world.watched(_ON_THE_WAY) if is_picked else []
        world.kill(rng.choice(places or range(len(world.apps))), rng.uniform(0, self.for_s))
