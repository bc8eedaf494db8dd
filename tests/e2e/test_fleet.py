"""Several real sidecars and one real Redis: budget and trial, a hold, retirement, and a part that enforces."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from harness.command import command
from harness.fleet_driver import await_answers, await_denied, claim
from harness.sidecar import ASKS_AGAIN, AT_ONCE, GATES
from harness.waiting import wait_for
from sidecar.config.settings import IdentityConfig

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

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
        one.await_health(503)
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


# -- a hold ---------------------------------------------------------------------------------------------------------

HOLD = ("hold", "--for", "1h", "--reason", "migration of the database", "--author", "alice")
SAID = "alice holds the service: migration of the database, no container is culled for"


def _fails_on(one: Sidecar) -> bool:
    """Whether it is down; if not, its app has another error: old errors claim nothing."""
    one.post_error(1)
    return one.health()[0] == 503


def test_hold_set_beside_one_sidecar_keeps_the_others_up_until_it_is_released(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """A hold of one instance leaves the others to be culled; a hold of the service keeps them all."""
    here, there, other = sidecar.fleet(3, redis_url=redis_server.url, **ASKS_AGAIN)
    assert command(here, *HOLD, "--instance", "n01").code == 0
    there.post_error(10)
    await_denied(there, "hold")
    other.post_error(10)
    other.await_health(503)

    assert command(here, *HOLD).code == 0
    here.post_error(10)
    assert await_denied(here, "hold")["sentence"].startswith(SAID)
    until = "arbiter_hold_until_timestamp_seconds"
    wait_for(lambda: here.metrics().get(until, 0) > 0, timeout_s=60, what="the metric has the hold")
    for one in (here, there):
        assert one.health() == (200, "up\n")
        assert "alice" not in one.request("public", "GET", "/metrics").body
    assert command(there, "release").out.startswith("the service is released; ")
    wait_for(lambda: _fails_on(here), timeout_s=60, what="the released container is culled at its next check")
    assert there.health()[0] == 200, "its own hold still counts"


# -- retirement -----------------------------------------------------------------------------------------------------

AGING: dict[str, Setting] = {
    **AT_ONCE,
    **GATES,
    "lifetime": "1s",
    "retire_slots": "1",
    "drain": "500ms",
    "redis_timeout": "900ms",
    "check_interval": "1s",
}


def test_one_retires_at_a_time_stays_down_after_a_kill_and_frees_its_place(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """Nothing but its age: no token is used, and the other one retires only after the replacement."""
    pair = sidecar.fleet(2, **AGING, redis_url=redis_server.url)
    for one in pair:
        one.post_error(count=0, app_start="life-1")
    (retired,) = wait_for(lambda: [one for one in pair if _is_retired(one)], timeout_s=60, what="one is retired")
    (other,) = (one for one in pair if one is not retired)
    denied = 'arbiter_retirements_total{outcome="denied"}'
    wait_for(lambda: other.metrics()[denied] >= 2, timeout_s=60, what="the other one may not, twice")
    assert other.health() == (200, "up\n")
    retired.kill()
    retired.start()
    status, body = retired.health("/health/nomad")
    assert status == 503
    assert body.startswith("down: retired at age ")
    assert other.health() == (200, "up\n")
    retired.post_error(count=0, app_start="life-2")
    wait_for(lambda: _is_retired(other), timeout_s=60, what="the other one retires after it")
    assert redis_server.cli("ZCARD", GRANTS) == 0
    assert [one.metrics()["arbiter_culls_total"] for one in pair] == [0, 0]


def _is_retired(one: Sidecar) -> bool:
    return one.health("/health/nomad")[0] != 200


# -- from shadow to enforce -------------------------------------------------------------------------------------------

PLACES: Final = {name: IdentityConfig(service="app", instance=name).place for name in map("web-{}".format, range(100))}
EARLY: Final = next(name for name, place in PLACES.items() if place < 50)
LATE: Final = next(name for name, place in PLACES.items() if place >= 50)


@pytest.fixture
def pair(sidecar: StartSidecar, redis_server: RedisServer) -> tuple[Sidecar, Sidecar]:
    """Two sidecars of a fleet of which half enforces; the first one does. Each half has one token."""
    rollout_settings: dict[str, Setting] = {
        "redis_url": redis_server.url,
        "enforce_percent": 50,
        "budget": "1",
        **ASKS_AGAIN,
    }
    return sidecar(EARLY, **rollout_settings), sidecar(LATE, **rollout_settings)


def test_enforcing_part_is_culled_and_the_shadow_part_only_would_be(pair: tuple[Sidecar, Sidecar]) -> None:
    """The cull that only would have been takes no token of the enforcing part."""
    enforcing, shadow = pair
    shadow.post_error(5)
    wait_for(lambda: shadow.metrics()["arbiter_would_culls_total"] == 1, timeout_s=60, what="it would be culled")
    enforcing.post_error(5)
    enforcing.await_health(503)
    assert shadow.health() == (200, "up\n")
    assert shadow.agent_line() == "up ready 100%\n"
    assert shadow.metrics()["arbiter_culls_total"] == 0
    assert enforcing.metrics()["arbiter_would_culls_total"] == 0
