"""Several real sidecars and one real Redis: the fleet never culls more containers than the budget allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import await_answers, await_denied, claim
from harness.sidecar import AT_ONCE, GATES
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process]

GRANTS = "{ha:default/app}:grants"
DENIED = 'arbiter_claims_total{outcome="denied",reason="window"}'


def test_budget_holds_when_all_claim_at_once_and_the_denied_stay_up(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    fleet = sidecar.fleet(6, **AT_ONCE, redis_url=redis_server.url, budget="3")
    with ThreadPoolExecutor(len(fleet)) as pool:
        list(pool.map(lambda one: one.post_error(5), fleet))
    await_answers(*fleet)
    granted, denied = ([one for one in fleet if claim(one)["outcome"] == word] for word in ("granted", "denied"))
    assert (len(granted), len(denied)) == (3, 3)
    assert redis_server.cli("ZCARD", GRANTS) == 3
    for one in granted:
        wait_for(lambda one=one: one.health()[0] == 503, timeout_s=60, what=f"{one.name} is down")  # type: ignore[misc]
        assert one.metrics()["arbiter_culls_total"] == 1
    for one in denied:
        last = claim(one)
        assert (last["reason"], last["used"], last["capacity"]) == ("window", 3, 3)
        assert "all 3 tokens" in last["sentence"]
        assert one.health() == (200, "up\n")
        assert one.metrics()[DENIED] >= 1


def test_when_all_are_sick_one_is_culled_and_the_others_stay_up(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """The default gates: one trial, until its outcome is known."""
    fleet = sidecar.fleet(4, **{**AT_ONCE, **GATES, "after_data_loss": "continue"}, redis_url=redis_server.url)
    alive = "arbiter_fleet_alive"
    wait_for(lambda: {one.metrics().get(alive) for one in fleet} == {4}, timeout_s=60, what="they know each other")
    for one in fleet:
        one.post_error(5, kind="redis")
    wait_for(lambda: [one for one in fleet if one.health()[0] == 503], timeout_s=60, what="one is culled")
    await_answers(*fleet)
    (culled,) = (one for one in fleet if claim(one).get("outcome") == "granted")
    for one in fleet:
        if one is not culled:
            assert "not known yet" in await_denied(one, "trial")["sentence"]
            assert one.health() == (200, "up\n")
    assert redis_server.cli("ZCARD", GRANTS) == 1
