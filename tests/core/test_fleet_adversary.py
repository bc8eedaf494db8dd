"""No schedule talks the fleet's bucket out of what it promises: tokens in a window, the floor, the brake and the hold.

10,000 seeded schedules run with the suite. ``FLEET_SCHEDULES=1000000`` runs as many as it says, and ``FLEET_SEED=17``
starts at another seed; a failure prints the seed of its schedule, which ``FLEET_SEED=n FLEET_SCHEDULES=1`` replays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from harness.fleet_judge import BrokenPromiseError
from harness.fleet_model import World
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S, Presence

SCHEDULES: Final = int(os.environ.get("FLEET_SCHEDULES", "10000"))
FIRST_SEED: Final = int(os.environ.get("FLEET_SEED", "0"))
MINUTES_FOR_ONE: Final = 10
STEPS: Final = (15, 40)
SIZES: Final = (1, 2, 2, 3, 3, 4, 5, 6, 6, 8, 8, 10, 10, 12, 15, 20, 50)


def drawn_terms(rng: Random, servers: int) -> list[Terms]:
    """What the settings allow, from the harmless to the daring."""
    capacity = Share(rng.choice((1, 2, 3, 10)))
    window_us = rng.choice((60, 120, 600)) * US_PER_S
    min_healthy = rng.choice((Share(0), Share(1), Share(2), Share(500, is_part=True), Share(800, is_part=True)))
    spacing_us = rng.choice((0, 0, 5 * US_PER_S))
    brake = rng.choice((0, 500, 500, 900))
    useless_after = rng.choice((0, 3))
    earn_max = rng.choice((-1, -1, 0, 5))
    return [
        Terms(
            capacity=capacity,
            window_us=window_us,
            min_healthy=min_healthy,
            never_last=rng.random() < 0.9 if servers == 1 else True,
            spacing_us=spacing_us,
            brake=brake,
            useless_after=useless_after,
            earn_max=earn_max,
            index=index,
            servers=servers,
        )
        for index in range(servers)
    ]


# -- what may happen ------------------------------------------------------------------------------------------


def everybody_beats(world: World) -> None:
    for sidecar in world.rng.sample(world.running(), len(world.running())):
        world.beat(sidecar)


def one_beats(world: World) -> None:
    if world.running():
        world.beat(world.rng.choice(world.running()))


def some_fall_ill(world: World) -> None:
    up = [it for it in world.running() if it.presence in {Presence.WELL, Presence.STARTING}]
    kind = world.rng.choice(("redis", "database"))
    for sidecar in world.rng.sample(up, min(len(up), world.rng.choice((1, 1, 2, 3, 8, 50)))):
        sidecar.presence, sidecar.kind = Presence.WANTS, kind
        if world.rng.random() < 0.8:
            world.beat(sidecar)


def some_recover(world: World) -> None:
    for sidecar in world.running():
        if sidecar.presence in {Presence.WANTS, Presence.STARTING} and world.rng.random() < 0.5:
            sidecar.presence = Presence.WELL


def some_claim(world: World) -> None:
    ill = [it for it in world.running() if it.presence is Presence.WANTS]
    for sidecar in world.rng.sample(ill, min(len(ill), world.rng.choice((1, 2, 5, 15)))):
        world.claim(sidecar)


def time_passes(world: World) -> None:
    world.advance(world.rng.choice((1, US_PER_S, 5 * US_PER_S, 10 * US_PER_S, 16 * US_PER_S)))


def silence_passes(world: World) -> None:
    """Nobody is heard for long; then all are, for as long as it takes to be known again."""
    window_us = world.servers[0].terms.window_us
    world.advance(world.rng.choice((35 * US_PER_S, window_us - 1, window_us, window_us + 1)))
    if world.rng.random() < 0.9:
        everybody_beats(world)
        world.advance(16 * US_PER_S)


def fleet_lives_on(world: World) -> None:
    """Some beats pass, in which everybody is heard."""
    for _ in range(world.rng.choice((1, 2, 4))):
        world.advance(10 * US_PER_S)
        everybody_beats(world)


def clock_jumps(world: World) -> None:
    server = world.rng.choice(world.servers)
    by_us = world.rng.choice((1, US_PER_S, 40 * US_PER_S, server.terms.window_us + 1, 3700 * US_PER_S, 10**12))
    world.move(server, by_us * world.rng.choice((-1, 1)))


def late_messages_arrive(world: World) -> None:
    for sidecar in world.rng.sample(world.sidecars, len(world.sidecars)):
        for index, server in enumerate(world.servers):
            if server.is_up and not server.is_hung and world.rng.random() < 0.5:
                world.deliver(sidecar, index)


def culled_are_replaced(world: World) -> None:
    down = [it for it in world.running() if it.presence is Presence.DOWN]
    for sidecar in world.rng.sample(down, min(len(down), world.rng.choice((1, 3)))):
        if world.rng.random() < 0.5:
            world.restarts(sidecar, with_sidecar=world.rng.random() < 0.5)
        else:
            world.leaves(sidecar, with_goodbye=world.rng.random() < 0.5)
            world.beat(world.newcomer())


def culled_restart_in_place(world: World) -> None:
    down = [it for it in world.running() if it.presence is Presence.DOWN]
    for sidecar in world.rng.sample(down, min(len(down), world.rng.choice((1, 3)))):
        world.restarts(sidecar, with_sidecar=world.rng.random() < 0.5)


def one_restarts_in_place(world: World) -> None:
    if world.running():
        world.restarts(world.rng.choice(world.running()), with_sidecar=world.rng.random() < 0.5)


def one_sidecar_restarts(world: World) -> None:
    """The container stays; the new sidecar knows nothing but its latch."""
    if world.running():
        sidecar = world.rng.choice(world.running())
        world.leaves(sidecar, with_goodbye=world.rng.random() < 0.5)
        world.forgets(sidecar)
        sidecar.is_running = True
        world.beat(sidecar)


def one_goes(world: World) -> None:
    if len(world.running()) > 1:
        world.leaves(world.rng.choice(world.running()), with_goodbye=world.rng.random() < 0.5)


def one_comes(world: World) -> None:
    if len(world.running()) < 50:
        world.beat(world.newcomer())


def person_holds(world: World) -> None:
    target = world.rng.choice(("", "", world.rng.choice(world.sidecars).name))
    world.hold(target, world.rng.choice((US_PER_S, 30 * US_PER_S, 600 * US_PER_S)))


def person_releases(world: World) -> None:
    world.release("")


def server_forgets(world: World) -> None:
    """And strangers who know nothing of it may be the first to ask."""
    world.flush(world.rng.choice(world.servers))
    strangers = [world.newcomer() for _ in range(world.rng.choice((0, 0, 4)))]
    for sidecar in strangers:
        sidecar.presence = Presence.WANTS
        world.beat(sidecar)
    world.advance(world.rng.choice((0, 14 * US_PER_S)))
    for sidecar in strangers:
        world.claim(sidecar)


def server_replicates(world: World) -> None:
    world.replicate(world.rng.choice(world.servers))


def server_fails_over(world: World) -> None:
    world.fail_over(world.rng.choice(world.servers))


def server_is_away(world: World) -> None:
    server = world.rng.choice(world.servers)
    server.is_up, server.is_hung = world.rng.choice(((False, False), (True, True)))


def servers_are_back(world: World) -> None:
    world.all_up()


Step = Callable[[World], None]

DAILY: Final[dict[Step, int]] = {
    everybody_beats: 6,
    one_beats: 4,
    some_fall_ill: 12,
    some_recover: 3,
    some_claim: 24,
    time_passes: 8,
    silence_passes: 3,
    fleet_lives_on: 5,
    late_messages_arrive: 4,
    culled_are_replaced: 8,
    one_restarts_in_place: 2,
    one_sidecar_restarts: 3,
    one_goes: 2,
    one_comes: 3,
    person_holds: 1,
    person_releases: 2,
}
SKEWED: Final[dict[Step, int]] = DAILY | {clock_jumps: 5}
FORGETFUL: Final[dict[Step, int]] = SKEWED | {server_forgets: 2, server_replicates: 2, server_fails_over: 2}
STEADY: Final[dict[Step, int]] = {
    step: weight
    for step, weight in DAILY.items()
    if step not in {culled_are_replaced, one_sidecar_restarts, one_goes, one_comes, silence_passes}
} | {culled_restart_in_place: 8, server_is_away: 3, servers_are_back: 2}
"""Several servers keep the floor together while the fleet keeps its names, which each of them was told at the start,
and is heard within a window."""
UNSTEADY: Final[dict[Step, int]] = FORGETFUL | {server_is_away: 3, servers_are_back: 2}
"""Whatever happens, each of several servers keeps to its share of the tokens, to the brake and to the holds."""


def play(seed: int, steps: dict[Step, int], servers: int) -> World:
    """Play one schedule; what it broke says by which seed."""
    rng = Random(seed)
    are_one = steps is STEADY
    world = World(rng, drawn_terms(rng, servers), rng.choice(SIZES), are_one=are_one)
    try:
        for sidecar in world.sidecars:
            world.beat(sidecar, fate=0.0 if are_one else None)
        world.advance(16 * US_PER_S)
        for step in rng.choices(list(steps), list(steps.values()), k=rng.randint(*STEPS)):
            step(world)
    except BrokenPromiseError as broken:
        raise BrokenPromiseError(f"seed {seed}: {broken}") from broken
    return world


@pytest.mark.timeout(MINUTES_FOR_ONE * 60 + SCHEDULES // 50)
@pytest.mark.parametrize(
    ("part", "steps", "servers"),
    [(0.35, DAILY, 1), (0.25, SKEWED, 1), (0.25, FORGETFUL, 1), (0.05, STEADY, 3), (0.1, UNSTEADY, 2)],
    ids=["daily", "clocks that jump", "servers that forget", "three servers", "two servers that do all that"],
)
def test_no_schedule_breaks_a_promise(part: float, steps: dict[Step, int], servers: int) -> None:
    schedules = max(1, round(SCHEDULES * part))
    culls = sum(len(play(seed, steps, servers).culled) for seed in range(FIRST_SEED, FIRST_SEED + schedules))
    assert culls >= schedules // 2, "a fleet in which nobody is ever culled shows nothing"
