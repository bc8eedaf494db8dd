"""Several real sidecars and one real Redis: the fleet never puts more containers down than the bucket allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from harness.crew import await_answers
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import StartSidecar

FAST = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "900ms"}
GRANTS = "{ha:default/app}:grants"
WINDOW_S = PRESET_WINDOW_S = 600
ROOM_S = 45
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


def test_all_at_once_is_no_different(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    fleet = sidecar.fleet(6, **FAST, redis_url=redis_server.url, budget="3")
    with ThreadPoolExecutor(len(fleet)) as pool:
        list(pool.map(lambda one: one.post_error(5), fleet))
    await_answers(*fleet)
    assert sorted(one.health()[0] for one in fleet) == [200] * 3 + [503] * 3


def test_a_token_that_comes_back_goes_to_who_still_needs_it(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one, other = sidecar.fleet(2, **FAST, redis_url=redis_server.url, budget="1", budget_window="5s")
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=20, what="the first is down")
    other.post_error(5)
    wait_for(lambda: other.health()[0] == 503, timeout_s=30, what="the second has the token that came back")
    assert other.metrics()[DENIED] >= 1, "and had none before"


def test_shadow_containers_spend_no_token_of_the_others(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    shadow = sidecar("shadow", **FAST, redis_url=redis_server.url, budget="1", mode="shadow")
    shadow.post_error(5)
    wait_for(
        lambda: shadow.metrics()["arbiter_would_culls_total"] == 1, timeout_s=20, what="shadow says that it would cull"
    )
    assert shadow.health() == (200, "up\n")
    assert shadow.metrics()["arbiter_culls_total"] == 0
    enforcing = sidecar("enforcing", **FAST, redis_url=redis_server.url, budget="1")
    enforcing.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=20, what="the enforcing one has the token")


def _left_s() -> float:
    """Seconds until the next of the six windows of the hour begins, by the local clock, as the article has them."""
    now = datetime.now().astimezone()
    return PRESET_WINDOW_S - (60 * now.minute + now.second) % PRESET_WINDOW_S


@pytest.mark.timeout(180)
@pytest.mark.parametrize("code_in_process", [0, 7])
def test_preset_shares_the_articles_bucket(
    sidecar: StartSidecar, redis_server: RedisServer, code_in_process: int
) -> None:
    """Containers that count in process and sidecars under the preset: ten in all, and status 400."""
    wait_for(lambda: _left_s() > ROOM_S, timeout_s=2 * ROOM_S, what="all of it can be within one window")
    for index in range(6):  # whichever of the six windows of the hour it is
        for _ in range(code_in_process):
            redis_server.cli("INCR", f"errorWatcher:{index}")
    fleet = sidecar.fleet(11 - code_in_process, **FAST, redis_url=redis_server.url, preset="classdojo")
    for one in fleet:
        one.post_error(5)
        await_answers(one)
    assert [one.health()[0] for one in fleet] == [400] * (10 - code_in_process) + [200]
