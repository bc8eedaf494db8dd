"""The gates of the fleet: a fleet that restarts help is healed, floors hold, and goodbyes are processed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import FleetDriver, await_denied, await_metrics
from harness.sidecar import GATES, Setting, command
from harness.sidecar_pool import SidecarPool
from harness.waiting import wait_for
from sidecar.core.types import NAMELESS

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

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


def test_release_ends_the_pause_of_a_cause(start_fleet: Callable[..., FleetDriver]) -> None:
    driver = start_fleet(6)
    driver.make_sick(*driver.members, kind="dns")
    tried = wait_for(driver.down, timeout_s=60, what="one is tried")
    driver.replace(*tried)
    driver.make_sick(*tried, kind="dns")
    driver.await_metrics(**{'engineer_needed{reason="paused"}': 1})
    await_denied(driver.members[-1], "paused")
    assert driver.down() == []
    assert command(driver.members[0], "release").code == 0
    driver.await_metrics(**{'engineer_needed{reason="paused"}': 0})
    wait_for(driver.down, timeout_s=60, what="one more is tried")


@pytest.mark.parametrize(
    ("count", "min_healthy", "may_go", "reason"),
    [(4, "50%", 2, "floor"), (2, "0", 1, "last")],
    ids=["half of four stay", "the last one stays"],
)
def test_floor_holds_when_all_are_sick(
    start_fleet: Callable[..., FleetDriver], count: int, min_healthy: str, may_go: int, reason: str
) -> None:
    driver = start_fleet(count, min_healthy=min_healthy, trial="off")
    driver.make_sick(*driver.members)
    wait_for(lambda: len(driver.down()) == may_go, timeout_s=60, what="the allowed number is down")
    down = driver.down()
    for one in driver.members:
        if one not in down:
            await_denied(one, reason)
            assert one.health()[0] == 200
    driver.replace(*down)
    wait_for(driver.down, timeout_s=60, what="the next is culled once the replacements beat")


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


def test_replacement_that_is_named_after_its_first_beat_shows_that_the_cull_helped(
    start_fleet: Callable[..., FleetDriver], sidecar: StartSidecar, redis_server: RedisServer, run_dir: Path
) -> None:
    observer = start_fleet(4).members[0]
    one = sidecar("late", **{**REAL, "redis_url": redis_server.url})
    await_metrics(observer, {"arbiter_fleet_alive": 5})
    one.post_error(5, kind="redis", app_start="first")
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="it is culled")
    one.kill()
    elsewhere = run_dir / "elsewhere"
    elsewhere.mkdir()
    one.settings["state_dir"] = elsewhere  # as on another machine
    one.start()

    def is_known() -> bool:
        return str(redis_server.cli("HGET", key("members"), "late")).startswith(NAMELESS)

    wait_for(is_known, timeout_s=60, what="the fleet knows it without a name")
    one.post_error(count=0, app_start="second")

    def outcomes() -> list[str]:
        events = observer.request("local", "GET", "/events").json()["events"]
        return [event["what"] for event in events if event["what"] in ("helped", "unhelped", "unclear")]

    assert wait_for(outcomes, timeout_s=60, what="the outcome is known") == ["helped"]


def test_token_of_a_cull_that_helped_is_given_back(
    start_fleet: Callable[..., FleetDriver], redis_server: RedisServer
) -> None:
    driver = start_fleet(4, budget="1")
    first, second = driver.members[:2]
    driver.make_sick(first, second)
    (culled,) = wait_for(driver.down, timeout_s=60, what="one of the two is culled")
    waits = second if culled is first else first
    driver.replace(culled)
    driver.await_down(waits)
    refunded = redis_server.cli("ZRANGE", key("refunded"), 0, -1)
    assert refunded == [f"app/{culled.settings['instance']}/life-1"]
    assert redis_server.cli("ZCARD", key("grants")) == 2
