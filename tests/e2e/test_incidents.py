"""Outages during which a fleet of real sidecars must cull almost nothing: all are sick, and restarts do not help.

A beat takes 0.5 s instead of 10 s, and the times that depend on beats are shortened with it. Redis is away for as long
as in a real outage.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from harness.fleet_driver import FleetDriver, await_answers
from harness.redis_proxy import RedisProxy
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.children import StartRedis
    from harness.redis_server import RedisServer
    from harness.sidecar_pool import SidecarPool

pytestmark = [pytest.mark.redis, pytest.mark.site, pytest.mark.timeout(400)]

BEAT_S: Final = 0.5
REAL: dict[str, Setting] = {
    **GATES,
    "beat_interval": f"{BEAT_S}s",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "1s",
    "error_window": "10m",
    "redis_timeout": "900ms",
    "probation": "2s",
    "budget": "10",
    "budget_window": "60s",
}


def on_disk(name: str) -> tuple[str, ...]:
    """Arguments for a server that loses no data when it is killed."""
    return "--appendonly", "yes", "--appendfsync", "always", "--appenddirname", f"{name}.aof"


def pass_beats(number: int) -> None:
    """Let this many beats pass, as the time for what must not happen."""
    time.sleep(number * BEAT_S)


# -- Redis goes away --------------------------------------------------------------------------------------------------


class Away(NamedTuple):
    """How the servers go away and come back, and the greatest number of culls of a fleet."""

    begin: Callable[[Sequence[RedisServer], Sequence[RedisProxy]], object]
    end: Callable[[Sequence[RedisServer], Sequence[RedisProxy]], object]
    most: int


def _each(action: Callable[[RedisServer], object]) -> Callable[[Sequence[RedisServer], Sequence[RedisProxy]], object]:
    return lambda servers, _: [action(server) for server in servers]


def _every_proxy(
    action: Callable[[RedisProxy], object],
) -> Callable[[Sequence[RedisServer], Sequence[RedisProxy]], object]:
    return lambda _, proxies: [action(proxy) for proxy in proxies]


def _nothing(*_: object) -> None:
    pass


AWAY: Final = {
    "killed": Away(_each(lambda server: server.kill()), _each(lambda server: server.start(*on_disk(server.name))), 1),
    "stopped": Away(_each(lambda server: server.pause()), _each(lambda server: server.resume()), 1),
    "cut off": Away(_every_proxy(lambda proxy: proxy.cut()), _every_proxy(lambda proxy: proxy.mend()), 1),
    "flushed": Away(_each(lambda server: server.cli("FLUSHALL")), _nothing, 0),
    "there": Away(_nothing, _nothing, 1),
}
ROWS: Final = [("there", 0.0), ("flushed", 0.0), ("stopped", 20.0), ("cut off", 2.0), ("killed", 20.0)]


@pytest.mark.parametrize(("how", "away_s"), ROWS)
def test_fleet_that_gets_sick_while_redis_is_away_loses_one_container(
    pool: SidecarPool, start_redis: StartRedis, how: str, away_s: float
) -> None:
    """Fleets of thirty (six unless Redis is killed) and ten use one server."""
    server = start_redis("redis-a", *on_disk("redis-a"))
    with RedisProxy(server.port) as proxy:
        servers, proxies = [server], [proxy]
        url = proxy.url if how == "cut off" else server.url
        sizes = {"many": 30 if how == "killed" else 6, "few": 10}
        fleets = pool.fleets(
            *((count, {**REAL, "service": service, "redis_url": url}) for service, count in sizes.items())
        )
        drivers = [FleetDriver(fleet) for fleet in fleets]
        for driver in drivers:
            driver.await_metrics(fleet_alive=len(driver.members))
        pass_beats(4)  # a new server grants nothing before it has heard the fleet
        away = AWAY[how]
        away.begin(servers, proxies)
        with ExitStack() as sick:
            for driver in drivers:
                sick.enter_context(driver.keep_sick(*driver.members))
            time.sleep(away_s)
            assert not pool.cull_times() or how in ("there", "flushed")
            away.end(servers, proxies)
            await_answers(*(one for driver in drivers for one in driver.members))
            if away.most:  # the first answers may be that the fleet was not heard yet
                what = "one of each fleet is culled"
                wait_for(lambda: all(pool.cull_times(service) for service in sizes), timeout_s=60, what=what)
            pass_beats(4)
        assert {service: len(pool.cull_times(service)) for service in sizes} == dict.fromkeys(sizes, away.most)
