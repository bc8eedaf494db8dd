"""A failover, and a slot that moves, in the middle of real sidecars' claims: no token is lost, none is given twice."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pytest

from harness.cluster import Cluster
from harness.crew import Crew, await_denied, await_metrics, claim
from harness.culls import Cull, culls, most_within
from harness.pool import Pool
from harness.sentinels import Watched
from harness.sidecar import Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar
    from harness.starting import Children, StartRedis, StartSidecar

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

BUDGET = 4
WINDOW_S = 60
LOG_SLACK_S: Final = 1.0
"""A cull stands in the log this much after its grant, at the most."""
GRANTS: Final = "{ha:default/app}:grants"
REAL: dict[str, Setting] = {
    "after_data_loss": "wait",
    "beat_interval": "500ms",
    "settle": "0s",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "600ms",
    "budget": str(BUDGET),
    "budget_window": f"{WINDOW_S}s",
}


def forget_latch(one: Sidecar) -> None:
    """Start it again as if it had been killed before it could write down that its claim was granted."""
    one.kill()
    (file,) = one.directory.glob(f"{one.settings['instance']}.state/*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "latch": None}))
    one.start()


def await_granted(crew: Crew, server: RedisServer, count: int) -> None:
    """Wait until so many are down; these are exactly the claims that the server has granted."""
    wait_for(lambda: len(crew.down()) == count, timeout_s=30, what=f"{count} are down")
    wait_for(lambda: len(culls(crew.members)) >= count, timeout_s=30, what="and have told it")
    granted = {cull.claim_id for cull in culls(crew.members)}
    assert sorted(granted) == sorted(server.cli("ZRANGE", GRANTS, 0, -1))


def await_budget_spent(crew: Crew, late: Sidecar) -> None:
    crew.suffer(late)
    told = await_denied(late, "window")
    assert (told["used"], told["capacity"]) == (BUDGET, BUDGET)


# -- Sentinel ---------------------------------------------------------------------------------------------------------


def test_nobody_claims_during_a_failover_and_then_claims_are_granted_or_replayed(
    sidecar: StartSidecar, start_redis: StartRedis, children: Children
) -> None:
    watched = Watched(start_redis, children)
    crew = Crew(sidecar.fleet(6, **REAL, redis_url=watched.url))
    crew.await_metrics(fleet_alive=6)
    early, other, fresh, second, last, late = crew.members
    crew.suffer(early, other)
    crew.await_down(early, other)
    assert watched.master.cli("WAIT", 1, 5000) == 1
    forget_latch(early)
    await_metrics(early, {"arbiter_fleet_down": 2})

    sentinel = watched.sentinels[0]
    sentinel.pause()
    watched.master.kill()
    crew.suffer(early, fresh)
    for one in (early, fresh):
        await_metrics(one, {"arbiter_budget_reachable": 0})
        assert not one.verdict()["claim"]
    sentinel.resume()
    crew.await_down(early, other, fresh)
    assert claim(early)["reason"] == "replayed"
    assert claim(fresh)["reason"] in ("granted", "replayed")  # the latter if its first reply was too late
    assert watched.replica.cli("ROLE")[0] == "master"
    crew.suffer(second)
    await_granted(crew, watched.replica, BUDGET)
    await_budget_spent(crew, last)
    await_metrics(late, {"arbiter_data_losses_total": 0, "arbiter_fleet_alive": 2})


def test_failover_that_loses_the_last_grants_gives_no_more_than_the_budget(
    sidecar: StartSidecar, start_redis: StartRedis, children: Children
) -> None:
    """All four tokens are granted by a master whose replica hears of none, while eight containers are sick."""
    window_s = 15
    watched, pool = Watched(start_redis, children), Pool(sidecar, children)
    crew = Crew(pool.fleet(12, **{**REAL, "budget_window": f"{window_s}s"}, redis_url=watched.url))
    crew.await_metrics(fleet_alive=12)
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.replica.cli("REPLICAOF", "127.0.0.1", "1")
    with crew.suffering(*crew.members[:8]):
        wait_for(lambda: len(crew.down()) == BUDGET, timeout_s=30, what="the budget is spent")
        spent, granted_at = crew.down(), time.monotonic()
        watched.master.kill()
        sentinel, new_port = watched.sentinels[0], watched.replica.port
        wait_for(lambda: sentinel.master_port() == new_port, timeout_s=20, what="the replica takes over")
        sick = [one for one in crew.members[:8] if one not in spent]
        told = await_denied(sick[0], "data_loss")
        assert 0 < told["retry_after_s"] <= window_s
        for one in crew.members:
            await_metrics(one, {"arbiter_data_losses_total": 1})
        assert time.monotonic() - granted_at < window_s, "this machine is too busy for a window of this length"
        assert crew.down() == spent
        wait_for(lambda: len(crew.down()) == 8, timeout_s=3 * window_s, what="after the window the others may go")
    assert most_within(grants(pool), window_s - LOG_SLACK_S) <= BUDGET
    assert crew.members[-1].metrics()["arbiter_data_losses_total"] == 1


def grants(pool: Pool) -> list[Cull]:
    lines = pool.lines(claim="granted")
    return [Cull(datetime.fromisoformat(line["time"]).timestamp(), line["claim_id"]) for line in lines]


# -- Cluster ----------------------------------------------------------------------------------------------------------


def test_claims_while_the_slot_moves_are_granted_once_it_has(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    cluster = Cluster(start_redis)
    owner, new = cluster.owner_of(GRANTS), cluster.strangers_to(GRANTS)[0]
    crew = Crew(sidecar.fleet(6, **REAL, redis_url=cluster.url))
    crew.await_metrics(fleet_alive=6)
    before, during, between, after, late, _ = crew.members
    crew.suffer(before)
    crew.await_down(before)

    cluster.begin_move(GRANTS, new)
    crew.suffer(during)
    await_metrics(during, {"arbiter_budget_reachable": 0})
    cluster.move_keys(GRANTS, new)
    crew.suffer(between)
    await_metrics(between, {"arbiter_budget_reachable": 0})
    told = [line.get("reason") for one in (during, between) for line in one.log_lines()]
    assert "cluster" in told
    crew.await_down(before)
    cluster.end_move(GRANTS, new)
    crew.suffer(after)
    await_granted(crew, new, BUDGET)
    assert owner.cli("CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(GRANTS)) == 0
    await_budget_spent(crew, late)
    await_metrics(late, {"arbiter_data_losses_total": 0})
