"""What befalls a fleet, and when. All of it is written down before the run begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol

from simulation.world import World

FLAP_BAD_S: Final = (30.0, 90.0)
FLAP_GOOD_S: Final = (60.0, 240.0)
FLAP_PART: Final = (0.001, 0.01)
"""Of twenty requests a second, 1.2 to 12 failures a minute: on both sides of the limit."""


class Trouble(Protocol):
    """Something that befalls the fleet."""

    def plan(self, world: World) -> None:
        """Put it on the fleet's timeline."""


@dataclass(frozen=True)
class Poison:
    """Lone containers whose connection is poisoned: one every ``every_s`` seconds, or by chance until ``until_s``."""

    at_s: float
    count: int = 1
    every_s: float = 0.0
    part: float = 0.8
    until_s: float = 0.0
    name: str = "poisoned"

    def plan(self, world: World) -> None:
        """Plan each of them."""
        rng = Random(f"{world.seed}/{self.name}/when")
        for turn, place in enumerate(world.places(self.name, self.count)):
            at_s = rng.uniform(self.at_s, self.until_s) if self.until_s else self.at_s + turn * self.every_s
            world.timeline.at(at_s, partial(world.stick, place, self.part, "connection", self.name))


@dataclass(frozen=True)
class Outage:
    """A dependency of everybody's is down for ``for_s`` seconds; ``stuck`` containers do not get over it."""

    at_s: float
    for_s: float
    stuck: int = 0
    part: float = 0.8
    name: str = "blip"

    def plan(self, world: World) -> None:
        """Plan its beginning, whom it leaves stuck, and its end."""
        world.timeline.at(self.at_s, partial(world.fail_everybody, self.part, "database"))
        for place in world.places(self.name, self.stuck):
            world.timeline.at(self.at_s, partial(world.stick, place, self.part, "database", self.name))
        world.timeline.at(self.at_s + self.for_s, partial(world.fail_everybody, 0.0, ""))


@dataclass(frozen=True)
class Stuck:
    """A blip leaves ``count`` containers stuck, all at once."""

    at_s: float
    count: int
    part: float = 0.8
    kind: str = "database"
    name: str = "stuck"

    def plan(self, world: World) -> None:
        """Plan it for each of them."""
        for place in world.places(self.name, self.count):
            world.timeline.at(self.at_s, partial(world.stick, place, self.part, self.kind, self.name))


@dataclass(frozen=True)
class Sick:
    """``count`` places in which containers fail whatever one does, from ``at_s`` on."""

    at_s: float
    count: int
    part: float = 0.5
    kind: str = "timeout"
    name: str = "sick"

    def plan(self, world: World) -> None:
        """Plan it for each of them."""
        for place in world.places(self.name, self.count):
            world.timeline.at(self.at_s, partial(world.flaw, place, self.part, self.kind))


@dataclass(frozen=True)
class Wave:
    """The same for ``for_s`` seconds: they heal by themselves."""

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
    """``count`` containers get a release that fails, within ``over_s``, and the one before back at ``back_at_s``."""

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
            world.timeline.at(self.at_s + late_s, partial(world.deploy, place, self.part, "release"))
            world.timeline.at(self.back_at_s + late_s, partial(world.deploy, place, 0.0, ""))


@dataclass(frozen=True)
class Flapping:
    """``count`` places in which containers go bad and recover by themselves, around the limit."""

    at_s: float
    for_s: float
    count: int
    name: str = "flapping"

    def plan(self, world: World) -> None:
        """Plan every turn of each place."""
        for place in world.places(self.name, self.count):
            for when, part in self._turns(Random(f"{self.name}/{place}")):
                world.timeline.at(when, partial(world.flaw, place, part, "timeout"))

    def _turns(self, rng: Random) -> Iterator[tuple[float, float]]:
        when, end = self.at_s, self.at_s + self.for_s
        while (when := when + rng.uniform(*FLAP_GOOD_S)) < end:
            yield when, rng.uniform(*FLAP_PART)
            when = min(end, when + rng.uniform(*FLAP_BAD_S))
            yield when, 0.0
