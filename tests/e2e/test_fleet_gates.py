"""The gates of the fleet: a fleet that restarts help is healed, floors hold, and goodbyes are processed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import FleetDriver, await_denied, await_metrics
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar_pool import SidecarPool

pytestmark = [pytest.mark.redis, pytest.mark.site]

REAL: dict[str, Setting] = {
    **GATES,
    "beat_interval": "500ms",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "4100ms",
    "redis_timeout": "4s",
    "probation": "1s",
    "budget": "10",
    "budget_window": "60s",
}


@pytest.fixture
def start_fleet(pool: SidecarPool, redis_server: RedisServer) -> Callable[..., FleetDriver]:
    """Starts a fleet, and returns it once every member has beaten."""

    def start(count: int, **settings: Setting) -> FleetDriver:
        driver = FleetDriver(pool.fleet(count, **{**REAL, "redis_url": redis_server.url, **settings}))
        driver.await_metrics(fleet_alive=count)
        return driver

    return start


def key(name: str) -> str:
    return f"{{ha:default/app}}:{name}"


def test_fleet_that_restarts_help_is_healed_by_a_growing_number_of_culls_at_once(
    start_fleet: Callable[..., FleetDriver],
) -> None:
    driver = start_fleet(12)
    sick = driver.members[:9]
    driver.make_sick(*sick)
    (first,) = wait_for(driver.down, timeout_s=60, what="one is tried")
    assert "not known yet" in await_denied(next(one for one in sick if one is not first), "trial")["sentence"]
    driver.replace(first)
    wait_for(lambda: len(driver.down()) > 1, timeout_s=60, what="several are tried at once")
    while any(one.verdict()["state"] != "up" for one in sick):
        driver.replace(*driver.down())
    driver.await_metrics(fleet_alive=12, fleet_suspect=0, fleet_down=0)


def test_goodbye_counts_at_once_and_silence_after_three_beats(
    start_fleet: Callable[..., FleetDriver], sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    beat_s = 1.0
    driver = start_fleet(1, beat_interval=f"{beat_s}s")
    graceful, killed = (
        sidecar(name, **{**REAL, "beat_interval": f"{beat_s}s", "stop_drain": "30s", "redis_url": redis_server.url})
        for name in ("graceful", "killed")
    )
    await_metrics(driver.members[0], {"arbiter_fleet_alive": 3})

    def await_gone(name: str) -> None:
        wait_for(lambda: redis_server.cli("ZSCORE", key("alive"), name) is None, timeout_s=60, what=f"{name} is gone")

    graceful.terminate()
    await_gone("graceful")
    assert graceful.alive, "it said goodbye while it still drains"
    graceful.kill()
    killed.kill()
    heard_us = float(redis_server.cli("ZSCORE", key("alive"), "killed"))
    await_gone("killed")
    seconds, us = redis_server.cli("TIME")
    assert 3 * beat_s <= seconds + (us - heard_us) / 1e6 <= 30 * beat_s
    await_metrics(driver.members[0], {"arbiter_fleet_alive": 1})
