"""Whatever order the exchanges of three sidecars take, and wherever one of them ends: bound, floor and trial hold.

Every exchange with a store is a point at which the scheduler chooses which sidecar goes on, and what becomes of its
exchange: it passes, it passes and the answer is lost, or the sidecar ends there (before it, or after it). In some
stories the server may also crash there, and the next process has an older snapshot. All choices are explored, depth
first, with at most one mishap in a run. Requests that meet others are tried anew as in production.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from harness.fleet_judge import BrokenPromiseError
from harness.fleet_servers import Fate, Point
from harness.fleet_world import Sidecar, World
from harness.step_loop import StepLoop
from sidecar.core.claims import Granted, Presence, Unknown
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import US_PER_S

Request = Callable[[World, Sidecar], Coroutine[Any, Any, object]]

MISHAPS: Final = (Fate.LOST_REPLY, Fate.ENDS_BEFORE, Fate.ENDS_AFTER)
"""Of a commit or a beat. A read that is lost, or whose answer is, leaves no trace; nor does the order of two reads."""


class Choice(NamedTuple):
    """Which of the waiting exchanges goes on, and how it ends."""

    place: int
    fate: Fate


# -- what three sidecars do ---------------------------------------------------------------------------------------


async def claims(world: World, sidecar: Sidecar) -> object:
    return await world.claim(sidecar)


async def retires(world: World, sidecar: Sidecar) -> object:
    return await world.retire(sidecar, 1, 60.0)


async def beats(world: World, sidecar: Sidecar) -> object:
    return await world.beat(sidecar)


async def claims_and_recovers(world: World, sidecar: Sidecar) -> object:
    """It gives back what it may have been granted, unless it went down by it."""
    answer = await world.claim(sidecar)
    if not isinstance(answer, Unknown):
        return answer
    sidecar.presence = Presence.WELL
    await world.give_back(sidecar)
    return True


async def claims_and_beats(world: World, sidecar: Sidecar) -> object:
    await world.claim(sidecar)
    return await world.beat(sidecar)


async def falls_ill_and_claims(world: World, sidecar: Sidecar) -> object:
    sidecar.presence = Presence.SUSPECT
    await world.beat(sidecar)
    return await world.claim(sidecar)


async def holds(world: World, sidecar: Sidecar) -> object:
    return await world.hold("", 60.0, sidecar)


async def asks(world: World, sidecar: Sidecar, request: Request, times: int) -> None:
    """One sidecar asks until it has a clear answer, by another process of it where one has ended."""
    for _ in range(times):
        try:
            answer = await request(world, sidecar)
        except asyncio.CancelledError:
            world.start(sidecar)
        else:
            if not isinstance(answer, Unknown):
                return


def fleet(requests: Sequence[Request], terms: FleetSettings, *, size: int, lacking: int | None = None) -> bytes:
    """A fleet whose first ones are about to make these requests.

    ``lacking``: the server has a snapshot, which lacks so many grants to the last ones.
    """
    world = World(terms, size, 1)
    for sidecar in world.sidecars:
        world.run(world.beat(sidecar))
    world.advance(16 * US_PER_S)
    for request, sidecar in zip(requests, world.sidecars, strict=False):
        if request in (claims, claims_and_recovers, claims_and_beats):
            sidecar.presence = Presence.SUSPECT
            world.run(world.beat(sidecar))
    if lacking is not None:
        world.save()
        for sidecar in world.sidecars[size - lacking :]:
            sidecar.presence = Presence.SUSPECT
            world.run(world.beat(sidecar))
            assert isinstance(world.run(world.claim(sidecar)), Granted)
    return pickle.dumps(world)


# -- in every order -----------------------------------------------------------------------------------------------


class Run:
    """One run: it follows ``chosen``, and then takes the first choice everywhere, or one by ``chance``.

    ``choices`` are those that were there at every point, and ``taken`` the ones that were taken.
    """

    def __init__(
        self, begun: bytes, requests: Sequence[Request], *, mishaps: int, times: int = 2, seed: int = 0
    ) -> None:
        self.world: World = pickle.loads(begun)
        self.world.chance.seed(seed)
        self.requests = requests
        self.mishaps = mishaps
        self.times = times
        self.choices: list[list[Choice]] = []
        self.taken: list[Choice] = []
        self._last: Point | None = None

    def go(self, chosen: Sequence[Choice], chance: Random | None = None) -> None:
        world, loop = self.world, StepLoop()
        world.judge.begins(world.time.now_us)
        world.weather.new_future = loop.create_future
        tasks = [
            loop.create_task(asks(world, sidecar, request, self.times))
            for request, sidecar in zip(self.requests, world.sidecars, strict=False)
        ]
        loop.settle()
        while points := world.weather.points:
            choices = self._choices(points)
            following = chance.choice(choices) if chance else choices[0]
            choice = chosen[len(self.taken)] if len(self.taken) < len(chosen) else following
            self.choices.append(choices)
            self.taken.append(choice)
            self._last = points.pop(choice.place)
            if choice.fate is Fate.CRASHES:
                world.crash()
            self._last.fate.set_result(Fate.PASSES if choice.fate is Fate.CRASHES else choice.fate)
            self.mishaps -= choice.fate is not Fate.PASSES
            loop.settle()
        world.weather.new_future = None
        for task in tasks:
            task.result()

    def _choices(self, points: Sequence[Point]) -> list[Choice]:
        """All that may happen next. Of two reads that follow each other one order is enough: they change nothing."""
        last, sidecars = self._last, self.world.sidecars
        was_read = last is not None and last.word == "read" and self.taken[-1].fate is Fate.PASSES
        found = []
        for place, point in enumerate(points):
            is_read = point.word == "read"
            is_swapped = last is not None and sidecars.index(point.sidecar) < sidecars.index(last.sidecar)
            if is_read and is_swapped and was_read:
                continue
            found.append(Choice(place, Fate.PASSES))
            if self.mishaps:
                others: tuple[Fate, ...] = (Fate.LOST_REPLY, Fate.ENDS_AFTER) if is_read else MISHAPS
                if self.world.server.older is not None:
                    others = (*others, Fate.CRASHES)
                found += [Choice(place, fate) for fate in others]
        return found or [Choice(place, Fate.PASSES) for place in range(len(points))]


def explored(begun: bytes, requests: Sequence[Request], *, times: int) -> Iterator[Run]:
    """Every run that there is."""
    ahead: list[list[Choice]] = [[]]
    while ahead:
        chosen = ahead.pop()
        run = Run(begun, requests, mishaps=1, times=times)
        run.go(chosen)
        yield run
        for depth in range(len(chosen), len(run.taken)):
            ahead += [[*run.taken[:depth], other] for other in run.choices[depth] if other != run.taken[depth]]


FREE: Final = FleetSettings(min_healthy="0", trial=False)
TOKENS: Final = replace(FREE, capacity="2")
FLOOR: Final = replace(FREE, min_healthy="3")
TRIAL: Final = replace(FREE, trial=True)


class Story(NamedTuple):
    """What the sidecars ask, in a fleet of so many, and how often each asks until it has a clear answer."""

    requests: Sequence[Request]
    terms: FleetSettings
    size: int = 4
    times: int = 2


STORIES: Final = {
    "three claims of two tokens": Story((claims,) * 3, TOKENS, times=1),
    "three claims over the floor": Story((claims,) * 3, FLOOR),
    "three claims on trial": Story((claims,) * 3, TRIAL),
    "a claim that is given back, and two more on trial": Story((claims_and_recovers, claims, claims), TRIAL, times=1),
    "a claim, a hold and a claim": Story((claims, holds, claims), TRIAL, times=1),
    "a cull that is told, and a claim": Story((claims_and_beats, claims), TRIAL),
    "a claim, a retirement and a beat": Story((falls_ill_and_claims, retires, beats), FLOOR, times=1),
    "two retirements of one slot, and a beat": Story((retires, retires, beats), FLOOR, size=6),
    "two retirements over the floor, and a hold": Story((retires, retires, holds), FLOOR, times=1),
}

SHORT: Final = ("a cull that is told, and a claim",)
"""The stories that run with the unit tests; the others have thousands of orders."""


@pytest.mark.parametrize(
    "story", [pytest.param(story, marks=[] if story in SHORT else [pytest.mark.site]) for story in STORIES]
)
def test_every_order_of_exchanges_keeps_the_promises(story: str) -> None:
    requests, terms, size, times = STORIES[story]
    begun = fleet(requests, terms, size=size)
    runs = granted = 0
    for run in explored(begun, requests, times=times):
        runs += 1
        granted += sum(run.world.judge.judged.values())
    assert granted > runs // 2, "where nobody goes down nothing is shown"


@pytest.mark.parametrize("samples", [10, pytest.param(2_000, marks=pytest.mark.site)])
@pytest.mark.parametrize("story", STORIES)
def test_orders_by_chance_keep_the_promises_after_two_mishaps(story: str, samples: int) -> None:
    requests, terms, size, times = STORIES[story]
    begun = fleet(requests, terms, size=size)
    for seed in range(samples):
        run = Run(begun, requests, mishaps=2, times=times, seed=seed)
        try:
            run.go((), Random(seed))
        except BrokenPromiseError as broken:
            raise BrokenPromiseError(f"seed {seed}: {broken}") from broken


@pytest.mark.parametrize(
    ("requests", "lacking"),
    [
        ((claims, claims), 2),
        ((claims_and_beats, claims), 2),
        *(
            pytest.param(requests, lacking, marks=pytest.mark.site)
            for requests in ((claims, claims), (claims_and_beats, claims), (claims_and_recovers, claims))
            for lacking in (0, 1)
        ),
    ],
)
def test_a_crash_to_an_older_snapshot_keeps_the_bound_in_every_order(requests: Sequence[Request], lacking: int) -> None:
    """Two tokens, of which the snapshot lacks none, one or two. Afterwards all ask again, before and after the wait."""
    begun = fleet(requests, TOKENS, size=5, lacking=lacking)
    granted = crashes = 0
    for run in explored(begun, requests, times=1):
        world = run.world
        for passing_s in (0, 2, 14, 16):
            world.advance(passing_s * US_PER_S)
            for sidecar in world.running(Presence.WELL, Presence.SUSPECT):
                sidecar.presence = Presence.SUSPECT
                world.run(world.beat(sidecar))
                world.run(world.claim(sidecar))
        granted += world.judge.judged["tokens"]
        crashes += world.server.process
    assert min(granted, crashes) > 0, "where no container goes down nothing is shown"


def test_a_claim_that_was_read_before_a_crash_is_decided_anew_after_it() -> None:
    """A beat had written the loss under the same revision, and the commit of the claim wrote the old epoch over it."""
    requests = (claims_and_beats, claims)
    run = Run(fleet(requests, TOKENS, size=5, lacking=0), requests, mishaps=1, times=1)
    fates = [Fate.PASSES] * 7 + [Fate.CRASHES] + [Fate.PASSES] * 3
    run.go([Choice(place, fate) for place, fate in zip((0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0), fates, strict=True)])
    first, second, *_ = run.world.sidecars
    assert (first.presence, second.presence) == (Presence.DOWN, Presence.SUSPECT)
