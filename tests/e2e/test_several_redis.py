"""Twelve real sidecars with three real Redis servers: the servers together never grant more than the budget."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest

from harness.culls import Ledger, culls, most_within
from harness.fleet_driver import FleetDriver, await_answers, await_denied, await_metrics
from harness.sidecar import GATES, Setting, command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartRedis, StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.site, pytest.mark.timeout(300)]

FLEET = 12
BUDGET = 3
WINDOW_S = 4.0
PREFIX = "{ha:default/app}"
LOG_SLACK_S = 1.0
"""The delay of a cull in the log after its grant, or more if only the next claim was answered in time."""
REAL: dict[str, Setting] = {
    **GATES,
    "trial": "off",  # a trial would allow one cull, because all stay sick
    "outlier": "off",
    "refund": "off",  # the test checks the bound
    "beat_interval": "500ms",
    "settle": "0s",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "300ms",
    "error_window": "10m",
    "probation": "1s",
    "budget": str(BUDGET),
    "budget_window": f"{WINDOW_S}s",
}


@pytest.fixture
def servers(start_redis: StartRedis) -> list[RedisServer]:
    return [start_redis(f"redis-{name}") for name in "abc"]


@pytest.fixture
def start_fleet(sidecar: StartSidecar, servers: list[RedisServer]) -> Callable[[], FleetDriver]:
    """Starts the fleet, and returns it once every member has beaten."""

    def start() -> FleetDriver:
        driver = FleetDriver(sidecar.fleet(FLEET, **REAL, redis_url=",".join(server.url for server in servers)))
        await_metrics(driver.members[0], {"arbiter_fleet_alive": FLEET})
        return driver

    return start


@pytest.fixture
def ledgers(servers: list[RedisServer]) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Ledger(server, PREFIX)) for server in servers]


def check_books(driver: FleetDriver, ledgers: list[Ledger]) -> None:
    """No server granted more than its share, all together no more than the budget, and no more containers went down."""
    for ledger in ledgers:
        ledger.look()
        assert most_within(ledger.grants, WINDOW_S) <= BUDGET / len(ledgers)
    assert most_at_once(ledgers) <= BUDGET
    granted = {grant.claim_id: grant for ledger in ledgers for grant in ledger.grants}
    # The time of the log only where a server lost its grant before the ledger read it.
    down = [granted.get(cull.claim_id, cull) for cull in culls(driver.members)]
    assert most_within(down, WINDOW_S - LOG_SLACK_S) <= BUDGET


def most_at_once(ledgers: list[Ledger]) -> int:
    return most_within((grant for ledger in ledgers for grant in ledger.grants), WINDOW_S)


def await_grants(ledgers: list[Ledger], count: int) -> None:
    what = f"{count} grants in one window, and perhaps those of the next"
    wait_for(lambda: most_at_once(ledgers) >= count, timeout_s=60, what=what)


def test_dead_server_costs_only_its_share(
    start_fleet: Callable[[], FleetDriver], ledgers: list[Ledger], servers: list[RedisServer]
) -> None:
    servers[-1].kill()
    driver = start_fleet()
    driver.make_sick(*driver.members)
    await_answers(*driver.members)
    await_grants(ledgers, BUDGET - 1)
    assert not ledgers[-1].grants
    assert most_at_once(ledgers) == BUDGET - 1
    servers[-1].start()
    wait_for(lambda: ledgers[-1].grants, timeout_s=60, what="the share of the started server is used too")
    check_books(driver, ledgers)


def _held(servers: list[RedisServer]) -> list[bool]:
    """Whether each server has a hold on the service; a released hold has the duration 0."""
    rows = [server.cli("HGET", f"{PREFIX}:holds", "") for server in servers]
    return [bool(row) and json.loads(row)["for_us"] > 0 for row in rows]


def test_hold_at_any_sidecar_holds_at_every_server(
    start_fleet: Callable[[], FleetDriver], servers: list[RedisServer]
) -> None:
    driver = start_fleet()
    here, there = driver.members[:2]
    hold = ("hold", "--for", "1h", "--reason", "audit", "--author", "alice")
    # On a busy machine too few servers may answer within 300 ms.
    wait_for(lambda: command(here, *hold).code == 0, timeout_s=60, what="the fleet is held")
    # A server that did not answer in time gets the hold with a later beat.
    wait_for(lambda: _held(servers) == [True] * 3, timeout_s=60, what="every server has the hold")
    driver.make_sick(there)
    assert "alice holds the service: audit" in await_denied(there, "hold")["sentence"]

    servers[1].pause()
    wait_for(lambda: command(here, "release").code == 0, timeout_s=60, what="the fleet is released")
    servers[1].resume()
    wait_for(lambda: not _held(servers)[1], timeout_s=60, what="the resumed server has the release")
    wait_for(lambda: driver.down() == [there], timeout_s=60, what="it is culled after all")


# -- chaos ------------------------------------------------------------------------------------------------------------


class Chaos:
    """Kills, stops, flushes and restores one server after the other, at random."""

    def __init__(self, servers: list[RedisServer], rng: Random) -> None:
        self.done: list[str] = []
        self._servers = servers
        self._rng = rng
        self._hung: set[RedisServer] = set()

    def act(self) -> None:
        server = self._rng.choice(self._servers)
        if not server.alive or server in self._hung:
            self.mend(server)
            return
        fault = self._rng.choice(("kill", "hang", "flush"))
        self.done.append(f"{fault} {server.name}")
        if fault == "kill":
            server.kill()
        elif fault == "hang":
            server.pause()
            self._hung.add(server)
        else:
            server.cli("FLUSHALL")

    def mend(self, server: RedisServer) -> None:
        self.done.append(f"mend {server.name}")
        if not server.alive:
            server.start()
        elif server in self._hung:
            self._hung.remove(server)
            server.resume()


@pytest.mark.parametrize(("seed", "chaos_s"), [(0, 15.0), (1, 60.0)])
def test_servers_with_random_faults_never_grant_more_than_the_budget(
    start_fleet: Callable[[], FleetDriver], ledgers: list[Ledger], servers: list[RedisServer], seed: int, chaos_s: float
) -> None:
    driver = start_fleet()
    rng = Random(seed)
    chaos = Chaos(servers, rng)
    driver.make_sick(*driver.members)
    # With faults there may be no majority that knows a whole window, and so no grant: the first ones come before.
    wait_for(lambda: culls(driver.members), timeout_s=60, what="tokens are granted before the first fault")
    ends_at, next_at = time.monotonic() + chaos_s, 0.0
    while time.monotonic() < ends_at:
        if time.monotonic() >= next_at:
            chaos.act()
            next_at = time.monotonic() + rng.uniform(0.2, 1.5)
        replace_culled(driver)
        time.sleep(0.05)  # the fleet and the servers need the processor too
    for server in servers:
        chaos.mend(server)
    await_grants_of_all(driver, ledgers, time.time())
    check_books(driver, ledgers)
    for one in driver.members:
        assert one.metrics()['arbiter_failures_total{where="step"}'] == 0, chaos.done


def replace_culled(driver: FleetDriver) -> None:
    """Replace the culled containers, and make the replacements sick."""
    culled = driver.down()
    driver.replace(*culled)
    driver.make_sick(*culled)


def await_grants_of_all(driver: FleetDriver, ledgers: list[Ledger], since: float) -> None:
    """Wait until each server has granted again."""

    def granted() -> bool:
        replace_culled(driver)
        return all(ledger.grants and ledger.grants[-1].at_s > since for ledger in ledgers)

    wait_for(granted, timeout_s=60, what="each of the servers grants again")
