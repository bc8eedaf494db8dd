"""Retirement with real sidecars and a real Redis: one at a time, the busy one last, and without tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import AT_ONCE, GATES, command
from harness.waiting import wait_for
from sidecar.app.build_store import fleet_budget, redis_store
from sidecar.config.load import load
from sidecar.core.types import Hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

AGING: dict[str, Setting] = {
    **AT_ONCE,
    **GATES,
    "lifetime": "4s",
    "retire_slots": "1",
    "drain": "500ms",
}
ASKS_OFTEN: dict[str, Setting] = {**AGING, "redis_timeout": "900ms", "check_interval": "1s"}
"""For tests that wait for many requests for a lease."""
GRANTS = "{ha:default/app}:grants"


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


def _retirements(one: Sidecar, outcome: str = "granted") -> float:
    return one.metrics()[f'arbiter_retirements_total{{outcome="{outcome}"}}']


def _hold(server: RedisServer) -> None:
    """Hold the service: the start of a fleet may take longer than the lifetime."""

    async def hold() -> None:
        settings = load({}, {"ARBITER_REDIS_URL": server.url, "ARBITER_SERVICE": "app"})
        budget = fleet_budget(settings, redis_store(settings))
        assert isinstance(await budget.hold("", "ann", "they start", 600), Hold)
        await budget.aclose()

    asyncio.run(hold())


def test_one_retires_at_a_time_stays_down_after_a_kill_and_frees_its_place(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """Nothing but its age: no token is used, and the other one retires only after the replacement."""
    settings: dict[str, Setting] = {**ASKS_OFTEN, "lifetime": "1s"}
    pair = sidecar.fleet(2, **settings, redis_url=redis_server.url)
    for one in pair:
        one.post_error(count=0, app_start="life-1")
    (retired,) = wait_for(lambda: [one for one in pair if _is_down(one)], timeout_s=60, what="one is retired")
    (other,) = (one for one in pair if one is not retired)
    wait_for(lambda: _retirements(other, "denied") >= 2, timeout_s=60, what="the other one may not, twice")
    assert other.health() == (200, "up\n")
    retired.kill()
    retired.start()
    status, body = retired.health("/health/nomad")
    assert status == 503
    assert body.startswith("down: retired at age ")
    assert other.health() == (200, "up\n")
    retired.post_error(count=0, app_start="life-2")
    wait_for(lambda: _is_down(other), timeout_s=60, what="the other one retires after it")
    assert redis_server.cli("ZCARD", GRANTS) == 0
    assert [one.metrics()["arbiter_culls_total"] for one in pair] == [0, 0]


def _is_down(one: Sidecar) -> bool:
    return one.health("/health/nomad")[0] != 200


@pytest.mark.site
@pytest.mark.parametrize("away", ["paused", "gone"])
def test_no_container_retires_without_redis(sidecar: StartSidecar, start_redis: StartRedis, away: str) -> None:
    redis_server = start_redis()
    _hold(redis_server)
    one, other = sidecar.fleet(2, **ASKS_OFTEN, redis_url=redis_server.url)
    for each in (one, other):
        wait_for(
            lambda each=each: each.metrics()["arbiter_budget_reachable"] == 1,  # type: ignore[misc]
            timeout_s=60,
            what="Redis is reached",
        )
    redis_server.pause() if away == "paused" else redis_server.kill()
    before = _retirements(one, "unknown")
    wait_for(lambda: _retirements(one, "unknown") >= before + 3, timeout_s=60, what="three requests for a lease failed")
    assert [each.health() for each in (one, other)] == [(200, "up\n")] * 2
    assert _retirements(one) == 0
    if away == "paused":
        redis_server.resume()
        wait_for(lambda: command(one, "release").code == 0, timeout_s=60, what="the hold is released")
        wait_for(lambda: not _is(one, "retiring")() or not _is(other, "retiring")(), timeout_s=60, what="one retires")
        assert not (_is(one, "down")() and _is(other, "down")())
