"""Thirty real sidecars on one Redis with all the gates: who is culled, who is not, and what everybody is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from harness.command import command
from harness.crew import Crew, await_denied, await_metrics, claim
from harness.culls import Ledger, culls, in_use, most_within
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar
    from harness.starting import StartRedis, StartSidecar

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]

FLEET = 30
BUDGET = 3
WINDOW_S = 6.0
PREFIX = "{ha:default/app}"
REAL: dict[str, Setting] = {
    **GATES,
    "beat": "500ms",
    "settle": "1s",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "900ms",
    "probation": "1500ms",
    "budget": str(BUDGET),
    "budget_window": f"{WINDOW_S}s",
}


def key(name: str, service: str) -> str:
    return f"{{ha:default/{service}}}:{name}"


@pytest.fixture(scope="module")
def shared_redis(start_shared_redis: StartRedis) -> RedisServer:
    return start_shared_redis()


@pytest.fixture(scope="module")
def fleet(shared_sidecar: StartSidecar, shared_redis: RedisServer) -> Crew:
    return Crew(shared_sidecar.fleet(FLEET, **REAL, redis_url=shared_redis.url))


@pytest.fixture
def calm(fleet: Crew, shared_redis: RedisServer) -> Crew:
    """The fleet with everybody well, no incident, and all tokens in the bucket."""
    fleet.replace(*fleet.members)
    told = {"fleet_alive": FLEET, "fleet_wanting": 0, "fleet_down": 0, 'brake{phase="off"}': 1, "fleet_policies": 1}
    await_metrics(fleet.members[0], {f"arbiter_{name}": value for name, value in told.items()})
    wait_for(lambda: in_use(shared_redis, PREFIX, WINDOW_S) == 0, timeout_s=3 * WINDOW_S, what="all tokens are back")
    return fleet


@pytest.fixture(scope="module")
def ledger(shared_redis: RedisServer) -> Iterator[Ledger]:
    with Ledger(shared_redis, PREFIX) as ledger:
        yield ledger


@pytest.fixture
def small(sidecar: StartSidecar, shared_redis: RedisServer) -> Callable[..., Crew]:
    """Starts a small fleet for one test, on the same Redis and under another name."""

    def start(service: str, count: int, **settings: Setting) -> Crew:
        every = {**REAL, "service": service, "redis_url": shared_redis.url, **settings}
        crew = Crew(sidecar.fleet(count, **every))
        crew.await_metrics(fleet_alive=count)
        return crew

    return start


def _of_policies(one: Sidecar) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if "different policies" in line["message"]]


def _has_said(one: Sidecar, words: str) -> bool:
    return any(words in line["message"] for line in one.log_lines())


def check_books(fleet: Crew, ledger: Ledger) -> None:
    """No sidecar has put its container down without a grant, and of those there were never more than the budget."""
    ledger.look()
    assert {cull.claim_id for cull in culls(fleet.members)} <= {cull.claim_id for cull in ledger.grants}
    assert most_within(ledger.grants, WINDOW_S) <= BUDGET


def check_canaries(fleet: Crew, ledger: Ledger, before: int) -> None:
    """Since there were so many grants nobody was culled but a canary, or several if more than a window has passed."""
    wait_for(
        lambda: fleet.members[-1].metrics().get("arbiter_fleet_down") == len(fleet.down()),
        timeout_s=20,
        what="the fleet knows how many are down",
    )
    ledger.look()
    assert most_within(ledger.grants[before:], WINDOW_S) == 1


# -- thirty at once -------------------------------------------------------------------------------------------------


def test_two_lone_bad_containers_are_culled_and_nobody_else(calm: Crew, ledger: Ledger) -> None:
    before = len(culls(calm.members))
    bad = calm.members[3], calm.members[17]
    calm.suffer(*bad, kind="disk")
    calm.await_down(*bad)
    calm.await_metrics(fleet_alive=FLEET - 2, fleet_down=2, fleet_wanting=0, **{'brake{phase="off"}': 1})
    wait_for(lambda: len(culls(calm.members)) == before + 2, timeout_s=30, what="the logs tell of two culls")
    check_books(calm, ledger)


def test_of_a_fleet_that_suffers_one_canary_is_culled_and_the_others_once_that_helped(
    calm: Crew, ledger: Ledger
) -> None:
    before = len(ledger.grants)
    calm.suffer(*calm.members)
    canary = wait_for(calm.down, timeout_s=20, what="a canary is sent")[0]
    for one in calm.members:
        if one is not canary:
            told = await_denied(one, "brake")
            assert "suffer at once" in told["sentence"]
            assert told["sentence"].endswith("share one cause: redis")
    calm.await_metrics(**{'brake{phase="on"}': 1, 'fleet_same_cause{kind="redis"}': 1})
    check_canaries(calm, ledger, before)
    assert canary in calm.down()
    assert "as the canary" in claim(canary)["sentence"]

    calm.replace(canary)
    calm.await_metrics(**{'brake{phase="open"}': 1})
    await_metrics(calm.members[0], {'arbiter_engineer_needed{reason="brake"}': 0})
    more_than_one_window = before + BUDGET + 1
    wait_for(lambda: len(ledger.grants) >= more_than_one_window, timeout_s=30, what="culls go on, window after window")
    check_books(calm, ledger)


def test_canary_that_fell_ill_again_ends_all_culls_until_a_person_releases_them(calm: Crew, ledger: Ledger) -> None:
    calm.suffer(*calm.members, kind="dns")
    canary = wait_for(calm.down, timeout_s=20, what="a canary is sent")[0]
    calm.replace(canary)
    calm.suffer(canary, kind="dns")
    calm.await_metrics(**{'brake{phase="closed"}': 1, 'engineer_needed{reason="brake"}': 1})
    assert calm.down() == []

    ledger.look()
    before = len(ledger.grants)
    assert command(calm.members[0], "release").code == 0
    calm.await_metrics(**{'brake{phase="on"}': 1, 'engineer_needed{reason="brake"}': 0})
    wait_for(calm.down, timeout_s=3 * WINDOW_S, what="another canary is sent")
    check_canaries(calm, ledger, before)
    check_books(calm, ledger)


def test_one_sidecar_with_a_smaller_budget_binds_all_of_them_while_it_is_there(
    calm: Crew, ledger: Ledger, sidecar: StartSidecar, shared_redis: RedisServer
) -> None:
    odd = sidecar("odd", **{**REAL, "budget": "1"}, redis_url=shared_redis.url)
    calm.await_metrics(fleet_alive=FLEET + 1, fleet_policies=2)
    bad = calm.members[:2]
    calm.suffer(*bad, kind="disk")
    first = wait_for(calm.down, timeout_s=20, what="one of the two is culled")
    (second,) = (one for one in bad if one not in first)
    told = await_denied(second, "window")
    assert (told["used"], told["capacity"]) == (1, 1)
    for one in (calm.members[-1], odd):
        lines = wait_for(partial(_of_policies, one), timeout_s=30, what="its log tells of two policies")
        assert [line["policies"] for line in lines] == [2]

    odd.stop()
    calm.await_metrics(fleet_policies=1)
    calm.await_down(*bad)
    check_books(calm, ledger)


def test_flushed_redis_gives_no_token_for_a_window(calm: Crew, ledger: Ledger, shared_redis: RedisServer) -> None:
    sick = calm.members[5]
    flushed_at = time.time()
    shared_redis.cli("FLUSHALL")
    calm.suffer(sick, kind="disk")
    told = await_denied(sick, "lost_memory")
    assert 0 < told["retry_after_s"] <= WINDOW_S
    calm.await_metrics(memory_losses_total=1, fleet_alive=FLEET)
    wait_for(partial(_has_said, sick, "lost the memory"), timeout_s=30, what="the log tells of it")
    calm.await_down(sick)
    ledger.look()
    assert ledger.grants[-1].at_s >= flushed_at + WINDOW_S
    check_books(calm, ledger)


# -- a few --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "min_healthy", "may_go", "reason"),
    [(4, "50%", 2, "floor"), (2, "0", 1, "last")],
    ids=["half of four stay", "the last one stays"],
)
def test_floor_holds_however_many_suffer(
    small: Callable[..., Crew], count: int, min_healthy: str, may_go: int, reason: str
) -> None:
    crew = small(f"floor-{reason}-{count}", count, min_healthy=min_healthy, brake="0")
    crew.suffer(*crew.members)
    wait_for(lambda: len(crew.down()) == may_go, timeout_s=30, what="so many go")
    down = crew.down()
    for one in crew.members:
        if one not in down:
            await_denied(one, reason)
    assert crew.down() == down
    crew.replace(*crew.down())
    wait_for(lambda: len(crew.down()) > 0, timeout_s=20, what="with their replacements there the next may go")
    assert len(crew.down()) <= may_go


def test_goodbye_is_heard_at_once_and_silence_after_three_beats(
    small: Callable[..., Crew], shared_redis: RedisServer
) -> None:
    beat_s = 1.0
    crew = small("leaving", 3, beat=f"{beat_s}s", stop_drain="30s")
    stays, told, untold = crew.members
    alive = key("alive", "leaving")

    def await_gone(one: Sidecar) -> None:
        asked = ("ZSCORE", alive, str(one.settings["instance"]))
        wait_for(lambda: shared_redis.cli(*asked) is None, timeout_s=20, what=f"{one.name} is gone")

    told.terminate()
    await_gone(told)
    assert told.alive, "it said so while it still drains, and beats"
    told.kill()
    untold.kill()
    heard_us = float(shared_redis.cli("ZSCORE", alive, str(untold.settings["instance"])))
    await_gone(untold)
    seconds, us = shared_redis.cli("TIME")
    assert 3 * beat_s <= seconds + (us - heard_us) / 1e6 <= 10 * beat_s
    await_metrics(stays, {"arbiter_fleet_alive": 1})


def test_proven_replacement_earns_its_token_back(small: Callable[..., Crew], shared_redis: RedisServer) -> None:
    crew = small("earning", 4, budget="1", budget_window="5m", earn="on")
    first, second = crew.members[:2]
    crew.suffer(first, second)
    wait_for(crew.down, timeout_s=20, what="one of the two is culled")
    (culled,) = crew.down()
    waits = second if culled is first else first
    await_denied(waits, "window")
    crew.replace(culled)
    crew.await_down(waits)
    assert shared_redis.cli("ZRANGE", key("earned", "earning"), 0, -1) == [f"earning/{culled.name[8:]}/life-1"]
    assert shared_redis.cli("ZCARD", key("grants", "earning")) == 1
