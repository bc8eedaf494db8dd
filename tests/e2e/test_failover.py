"""Failovers and moving slots during the claims of real sidecars: no token is lost, and none is granted twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from harness.cluster import Cluster
from harness.culls import Cull, culls, most_within
from harness.fleet_driver import FleetDriver, await_denied, await_metrics, claim
from harness.sentinels import SentinelSetup
from harness.sidecar import Setting
from harness.sidecar_pool import SidecarPool
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children, StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.site]

BUDGET = 4
WINDOW_S = 60
LOG_SLACK_S: Final = 1.0
"""The greatest delay of a cull in the log after its grant."""
GRANTS: Final = "{ha:default/app}:grants"
REAL: dict[str, Setting] = {
    "after_data_loss": "wait",
    "beat_interval": "500ms",
    "settle": "0s",
    "drain": "0s",
    "check_interval": "2s",
    "redis_timeout": "1900ms",
    "budget": str(BUDGET),
    "budget_window": f"{WINDOW_S}s",
}


def forget_latch(one: Sidecar) -> None:
    """Restart the sidecar as if it had been killed before it could save its latch."""
    one.kill()
    (file,) = one.directory.glob(f"{one.settings['instance']}.state/*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "latch": None}))
    one.start()


def await_granted(driver: FleetDriver, server: RedisServer, count: int) -> None:
    """Wait until ``count`` containers are down, for exactly the claims that the server has granted."""
    wait_for(lambda: len(driver.down()) == count, timeout_s=60, what=f"{count} are down")
    wait_for(lambda: len(culls(driver.members)) >= count, timeout_s=60, what="their culls are logged")
    granted = {cull.claim_id for cull in culls(driver.members)}
    assert sorted(granted) == sorted(server.cli("ZRANGE", GRANTS, 0, -1))


def await_budget_spent(driver: FleetDriver, late: Sidecar) -> None:
    driver.make_sick(late)
    denied = await_denied(late, "window")
    assert (denied["used"], denied["capacity"]) == (BUDGET, BUDGET)


# -- Sentinel ---------------------------------------------------------------------------------------------------------


def test_no_sidecar_claims_during_a_failover_and_later_claims_are_granted_or_replayed(
    sidecar: StartSidecar, start_redis: StartRedis, children: Children
) -> None:
    setup = SentinelSetup(start_redis, children)
    driver = FleetDriver(sidecar.fleet(6, **REAL, redis_url=setup.url))
    driver.await_metrics(fleet_alive=6)
    early, other, fresh, second, last, late = driver.members
    driver.make_sick(early, other)
    driver.await_down(early, other)
    assert setup.master.cli("WAIT", 1, 5000) == 1
    forget_latch(early)
    await_metrics(early, {"arbiter_fleet_down": 2})

    sentinel = setup.sentinels[0]
    sentinel.pause()
    setup.master.kill()
    with driver.keep_sick(early, fresh):
        for one in (early, fresh):
            await_metrics(one, {"arbiter_budget_reachable": 0})
            assert not one.verdict()["claim"]
        sentinel.resume()
        driver.await_down(early, other, fresh)
    assert claim(early)["reason"] == "replayed"
    assert claim(fresh)["reason"] in ("granted", "replayed")  # replayed: its first reply was too late
    assert setup.replica.cli("ROLE")[0] == "master"
    driver.make_sick(second)
    await_granted(driver, setup.replica, BUDGET)
    await_budget_spent(driver, last)
    await_metrics(late, {"arbiter_data_losses_total": 0, "arbiter_fleet_alive": 2})


def test_failover_that_loses_the_last_grants_gives_no_more_than_the_budget(
    sidecar: StartSidecar, start_redis: StartRedis, children: Children
) -> None:
    """The master grants all four tokens and its replica gets none of them, while eight containers are sick."""
    window_s = 30
    setup, pool = SentinelSetup(start_redis, children), SidecarPool(sidecar, children)
    driver = FleetDriver(pool.fleet(12, **{**REAL, "budget_window": f"{window_s}s"}, redis_url=setup.url))
    driver.await_metrics(fleet_alive=12)
    assert setup.master.cli("WAIT", 1, 5000) == 1
    setup.replica.cli("REPLICAOF", "127.0.0.1", "1")
    with driver.keep_sick(*driver.members[:8]):
        wait_for(lambda: len(driver.down()) == BUDGET, timeout_s=60, what="the budget is spent")
        spent = driver.down()
        setup.master.kill()
        sentinel, new_port = setup.sentinels[0], setup.replica.port
        wait_for(lambda: sentinel.master_port() == new_port, timeout_s=60, what="the replica takes over")
        sick = [one for one in driver.members[:8] if one not in spent]
        denied = await_denied(sick[0], "data_loss")
        assert 0 < denied["retry_after_s"] <= window_s
        for one in driver.members:
            await_metrics(one, {"arbiter_data_losses_total": 1})
        wait_for(lambda: len(driver.down()) == 8, timeout_s=3 * window_s, what="the others are culled after the window")
    assert most_within((Cull(at_s, "") for at_s in pool.cull_times()), window_s - LOG_SLACK_S) <= BUDGET
    assert driver.members[-1].metrics()["arbiter_data_losses_total"] == 1


# -- Cluster ----------------------------------------------------------------------------------------------------------


def test_claims_while_the_slot_moves_are_granted_once_it_has(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    cluster = Cluster(start_redis)
    owner, new = cluster.owner_of(GRANTS), cluster.strangers_to(GRANTS)[0]
    driver = FleetDriver(sidecar.fleet(6, **REAL, redis_url=cluster.url))
    driver.await_metrics(fleet_alive=6)
    before, during, between, after, late, _ = driver.members
    driver.make_sick(before)
    driver.await_down(before)

    cluster.begin_move(GRANTS, new)
    driver.make_sick(during)
    await_metrics(during, {"arbiter_budget_reachable": 0})
    cluster.move_keys(GRANTS, new)
    driver.make_sick(between)
    await_metrics(between, {"arbiter_budget_reachable": 0})
    wait_for(
        lambda: any(line.get("reason") == "cluster" for one in (during, between) for line in one.log_lines()),
        timeout_s=60,
        what="the moving slot is logged as the reason",
    )
    driver.await_down(before)
    cluster.end_move(GRANTS, new)
    with driver.keep_sick(during, between, after):
        await_granted(driver, new, BUDGET)
    assert owner.cli("CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(GRANTS)) == 0
    await_budget_spent(driver, late)
    await_metrics(late, {"arbiter_data_losses_total": 0})
