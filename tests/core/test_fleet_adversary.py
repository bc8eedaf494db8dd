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
from harness.fleet_model import FleetModel
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


def everybody_beats(model: FleetModel) -> None:
    for sidecar in model.rng.sample(model.running(), len(model.running())):
        model.beat(sidecar)


def one_beats(model: FleetModel) -> None:
    if model.running():
        model.beat(model.rng.choice(model.running()))


def some_fall_ill(model: FleetModel) -> None:
    up = [it for it in model.running() if it.presence in {Presence.WELL, Presence.STARTING}]
    kind = model.rng.choice(("redis", "database"))
    for sidecar in model.rng.sample(up, min(len(up), model.rng.choice((1, 1, 2, 3, 8, 50)))):
        sidecar.presence, sidecar.kind = Presence.WANTS, kind
        if model.rng.random() < 0.8:
            model.beat(sidecar)


def some_recover(model: FleetModel) -> None:
    for sidecar in model.running():
        if sidecar.presence in {Presence.WANTS, Presence.STARTING} and model.rng.random() < 0.5:
            sidecar.presence = Presence.WELL


def some_claim(model: FleetModel) -> None:
    ill = [it for it in model.running() if it.presence is Presence.WANTS]
    for sidecar in model.rng.sample(ill, min(len(ill), model.rng.choice((1, 2, 5, 15)))):
        model.claim(sidecar)


def some_are_old(model: FleetModel) -> None:
    well = [it for it in model.running() if it.presence is Presence.WELL]
    for sidecar in model.rng.sample(well, min(len(well), model.rng.choice((1, 1, 2, 5)))):
        model.retire(sidecar)


def all_recover_and_some_are_old(model: FleetModel) -> None:
    for sidecar in model.running():
        if sidecar.presence in {Presence.WANTS, Presence.STARTING}:
            sidecar.presence = Presence.WELL
    everybody_beats(model)
    some_are_old(model)


def one_on_leave_comes_back(model: FleetModel) -> None:
    asked = [it for it in model.running() if it.holder and it.presence in {Presence.WELL, Presence.DOWN}]
    asked = [it for it in asked if it.is_on_leave or it.presence is Presence.WELL]
    if asked:
        model.resign(model.rng.choice(asked))


def time_passes(model: FleetModel) -> None:
    model.advance(model.rng.choice((1, US_PER_S, 5 * US_PER_S, 10 * US_PER_S, 16 * US_PER_S)))


def silence_passes(model: FleetModel) -> None:
    """Nobody is heard for long; then all are, for as long as it takes to be known again."""
    window_us = model.servers[0].terms.window_us
    model.advance(model.rng.choice((35 * US_PER_S, window_us - 1, window_us, window_us + 1)))
    if model.rng.random() < 0.9:
        everybody_beats(model)
        model.advance(16 * US_PER_S)


def fleet_lives_on(model: FleetModel) -> None:
    """Some beats pass, in which everybody is heard."""
    for _ in range(model.rng.choice((1, 2, 4))):
        model.advance(10 * US_PER_S)
        everybody_beats(model)


def clock_jumps(model: FleetModel) -> None:
    server = model.rng.choice(model.servers)
    by_us = model.rng.choice((1, US_PER_S, 40 * US_PER_S, server.terms.window_us + 1, 3700 * US_PER_S, 10**12))
    model.move(server, by_us * model.rng.choice((-1, 1)))


def late_messages_arrive(model: FleetModel) -> None:
    for sidecar in model.rng.sample(model.sidecars, len(model.sidecars)):
        for index, server in enumerate(model.servers):
            if server.is_up and not server.is_hung and model.rng.random() < 0.5:
                model.deliver(sidecar, index)


def culled_are_replaced(model: FleetModel) -> None:
    down = [it for it in model.running() if it.presence is Presence.DOWN]
    for sidecar in model.rng.sample(down, min(len(down), model.rng.choice((1, 3)))):
        if model.rng.random() < 0.5:
            model.restarts(sidecar, with_sidecar=model.rng.random() < 0.5)
        else:
            model.leaves(sidecar, with_goodbye=model.rng.random() < 0.5)
            model.beat(model.newcomer())


def culled_restart_in_place(model: FleetModel) -> None:
    down = [it for it in model.running() if it.presence is Presence.DOWN]
    for sidecar in model.rng.sample(down, min(len(down), model.rng.choice((1, 3)))):
        model.restarts(sidecar, with_sidecar=model.rng.random() < 0.5)


