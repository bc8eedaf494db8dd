"""Several real sidecars and one real Redis: the fleet never culls more containers than the budget allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import await_answers
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

FAST = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "900ms"}
GRANTS = "{ha:default/app}:grants"
WINDOW_S = PRESET_WINDOW_S = 600
ROOM_S = 120
DENIED = 'arbiter_claims_total{outcome="denied",reason="window"}'


def test_of_twelve_bad_containers_ten_are_culled(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    fleet = sidecar.fleet(12, **FAST, redis_url=redis_server.url)
    for one in fleet:
        one.post_error(5, kind="redis")
        await_answers(one)
    statuses = [one.health()[0] for one in fleet]
    assert statuses == [503] * 10 + [200] * 2
    assert redis_server.cli("ZCARD", GRANTS) == 10

    for one in fleet[10:]:
        claim = one.verdict()["claim"]
        assert (claim["outcome"], claim["reason"], claim["used"]) == ("denied", "window", 10)
        assert "all 10 tokens" in claim["sentence"]
        seconds, us = redis_server.cli("TIME")
        ((_, first_us),) = redis_server.cli("ZRANGE", GRANTS, 0, 0, "WITHSCORES")
        left_s = first_us / 1e6 + WINDOW_S - (seconds + us / 1e6)
        assert left_s <= claim["retry_after_s"] <= WINDOW_S + 0.1
        assert one.metrics()[DENIED] >= 1
    for one in fleet[:10]:
        assert one.metrics()["arbiter_culls_total"] == 1


def test_budget_holds_when_all_claim_at_once(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    fleet = sidecar.fleet(6, **FAST, redis_url=redis_server.url, budget="3")
    with ThreadPoolExecutor(len(fleet)) as pool:
        list(pool.map(lambda one: one.post_error(5), fleet))
    await_answers(*fleet)
    assert sorted(one.health()[0] for one in fleet) == [200] * 3 + [503] * 3


def test_token_that_is_free_again_goes_to_the_next_suspect(sidecar: StartSidecar, faketime_redis: RedisServer) -> None:
    one, other = sidecar.fleet(2, **FAST, redis_url=faketime_redis.url, budget="1", budget_window="5s")
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="the first is down")
    other.post_error(5)
    wait_for(lambda: other.metrics().get(DENIED, 0) >= 1, timeout_s=60, what="the second finds no free token")
    assert other.health()[0] == 200
    faketime_redis.advance(5.001)
    wait_for(lambda: other.health()[0] == 503, timeout_s=60, what="the second gets the free token")


def test_shadow_containers_use_no_token_of_the_enforcing_ones(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    shadow = sidecar("shadow", **FAST, redis_url=redis_server.url, budget="1", mode="shadow")
    shadow.post_error(5)
    wait_for(
        lambda: shadow.metrics()["arbiter_would_culls_total"] == 1, timeout_s=60, what="shadow says that it would cull"
    )
    assert shadow.health() == (200, "up\n")
    assert shadow.metrics()["arbiter_culls_total"] == 0
    enforcing = sidecar("enforcing", **FAST, redis_url=redis_server.url, budget="1")
    enforcing.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=60, what="the enforcing one has the token")


def _left_s() -> float:
    """Seconds until the next of the six windows of the hour, by the local clock, as in the article."""
    now = datetime.now().astimezone()
    return PRESET_WINDOW_S - (60 * now.minute + now.second) % PRESET_WINDOW_S


@pytest.mark.parametrize("code_in_process", [0, 7])
def test_preset_shares_the_budget_of_the_article(
    sidecar: StartSidecar, redis_server: RedisServer, code_in_process: int
) -> None:
    """Containers that count in process share ten culls with sidecars under the preset, which answer 400."""
    wait_for(lambda: _left_s() > ROOM_S, timeout_s=2 * ROOM_S, what="the window is long enough for the test")
    for index in range(6):  # in each of the six windows of the hour
        for _ in range(code_in_process):
            redis_server.cli("INCR", f"errorWatcher:{index}")
    fleet = sidecar.fleet(11 - code_in_process, **FAST, redis_url=redis_server.url, preset="classdojo")
    for one in fleet:
        one.post_error(5)
        await_answers(one)
    assert [one.health()[0] for one in fleet] == [400] * (10 - code_in_process) + [200]
