"""Incidents of a fleet. All of them are planned before the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol

from fleet.app import App
from fleet.loop import seeded
from fleet.world import World

FLAP_BAD_S: Final = (30.0, 90.0)
FLAP_GOOD_S: Final = (60.0, 240.0)
FLAP_PART: Final = (0.001, 0.01)
"""The part of failing requests. Of twenty a second, 1.2 to 12 fail a minute: on both sides of the limit."""


class Incident(Protocol):
    """An incident of the fleet."""

    def plan(self, world: World) -> None:
        """Plan its events on the loop of the fleet."""


@dataclass(frozen=True)
class Poison:
    """Lone containers get stuck: one every ``every_s`` seconds, or at random times until ``until_s``."""

    at_s: float
    count: int = 1
    every_s: float = 0.0
    part: float = 0.8
    until_s: float = 0.0
    name: str = "poisoned"
    kind: str = "connection"

    def plan(self, world: World) -> None:
        """Plan each of them."""
        rng = seeded(f"{world.seed}/{self.name}/when")
        for turn, place in enumerate(world.places(self.name, self.count)):
            at_s = rng.uniform(self.at_s, self.until_s) if self.until_s else self.at_s + turn * self.every_s
            world.loop.plan(at_s, partial(world.stick, place, self.part, self.kind, self.name))


@dataclass(frozen=True)
class Outage:
    """A dependency of all containers is down for ``for_s`` seconds; ``stuck`` of them stay stuck."""

    at_s: float
    for_s: float
    stuck: int = 0
    part: float = 0.8
    name: str = "blip"
    kind: str = "database"

    def plan(self, world: World) -> None:
        """Plan beginning, stuck containers, and end."""
        world.loop.plan(self.at_s, partial(world.fail_all, self.part, self.kind))
        for place in world.places(self.name, self.stuck):
            world.loop.plan(self.at_s, partial(world.stick, place, self.part, self.kind, self.name))
        world.loop.plan(self.at_s + self.for_s, partial(world.fail_all, 0.0, ""))


@dataclass(frozen=True)
class Stuck:
    """``count`` containers get stuck at the same time."""

    at_s: float
    count: int
    part: float = 0.8
    kind: str = "database"
    name: str = "stuck"

    def plan(self, world: World) -> None:
        """Plan it for each of them."""
        for place in world.places(self.name, self.count):
            world.loop.plan(self.at_s, partial(world.stick, place, self.part, self.kind, self.name))


@dataclass(frozen=True)
class Sick:
    """In ``count`` places containers fail from ``at_s`` on, before and after restarts."""

    at_s: float
    count: int
    part: float = 0.5
    kind: str = "timeout"
    name: str = "sick"

    def plan(self, world: World) -> None:
        """Plan it for each of them."""
        for place in world.places(self.name, self.count):
            world.loop.plan(self.at_s, partial(world.flaw, place, self.part, self.kind))


@dataclass(frozen=True)
class Wave:
    """``Sick`` for ``for_s`` seconds: the containers recover by themselves."""

    at_s: float
    for_s: float
    count: int
    part: float = 0.5
    kind: str = "timeout"
    name: str = "wave"

    def plan(self, world: World) -> None:
        """Plan beginning and end."""
        Sick(self.at_s, self.count, self.part, self.kind, self.name).plan(world)
        Sick(self.at_s + self.for_s, self.count, 0.0, "", self.name).plan(world)


@dataclass(frozen=True)
class Release:
    """``count`` containers get a failing release within ``over_s`` seconds, and a rollback from ``back_at_s`` on."""

    at_s: float
    count: int
    back_at_s: float
    over_s: float = 60.0
    part: float = 0.5
    name: str = "release"

    def plan(self, world: World) -> None:
        """Plan every replacement, there and back."""
        for turn, place in enumerate(world.places(self.name, self.count)):
            late_s = self.over_s * turn / self.count
            world.loop.plan(self.at_s + late_s, partial(world.deploy, place, self.part, "release"))
            world.loop.plan(self.back_at_s + late_s, partial(world.deploy, place, 0.0, ""))


@dataclass(frozen=True)
class Flapping:
    """In ``count`` places containers fail around the limit and recover by themselves, again and again."""

    at_s: float
    for_s: float
    count: int
    name: str = "flapping"
    parts: tuple[float, float] = FLAP_PART

    def plan(self, world: World) -> None:
        """Plan every turn of each place."""
        for place in world.places(self.name, self.count):
            for when, part in self._turns(seeded(f"{self.name}/{place}")):
                world.loop.plan(when, partial(world.flaw, place, part, "timeout"))

    def _turns(self, rng: Random) -> Iterator[tuple[float, float]]:
        when, end = self.at_s, self.at_s + self.for_s
        while (when := when + rng.uniform(*FLAP_GOOD_S)) < end:
            yield when, rng.uniform(*self.parts)
            when = min(end, when + rng.uniform(*FLAP_BAD_S))
            yield when, 0.0


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

    def _ages(self, world: World, app: App) -> None:
        chance = seeded(f"{self.name}/{app.app_start}").random()
        onset_s = app.born + self.from_s * (1 + chance / 4)
        for after_s, part in self.steps:
            worsens = partial(world.worsen, app, app.life, part, self.kind, self.name)
            world.loop.plan(onset_s + after_s, worsens)
