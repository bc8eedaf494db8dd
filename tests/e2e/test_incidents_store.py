"""Faults of the store of a fleet of real sidecars: lost keys, stepped clocks, other settings, other versions.

In no window of real time are more than N containers culled, and no fault stops the culls for longer than a window. A
beat takes 0.5 s instead of 10 s.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.fleet_driver import FleetDriver, await_denied, await_metrics
from harness.sidecar import NO_GATES, Setting, Sidecar, command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartRedis
    from harness.redis_server import RedisServer
    from harness.sidecar_pool import SidecarPool

pytestmark = [pytest.mark.redis, pytest.mark.site]

BEAT_S: Final = 0.5
BUDGET: Final = 2
QUICK: dict[str, Setting] = {
    "beat_interval": f"{BEAT_S}s",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "2s",
    "redis_timeout": "1900ms",
    "budget_window": "60s",
}
BOUND: dict[str, Setting] = {**NO_GATES, **QUICK, "after_data_loss": "wait", "budget": str(BUDGET)}
"""Only the bound: every sick container is culled, up to the budget."""


@pytest.fixture
def start_fleet(pool: SidecarPool, redis_server: RedisServer) -> Callable[..., FleetDriver]:
    """Starts a fleet, and returns it once it may cull."""

    def start(count: int, **settings: Setting) -> FleetDriver:
        return ready(pool.fleet(count, **{**BOUND, "redis_url": redis_server.url, **settings}))

    return start


def ready(fleet: list[Sidecar], down: int = 0) -> FleetDriver:
    """The fleet once every member has beaten, without the ``down`` ones."""
    driver = FleetDriver(fleet[down:])
    await_metrics(fleet[-1], {"arbiter_fleet_alive": len(fleet) - down})
    pass_beats(3)
    return driver


def key(name: str, service: str = "app") -> str:
    return f"{{ha:default/{service}}}:{name}"


def pass_beats(number: float) -> None:
    """Let this many beats pass, as the time for what must not happen."""
    time.sleep(number * BEAT_S)


def use_budget(driver: FleetDriver, count: int = BUDGET) -> list[Sidecar]:
    """Have ``count`` members culled; the others."""
    driver.make_sick(*driver.members[:count])
    driver.await_down(*driver.members[:count])
    return driver.members[count:]


def await_budget_used(driver: FleetDriver, what: str) -> None:
    wait_for(lambda: len(driver.down()) == BUDGET, timeout_s=60, what=what)


# -- lost keys --------------------------------------------------------------------------------------------------------

KEYS: Final = (
    *("state", "culls", "leases", "holds", "settings", "alive", "members", "causes", "control", "grants", "refunded"),
    *("departed", "errors", "ratios", "abouts", "events", "noted"),
)


def test_no_key_that_is_lost_alone_gives_a_token_too_many(pool: SidecarPool, redis_server: RedisServer) -> None:
    """Each key has its own fleet, because a detected loss stops culls for a window."""
    names = {name: f"lost-{name}-" for name in KEYS}
    settings: dict[str, Setting] = {**BOUND, "budget_window": "10m", "redis_url": redis_server.url}
    fleets = pool.fleets(*((BUDGET + 1, {**settings, "service": service}) for service in names.values()))
    drivers = dict(zip(KEYS, map(FleetDriver, fleets), strict=True))
    for driver in drivers.values():
        await_metrics(driver.members[0], {"arbiter_fleet_alive": BUDGET + 1})
    with ExitStack() as sick:
        for driver in drivers.values():
            sick.enter_context(driver.keep_sick(*driver.members))
        for name, driver in drivers.items():
            await_budget_used(driver, f"the budget of {name} is spent")
        for name, service in names.items():
            redis_server.cli("DEL", key(name, service))
        for name in ("state", "grants"):
            await_metrics(drivers[name].members[0], {"arbiter_data_losses_total": 1})
        pass_beats(8)
    assert {name: len(driver.down()) for name, driver in drivers.items()} == dict.fromkeys(KEYS, BUDGET)
    losses = {name: driver.members[0].metrics()["arbiter_data_losses_total"] for name, driver in drivers.items()}
    noticed = {name for name, count in losses.items() if count == 1}
    # A container that is down may write its row again before the loss of the culls is detected.
    assert {"state", "grants"} <= noticed <= {"state", "grants", "culls"}
    assert set(losses.values()) == {0, 1}


# -- clocks -----------------------------------------------------------------------------------------------------------


def test_stepped_clock_neither_grants_tokens_nor_stops_culls(pool: SidecarPool, start_redis: StartRedis) -> None:
    """The clock steps forward by an hour, and back; windows take 6 s."""
    window_s = 6.0
    server = start_redis("stepped", faketime=True)
    server.run_clock(0)
    settings: dict[str, Setting] = {**BOUND, "redis_url": server.url, "budget_window": f"{window_s:g}s"}
    driver = ready(pool.fleet(6, **settings))
    first_at = time.time()
    left = use_budget(driver)

    server.run_clock(3600)
    with driver.keep_sick(*left[:2]):
        await_denied(left[0], "data_loss")
        driver.await_down(*driver.members[:4], timeout_s=4 * window_s)
    times = pool.cull_times()
    assert times[2] - times[1] >= window_s, "never more than the budget in a window of real time"
    assert times[0] >= first_at

    hold = ("hold", "--reason", "audit", "--author", "alice", "--for")
    assert command(left[3], *hold, "1h").code == 0
    with driver.keep_sick(left[2]):
        await_denied(left[2], "hold")
        assert command(left[3], *hold, "2s").code == 0, "in place of the first hold"
        server.run_clock(0)
        denied = await_denied(left[2], "data_loss")
        assert 0 < denied["retry_after_s"] <= window_s + 1
        # By a clock that is an hour behind it would last an hour.
        await_metrics(left[3], {"arbiter_hold_until_timestamp_seconds": 0})
        driver.await_down(*driver.members[:5], timeout_s=4 * window_s)
    times = pool.cull_times()
    assert times[4] - times[3] >= window_s


# -- what stands in the store -----------------------------------------------------------------------------------------


def test_ten_thousand_members_that_fall_silent_at_once_do_not_block_the_server(
    start_fleet: Callable[..., FleetDriver], redis_server: RedisServer
) -> None:
    """A beat removes a hundred of them; all at once would take 0.34 s.

    What is counted is the calls: their time by the clock is also that of other processes.
    """
    count, most_a_call = 10_000, 100
    driver = start_fleet(10)
    now_us = time.time_ns() // 1000 - 3_600_000_000
    members = [f"silent-{number:05d}" for number in range(count)]
    for table in ("members", "abouts"):
        redis_server.cli("HSET", key(table), *(word for one in members for word in (one, "life\nredis\n1")))
    redis_server.cli("HINCRBY", key("causes"), "redis", count)
    for table, value in (("errors", 3), ("alive", now_us)):  # the last step: from then on beats remove them
        redis_server.cli("ZADD", key(table), *(word for one in members for word in (value, one)))
    redis_server.cli("CONFIG", "RESETSTAT")
    wait_for(lambda: redis_server.cli("ZCARD", key("alive")) == 10, timeout_s=60, what="they are removed")
    calls = redis_server.cli("INFO", "commandstats")["cmdstat_evalsha"]["calls"]
    assert calls >= count // most_a_call
    driver.await_metrics(fleet_alive=10, fleet_suspect=0)


# -- a later version -------------------------------------------------------------------------------------------------


def test_sidecar_of_a_later_version_neither_stops_culls_nor_breaks_the_bound(
    start_fleet: Callable[..., FleetDriver], redis_server: RedisServer
) -> None:
    """It leaves new fields, unknown strategies and unknown tables in the store."""
    driver = start_fleet(5)
    left = use_budget(driver, 1)
    now_us = time.time_ns() // 1000
    for table, name in (("state", "epoch"), ("state", "state"), ("culls", str(driver.members[0].settings["instance"]))):
        later(redis_server, key(table), name)
    ours = json.loads(redis_server.cli("ZRANGE", key("settings"), 0, -1)[0])
    newer = json.dumps({**ours, "f": 2, "zone": "b"})
    for text in (newer, '{"f":2,"strategy":"leaky","capacity":{"per":"zone"}}', "v2:zzz"):
        redis_server.cli("ZADD", key("settings"), now_us, text)
    redis_server.cli("HSET", key("state"), "quorum", "v2:zzz")
    redis_server.cli("HSET", key("members"), "newer", "life\ncause\n0\nzone-b")
    redis_server.cli("ZADD", key("alive"), now_us, "newer")
    driver.make_sick(*left)
    await_budget_used(driver, "the budget is spent")
    pass_beats(6)
    assert len(driver.down()) == BUDGET
    assert redis_server.cli("HGET", key("state"), "quorum") == "v2:zzz"


def later(server: RedisServer, table: str, name: str) -> None:
    """Write a record as a later version would."""
    record: dict[str, Any] = json.loads(server.cli("HGET", table, name))
    server.cli("HSET", table, name, json.dumps({**record, "f": 2, "zones": {"b": [1, 2]}}))