def one_restarts_in_place(model: FleetModel) -> None:
    if model.running():
        model.restarts(model.rng.choice(model.running()), with_sidecar=model.rng.random() < 0.5)


def one_sidecar_restarts(model: FleetModel) -> None:
    """The container stays; the new sidecar knows nothing but its latch."""
    if model.running():
        sidecar = model.rng.choice(model.running())
        model.leaves(sidecar, with_goodbye=model.rng.random() < 0.5)
        model.forgets(sidecar)
        sidecar.is_running = True
        model.beat(sidecar)


def one_goes(model: FleetModel) -> None:
    if len(model.running()) > 1:
        model.leaves(model.rng.choice(model.running()), with_goodbye=model.rng.random() < 0.5)


def one_comes(model: FleetModel) -> None:
    if len(model.running()) < 50:
        model.beat(model.newcomer())


def person_holds(model: FleetModel) -> None:
    target = model.rng.choice(("", "", model.rng.choice(model.sidecars).name))
    model.hold(target, model.rng.choice((US_PER_S, 30 * US_PER_S, 600 * US_PER_S)))


def person_releases(model: FleetModel) -> None:
    model.release("")


def server_forgets(model: FleetModel) -> None:
    """And strangers who know nothing of it may be the first to ask."""
    model.flush(model.rng.choice(model.servers))
    strangers = [model.newcomer() for _ in range(model.rng.choice((0, 0, 4)))]
    for sidecar in strangers:
        sidecar.presence = Presence.WANTS
        model.beat(sidecar)
    model.advance(model.rng.choice((0, 14 * US_PER_S)))
    for sidecar in strangers:
        model.claim(sidecar)


def server_replicates(model: FleetModel) -> None:
    model.replicate(model.rng.choice(model.servers))


def server_fails_over(model: FleetModel) -> None:
    model.fail_over(model.rng.choice(model.servers))


def server_is_away(model: FleetModel) -> None:
    server = model.rng.choice(model.servers)
    server.is_up, server.is_hung = model.rng.choice(((False, False), (True, True)))


def servers_are_back(model: FleetModel) -> None:
    model.all_up()


Step = Callable[[FleetModel], None]

DAILY: Final[dict[Step, int]] = {
    everybody_beats: 6,
    one_beats: 4,
    some_fall_ill: 12,
    some_recover: 3,
    some_claim: 24,
    some_are_old: 4,
    all_recover_and_some_are_old: 5,
    one_on_leave_comes_back: 2,
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


def play(seed: int, steps: dict[Step, int], servers: int) -> FleetModel:
    """Play one schedule; what it broke says by which seed."""
    rng = Random(seed)
    are_one = steps is STEADY
    model = FleetModel(rng, drawn_terms(rng, servers), rng.choice(SIZES), are_one=are_one)
    model.slots, model.timeout_s = rng.choice(("1", "1", "2", "100p", "500p")), rng.choice((5.0, 60.0, 600.0, 3600.0))
    try:
        for sidecar in model.sidecars:
            model.beat(sidecar, fate=0.0 if are_one else None)
        model.advance(16 * US_PER_S)
        for step in rng.choices(list(steps), list(steps.values()), k=rng.randint(*STEPS)):
            step(model)
    except BrokenPromiseError as broken:
        raise BrokenPromiseError(f"seed {seed}: {broken}") from broken
    return model


@pytest.mark.timeout(MINUTES_FOR_ONE * 60 + SCHEDULES // 50)
@pytest.mark.parametrize(
    ("part", "steps", "servers"),
    [(0.35, DAILY, 1), (0.25, SKEWED, 1), (0.25, FORGETFUL, 1), (0.05, STEADY, 3), (0.1, UNSTEADY, 2)],
    ids=["daily", "clocks that jump", "servers that forget", "three servers", "two servers that do all that"],
)
def test_no_schedule_breaks_a_promise(part: float, steps: dict[Step, int], servers: int) -> None:
    schedules = max(1, round(SCHEDULES * part))
    culls = leaves = 0
    for seed in range(FIRST_SEED, FIRST_SEED + schedules):
        played = play(seed, steps, servers)
        culls, leaves = culls + len(played.culled), leaves + len(played.retired)
    assert min(culls, leaves) >= schedules // 2, "a fleet in which nobody is ever culled, or retired, shows nothing"
