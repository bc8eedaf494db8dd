"""Outages that a fleet of real sidecars has to sit out: everybody is sick, and a restart does not help, or not yet.

Beats of 0.5 s stand for the default of 10 s, and the times of everything that is measured in beats are shortened with
them; Redis is away for as many real seconds as an operator would wait. ``INCIDENTS_LONG=1`` adds the outages of 20 and
60 s and the fleets of fifty.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from harness.crew import Crew
from harness.pool import Pool
from harness.relay import Relay
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import Children, StartRedis, StartSidecar

IS_LONG: Final = os.environ.get("INCIDENTS_LONG") == "1"

pytestmark = [pytest.mark.redis, pytest.mark.timeout(400 if IS_LONG else 120)]

BEAT_S: Final = 0.5
REAL: dict[str, Setting] = {
    **GATES,
    "beat_interval": f"{BEAT_S}s",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "1s",
    "error_window": "10m",
    "redis_timeout": "300ms",
    "probation": "2s",
    "budget": "10",
    "budget_window": "60s",
}


def on_disk(name: str) -> tuple[str, ...]:
    """Arguments for a server that forgets nothing when it is killed."""
    return "--appendonly", "yes", "--appendfsync", "always", "--appenddirname", f"{name}.aof"


@pytest.fixture
def pool(sidecar: StartSidecar, children: Children) -> Pool:
    return Pool(sidecar, children)


def culled(pool: Pool, service: str = "") -> list[str]:
    """The instances that were granted a token, in the order of their culls."""
    return [line["instance"] for line in pool.lines(claim="granted") if line["instance"].startswith(service)]


def times_of_culls(pool: Pool, service: str) -> list[float]:
    """When, in Unix seconds."""
    lines = [line for line in pool.lines(claim="granted") if line["instance"].startswith(service)]
    return [datetime.fromisoformat(line["time"]).timestamp() for line in lines]


def await_all_answered(*crews: Crew) -> None:
    """Wait until every member has had a clear answer to a claim."""

    def waiting() -> list[str]:
        claims = [(one, one.verdict()["claim"] or {}) for crew in crews for one in crew.members]
        return [one.name for one, claim in claims if claim.get("outcome") not in ("granted", "denied")]

    wait_for(lambda: not waiting(), timeout_s=60, what="all have clear answers")


def pass_beats(number: int) -> None:
    """Let so many beats pass: what must not happen has the time to."""
    time.sleep(number * BEAT_S)


# -- Redis goes away --------------------------------------------------------------------------------------------------


class Away(NamedTuple):
    """One way for the servers to be away, and how they come back."""

    begin: Callable[[Sequence[RedisServer], Sequence[Relay]], object]
    end: Callable[[Sequence[RedisServer], Sequence[Relay]], object]
    most: int


def _each(deed: Callable[[RedisServer], object]) -> Callable[[Sequence[RedisServer], Sequence[Relay]], object]:
    return lambda servers, _: [deed(server) for server in servers]


def _every_relay(deed: Callable[[Relay], object]) -> Callable[[Sequence[RedisServer], Sequence[Relay]], object]:
    return lambda _, relays: [deed(relay) for relay in relays]


def _nothing(*_: object) -> None:
    pass


AWAY: Final = {
    "killed": Away(_each(lambda server: server.kill()), _each(lambda server: server.start(*on_disk(server.name))), 1),
    "stopped": Away(_each(lambda server: server.pause()), _each(lambda server: server.resume()), 1),
    "cut off": Away(_every_relay(lambda relay: relay.cut()), _every_relay(lambda relay: relay.mend()), 1),
    "flushed": Away(_each(lambda server: server.cli("FLUSHALL")), _nothing, 0),
    "there": Away(_nothing, _nothing, 1),
}
ROWS: Final = [("there", 0.0), ("flushed", 0.0), ("stopped", 2.0), ("cut off", 2.0), ("killed", 6.0)]
LONG_ROWS: Final = [(how, away_s) for how in ("killed", "stopped", "cut off") for away_s in (20.0, 60.0)]


@pytest.mark.parametrize(("how", "away_s"), ROWS + LONG_ROWS * IS_LONG)
def test_of_a_fleet_that_is_sick_as_redis_goes_away_one_is_culled(
    pool: Pool, start_redis: StartRedis, how: str, away_s: float
) -> None:
    """Thirty (six where it is not killed) and ten with one server, ten with three that are all away at once."""
    servers = [start_redis(name, *on_disk(name)) for name in ("redis-a", "redis-b", "redis-c")]
    with ExitStack() as opened:
        relays = [opened.enter_context(Relay(server.port)) for server in servers]
        urls = [relay.url for relay in relays] if how == "cut off" else [server.url for server in servers]
        many = 30 if how == "killed" else 6
        sizes = {"many": (many, urls[0]), "few": (10, urls[0]), "three": (10, ",".join(urls))}
        fleets = pool.fleets(
            *((count, {**REAL, "service": service, "redis_url": url}) for service, (count, url) in sizes.items())
        )
        crews = [Crew(fleet) for fleet in fleets]
        for crew in crews:
            crew.await_metrics(fleet_alive=len(crew.members))
        pass_beats(4)  # a server that is new grants nothing before it has heard the fleet
        away = AWAY[how]
        away.begin(servers, relays)
        with ExitStack() as sick:
            for crew in crews:
                sick.enter_context(crew.suffering(*crew.members))
            time.sleep(away_s)
            assert not culled(pool) or how in ("there", "flushed")
            away.end(servers, relays)
            await_all_answered(*crews)
            if away.most:  # the first answers may be that the fleet has not been heard
                what = "one of each is tried"
                wait_for(lambda: all(culled(pool, service) for service in sizes), timeout_s=30, what=what)
            pass_beats(4)
        assert {service: len(culled(pool, service)) for service in sizes} == dict.fromkeys(sizes, away.most)


# -- everybody falls ill slowly ---------------------------------------------------------------------------------------


class Slow(NamedTuple):
    """A fleet of so many members that have so many errors a second each."""

    members: int
    rate: float


SLOW: Final = [Slow(30, 0.3), Slow(12, 0.2), Slow(2, 1.0)]
LONG_SLOW: Final = [Slow(50, 0.1), Slow(50, 10.0), Slow(20, 3.0), Slow(5, 0.2), Slow(3, 0.1), Slow(2, 10.0)]
FASTER: Final = 10
"""Rates are so many times higher, windows and beats so many times shorter than the defaults."""


def test_of_a_fleet_that_falls_ill_slowly_one_is_culled_at_the_most(pool: Pool, redis_server: RedisServer) -> None:
    """Side by side, with ten times the rates of the table over windows of a tenth."""
    rows = SLOW + LONG_SLOW * IS_LONG
    tenth: dict[str, Setting] = {
        "beat_interval": "1s",
        "error_window": "6s",
        "probation": "6s",
        "redis_timeout": "900ms",
    }
    names = [f"fleet-{at}-" for at in range(len(rows))]
    fleets = pool.fleets(
        *(
            (row.members, {**REAL, **tenth, "service": name, "redis_url": redis_server.url})
            for name, row in zip(names, rows, strict=True)
        )
    )
    crews = [Crew(fleet) for fleet in fleets]
    for crew in crews:
        crew.await_metrics(fleet_alive=len(crew.members))
    rng, began, step_s = Random(12), time.monotonic(), 0.0
    while (now := time.monotonic()) - began < 2 * 6.0:
        passed_s, step_s = now - began - step_s, now - began
        for crew, row in zip(crews, rows, strict=True):
            counts = [(one, _poisson(rng, row.rate * FASTER * passed_s)) for one in crew.members]
            crew.report({one: count for one, count in counts if count})
    for name, row in zip(names, rows, strict=True):
        assert len(culled(pool, name)) <= 1, (row, culled(pool, name))


def _poisson(rng: Random, mean: float) -> int:
    """How often it happens in a time in which it happens ``mean`` times on average."""
    count, left = 0, mean
    while (left := left - rng.expovariate(1.0)) > 0:
        count += 1
    return count


# -- restarts do not help ---------------------------------------------------------------------------------------------


PAUSE_S: Final = 4.0


def test_half_of_a_fleet_that_restarts_do_not_help_loses_one_container_a_pause(
    pool: Pool, redis_server: RedisServer
) -> None:
    """Fifteen of thirty with pauses of 4 and 8 s; seven of thirteen with one that does not end."""
    windows = {"half": f"{PAUSE_S}s", "seven": "60s"}
    sizes = {"half": (30, 15), "seven": (13, 7)}
    settings: dict[str, Setting] = {**REAL, "budget": "4", "redis_url": redis_server.url}
    fleets = pool.fleets(
        *((sizes[name][0], {**settings, "service": name, "budget_window": window}) for name, window in windows.items())
    )
    half, seven = crews = [Crew(fleet) for fleet in fleets]
    sick = {crew: crew.members[:number] for crew, (_, number) in zip(crews, sizes.values(), strict=True)}
    for crew in crews:
        crew.await_metrics(fleet_alive=len(crew.members))
        crew.suffer(*sick[crew])
    canaries = {crew: wait_for(crew.down, timeout_s=20, what="one is culled") for crew in crews}
    pass_beats(6)
    assert {crew: crew.down() for crew in crews} == canaries, "nothing is released by the removal of the first"

    for crew, canary in canaries.items():
        crew.replace(*canary)
        crew.suffer(*canary)
        crew.await_metrics(**{'engineer_needed{reason="paused"}': 1})
    recovered = next(one for one in sick[seven] if one not in canaries[seven])
    seven.replace(recovered)
    again = wait_for(half.down, timeout_s=20, what="after the pause one more is tried")
    half.replace(*again)
    half.suffer(*again)
    pass_beats(8)
    first, second = times_of_culls(pool, "half")
    assert second - first >= PAUSE_S
    assert len(culled(pool, "seven")) == 1
    over = "the pause of culls for redis is over"
    assert not [line for line in pool.lines(message=over) if line["instance"].startswith("seven")]
