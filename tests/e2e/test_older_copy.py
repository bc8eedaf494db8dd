"""Redis goes on with an older copy of its data just after the budget was spent: no more than the budget is culled.

Real sidecars, which beat every 10 s and do not wait before a claim. Only the containers that are down know of the lost
grants. Each story ends once they have shown the loss, after which nothing is granted for a window.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.fleet_driver import FleetDriver, await_answers, claim
from harness.sentinels import SentinelSetup
from harness.sidecar import GATES
from harness.waiting import wait_for
from sidecar.app import build_store
from sidecar.config.load import load
from sidecar.core.fleet.records import Epoch
from sidecar.core.types import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.conftest import StartFleet
    from harness.children import Children, StartRedis
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

BUDGET: Final = 4
KEY: Final = "{ha:default/app}"
SETTINGS: Final = {"budget": str(BUDGET), "trial": "off", "outlier": "off", "settle": "0s", "redis_timeout": "9s"}
DEFAULT_SAVE: Final = ("--save", "3600 1 300 100 60 10000")
APPEND_ONLY: Final = ("--appendonly", "yes")


class Fleet:
    """Twelve sidecars over ``url``, in a store that has known them for an hour and is ``server`` at first."""

    def __init__(self, start_fleet: StartFleet, server: RedisServer, url: str, **settings: str) -> None:
        every = {**GATES, **SETTINGS, **settings, "redis_url": url}
        self._age(server, every)
        self.driver = FleetDriver(start_fleet(12, **every))
        wait_for(lambda: server.cli("ZCARD", f"{KEY}:alive") == 12, timeout_s=60, what="every sidecar has beaten")

    @property
    def members(self) -> list[Sidecar]:
        return self.driver.members

    def spend_budget(self) -> list[Sidecar]:
        """The containers that are culled: four."""
        self.driver.make_sick(*self.members[:BUDGET])
        self.driver.await_down(*self.members[:BUDGET])
        return self.members[:BUDGET]

    def show_the_loss_at(self, server: RedisServer, *late: Sidecar) -> None:
        """Let more containers be sick, and wait until the server knows that it has lost grants."""
        with self.driver.keep_sick(*late):
            wait_for(lambda: losses(server) == 1, timeout_s=60, what="the containers that are down show the loss")
            await_answers(*late)
            assert {claim(one)["outcome"] for one in late} == {"denied"}

    def _age(self, server: RedisServer, settings: dict[str, Any]) -> None:
        """Begin the epoch an hour ago: a new server waits until it has heard the fleet."""
        config = load({}, {f"ARBITER_{name.upper()}": str(value) for name, value in settings.items()})
        servers = build_store.fleet_settings(config).servers
        run_id = server.cli("INFO", "server")["run_id"]
        born_us = int((time.time() - 3600) * US_PER_S)
        server.cli("HSET", f"{KEY}:state", "epoch", Epoch(born_us, servers=servers, run_id=run_id).dump())


def losses(server: RedisServer) -> int:
    """The number of data losses in the epoch of this server."""
    return int(json.loads(server.cli("HGET", f"{KEY}:state", "epoch"))["losses"])


def snapshot(server: RedisServer) -> Callable[[], None]:
    """Let the server save its data; what makes it go on with this snapshot at once."""
    server.cli("SAVE")
    return server.restart


def file_without_its_end(server: RedisServer) -> Callable[[], None]:
    """What makes the server go on at once with its append-only file as it is now: the rest never reached the disk."""
    (file,) = server.directory.glob("appendonlydir/*.incr.aof")
    size = file.stat().st_size

    def lose_power() -> None:
        server.kill()
        os.truncate(file, size)
        server.restart()

    return lose_power


@pytest.mark.parametrize(
    ("args", "crash"), [(DEFAULT_SAVE, snapshot), (APPEND_ONLY, file_without_its_end)], ids=["kill", "loss of power"]
)
def test_crash_just_after_the_grants_culls_no_more_than_the_budget(
    args: tuple[str, ...],
    crash: Callable[[RedisServer], Callable[[], None]],
    start_redis: StartRedis,
    start_fleet: StartFleet,
) -> None:
    server = start_redis("redis", *args)
    fleet = Fleet(start_fleet, server, server.url)
    go_back = crash(server)
    down = fleet.spend_budget()
    go_back()
    fleet.show_the_loss_at(server, *fleet.members[BUDGET : 2 * BUDGET])
    fleet.driver.await_down(*down)


def test_crash_in_an_outage_of_all_costs_no_second_cull(start_redis: StartRedis, start_fleet: StartFleet) -> None:
    server = start_redis("redis", *DEFAULT_SAVE)
    fleet = Fleet(start_fleet, server, server.url, trial="on")
    go_back = snapshot(server)
    with fleet.driver.keep_sick(*fleet.members[:-BUDGET]):
        wait_for(fleet.driver.down, timeout_s=60, what="one is culled")
        go_back()
        fleet.show_the_loss_at(server, *fleet.members[-BUDGET:])
    assert len(fleet.driver.down()) == 1


# -- Sentinel ---------------------------------------------------------------------------------------------------------


def await_promotion(setup: SentinelSetup) -> None:
    """Wait until the Sentinel names the former replica."""
    sentinel, port = setup.sentinels[0], setup.replica.port
    wait_for(lambda: sentinel.master_port() == port, timeout_s=60, what="the replica takes over")


@pytest.mark.site
def test_sentinel_that_promotes_a_replica_without_the_grants_culls_no_more_than_the_budget(
    start_redis: StartRedis, children: Children, start_fleet: StartFleet
) -> None:
    setup = SentinelSetup(start_redis, children)
    fleet = Fleet(start_fleet, setup.master, setup.url)
    assert setup.master.cli("WAIT", 1, 5000) == 1
    setup.replica.cli("REPLICAOF", "127.0.0.1", "1")
    down = fleet.spend_budget()
    setup.master.kill()
    await_promotion(setup)
    fleet.show_the_loss_at(setup.replica, *fleet.members[BUDGET : 2 * BUDGET])
    fleet.driver.await_down(*down)


@pytest.mark.site
def test_failover_by_hand_whose_old_master_goes_on_granting_culls_no_more_than_the_budget(
    start_redis: StartRedis, children: Children, start_fleet: StartFleet
) -> None:
    """The old master takes writes for 11 s more, from half of the sidecars; the others are at the new one."""
    setup = SentinelSetup(start_redis, children)
    fleet = Fleet(start_fleet, setup.master, setup.url)
    assert setup.master.cli("WAIT", 1, 5000) == 1
    setup.sentinels[0].cli("SENTINEL", "FAILOVER", "fleet")
    await_promotion(setup)
    connections = re.findall(r"^id=(\d+) .* cmd=evalsha ", setup.master.cli("CLIENT", "LIST"), flags=re.MULTILINE)
    assert len(connections) >= 10, "the others are at the new one already"
    for number in connections[::2]:
        setup.master.cli("CLIENT", "KILL", "ID", number)
    with fleet.driver.keep_sick(*fleet.members):
        wait_for(lambda: losses(setup.replica) == 1, timeout_s=60, what="the new master knows of its loss")
        await_answers(*fleet.members)
    assert len(fleet.driver.down()) == BUDGET
