"""Retirement with real sidecars and a real Redis: one at a time, the busy one last, and without tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.sidecar import AT_ONCE, GATES
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
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


def _retirements(one: Sidecar, outcome: str = "granted") -> float:
    return one.metrics()[f'arbiter_retirements_total{{outcome="{outcome}"}}']


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
