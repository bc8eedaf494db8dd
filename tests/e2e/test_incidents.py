"""Faults of Redis under fleets of real sidecars: outages, lost keys.

A beat takes 0.5 s instead of 10 s, and the times that depend on beats are shortened with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from harness.fleet_driver import FleetDriver, await_answers, await_metrics
from harness.sidecar import GATES, NO_GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from e2e.conftest import StartFleet
    from harness.children import StartRedis
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.site, pytest.mark.timeout(400)]

BEAT_S: Final = 0.5
BUDGET: Final = 2
QUICK: Final[dict[str, Setting]] = {
    "beat_interval": f"{BEAT_S}s",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "2s",
    "redis_timeout": "1900ms",
}
REAL: Final[dict[str, Setting]] = {**GATES, **QUICK, "error_window": "10m", "budget_window": "60s"}
BOUND: Final[dict[str, Setting]] = {
    **NO_GATES,
    **QUICK,
    "after_data_loss": "wait",
    "budget": str(BUDGET),
    "budget_window": "10m",
}
"""Only the bound: every sick container is culled, up to the budget."""

ON_DISK: Final = ("--appendonly", "yes", "--appendfsync", "always")
KEYS: Final = (
    *("state", "culls", "leases", "holds", "settings", "alive", "members", "causes", "control", "grants", "refunded"),
    *("departed", "errors", "ratios", "abouts", "events", "noted"),
)


def pass_beats(number: float) -> None:
    """Let this many beats pass, as the time for what must not happen."""
    time.sleep(number * BEAT_S)


def _nothing(_: RedisServer) -> None:
    pass


AWAY: Final[dict[str, tuple[Callable[[RedisServer], object], Callable[[RedisServer], object], int]]] = {
    "killed": (lambda server: server.kill(), lambda server: server.start(*ON_DISK), 1),
    "hung": (lambda server: server.pause(), lambda server: server.resume(), 1),
    "flushed": (lambda server: server.cli("FLUSHALL"), _nothing, 0),
}
"""How the server goes away and comes back, and how many culls the outage costs a fleet."""


@pytest.mark.parametrize("how", AWAY)
def test_fleet_that_gets_sick_while_redis_is_away_loses_one_container(
    start_fleet: StartFleet, start_redis: StartRedis, how: str
) -> None:
    """A fleet of thirty and one of ten use one server, which is away for 20 s."""
    server = start_redis("redis", *ON_DISK)
    begin, end, most = AWAY[how]
    sizes = {"many": 30, "few": 10}
    drivers = {
        name: FleetDriver(start_fleet(count, name, **{**REAL, "service": name, "redis_url": server.url}))
        for name, count in sizes.items()
    }
    for driver in drivers.values():
        driver.await_metrics(fleet_alive=len(driver.members))
    pass_beats(4)  # a new server grants nothing before it has heard the fleet
    begin(server)
    with ExitStack() as sick:
        for driver in drivers.values():
            sick.enter_context(driver.keep_sick(*driver.members))
        if most:
            time.sleep(20)
            assert not any(driver.down() for driver in drivers.values())
        end(server)
        await_answers(*(one for driver in drivers.values() for one in driver.members))
        if most:  # the first answers may be that the fleet was not heard yet
            what = "one of each fleet is culled"
            wait_for(lambda: all(driver.down() for driver in drivers.values()), timeout_s=60, what=what)
        pass_beats(4)
        assert [len(driver.down()) for driver in drivers.values()] == [most, most]


def test_no_key_that_is_lost_alone_gives_a_token_too_many(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Each key has its own fleet, because a detected loss stops culls for a window."""
    drivers = {
        name: FleetDriver(start_fleet(BUDGET + 1, name, **{**BOUND, "service": name, "redis_url": redis_server.url}))
        for name in KEYS
    }
    for driver in drivers.values():
        await_metrics(driver.members[0], {"arbiter_fleet_alive": BUDGET + 1})
    with ExitStack() as sick:
        for driver in drivers.values():
            sick.enter_context(driver.keep_sick(*driver.members))
        for driver in drivers.values():
            wait_for(lambda driver=driver: len(driver.down()) == BUDGET, timeout_s=60, what="the budget is spent")  # type: ignore[misc]
        for name in drivers:
            redis_server.cli("DEL", f"{{ha:default/{name}}}:{name}")
        for name in ("state", "grants"):
            await_metrics(drivers[name].members[0], {"arbiter_data_losses_total": 1})
        pass_beats(8)
    assert {name: len(driver.down()) for name, driver in drivers.items()} == dict.fromkeys(KEYS, BUDGET)
    losses = {name: driver.members[0].metrics()["arbiter_data_losses_total"] for name, driver in drivers.items()}
    noticed = {name for name, count in losses.items() if count == 1}
    # A container that is down may write its row again before the loss of the culls is detected.
    assert {"state", "grants"} <= noticed <= {"state", "grants", "culls"}
