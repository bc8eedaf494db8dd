"""Twelve real sidecars that share three real Redis servers: the shares add up to the budget, whatever befalls them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from harness.command import command
from harness.crew import Crew, await_answers, await_denied, await_metrics
from harness.culls import Ledger, culls, most_within
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis, StartSidecar

CHAOS_S: Final = float(os.environ.get("FLEET_CHAOS_S", "15"))
"""So many seconds the servers are tormented; 60 and more for a thorough run."""
SEED: Final = int(os.environ.get("FLEET_SEED", "0"))

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180 + CHAOS_S)]

FLEET = 12
BUDGET = 3
WINDOW_S = 4.0
PREFIX = "{ha:default/app}"
LOG_SLACK_S = 1.0
"""A cull stands in the log after its grant; much later, if only the next claim was answered in time."""
REAL: dict[str, Setting] = {
    **GATES,
    "trial": "off",  # or a cull for the one cause would be all, for everybody suffers and goes on to
    "outlier": "off",
    "refund": "off",  # what is judged is the bound
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
def start_crew(sidecar: StartSidecar, servers: list[RedisServer]) -> Callable[[], Crew]:
    """Starts the fleet, and hands it over once all of it has been heard."""

    def start() -> Crew:
        crew = Crew(sidecar.fleet(FLEET, **REAL, redis_url=",".join(server.url for server in servers)))
        await_metrics(crew.members[0], {"arbiter_fleet_alive": FLEET})
        return crew

    return start


@pytest.fixture
def ledgers(servers: list[RedisServer]) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Ledger(server, PREFIX)) for server in servers]


def check_books(crew: Crew, ledgers: list[Ledger]) -> None:
    """No server gave more than its share, nor all of them more than the budget, and no more went down than that."""
    for ledger in ledgers:
        ledger.look()
        assert most_within(ledger.grants, WINDOW_S) <= BUDGET / len(ledgers)
    assert most_at_once(ledgers) <= BUDGET
    granted = {grant.claim_id: grant for ledger in ledgers for grant in ledger.grants}
    # By its log only where a server forgot its grant before it was seen.
    down = [granted.get(cull.claim_id, cull) for cull in culls(crew.members)]
    assert most_within(down, WINDOW_S - LOG_SLACK_S) <= BUDGET


def most_at_once(ledgers: list[Ledger]) -> int:
    return most_within((grant for ledger in ledgers for grant in ledger.grants), WINDOW_S)


def await_grants(ledgers: list[Ledger], count: int) -> None:
    what = f"{count} grants in one window, and perhaps those of the next"
    wait_for(lambda: most_at_once(ledgers) >= count, timeout_s=20, what=what)


def test_server_that_is_dead_from_the_start_takes_only_its_share_along(
    start_crew: Callable[[], Crew], ledgers: list[Ledger], servers: list[RedisServer]
) -> None:
    servers[-1].kill()
    crew = start_crew()
    crew.suffer(*crew.members)
    await_answers(*crew.members)
    await_grants(ledgers, BUDGET - 1)
    assert not ledgers[-1].grants
    assert most_at_once(ledgers) == BUDGET - 1
    servers[-1].start()
    wait_for(lambda: ledgers[-1].grants, timeout_s=20, what="the share that was away is spent as well")
    check_books(crew, ledgers)


def _held(servers: list[RedisServer]) -> list[bool]:
    """Whether each server has a hold on the service; the row of one that was released lasts for no time."""
    rows = [server.cli("HGET", f"{PREFIX}:holds", "") for server in servers]
    return [bool(row) and json.loads(row)["for_us"] > 0 for row in rows]


def test_hold_at_any_sidecar_holds_at_every_server(start_crew: Callable[[], Crew], servers: list[RedisServer]) -> None:
    crew = start_crew()
    here, there = crew.members[:2]
    assert command(here, "hold", "--for", "1h", "--reason", "audit", "--author", "alice").code == 0
    # Who was too busy to answer in time is told again.
    wait_for(lambda: _held(servers) == [True] * 3, timeout_s=20, what="it is held at every server")
    crew.suffer(there)
    assert "alice holds the service: audit" in await_denied(there, "hold")["sentence"]

    servers[1].pause()
    assert command(here, "release").code == 0
    servers[1].resume()
    wait_for(lambda: not _held(servers)[1], timeout_s=30, what="the one that hung is told")
    wait_for(lambda: crew.down() == [there], timeout_s=20, what="it is culled after all")


# -- chaos ------------------------------------------------------------------------------------------------------------


class Tormentor:
    """Kills, hangs, flushes and brings back one server after the other, as chance has it."""

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
        deed = self._rng.choice(("kill", "hang", "flush"))
        self.done.append(f"{deed} {server.name}")
        if deed == "kill":
            server.kill()
        elif deed == "hang":
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


def test_tormented_servers_never_give_more_than_the_budget(
    start_crew: Callable[[], Crew], ledgers: list[Ledger], servers: list[RedisServer]
) -> None:
    crew = start_crew()
    rng = Random(SEED)
    tormentor = Tormentor(servers, rng)
    crew.suffer(*crew.members)
    # While they are tormented there may be no majority that remembers a window, and no grant: so first of all some.
    wait_for(lambda: culls(crew.members), timeout_s=30, what="tokens are granted before anything is tormented")
    ends_at, next_at = time.monotonic() + CHAOS_S, 0.0
    while time.monotonic() < ends_at:
        if time.monotonic() >= next_at:
            tormentor.act()
            next_at = time.monotonic() + rng.uniform(0.2, 1.5)
        replace_culled(crew)
    for server in servers:
        tormentor.mend(server)
    await_grants_of_all(crew, ledgers, time.time())
    check_books(crew, ledgers)
    for one in crew.members:
        assert one.metrics()['arbiter_failures_total{where="step"}'] == 0, tormentor.done


def replace_culled(crew: Crew) -> None:
    """Let the next life of whoever is culled begin, and suffer as much."""
    culled = crew.down()
    crew.replace(*culled)
    crew.suffer(*culled)


def await_grants_of_all(crew: Crew, ledgers: list[Ledger], since: float) -> None:
    """Wait until each server has granted again."""

    def granted() -> bool:
        replace_culled(crew)
        return all(ledger.grants and ledger.grants[-1].at_s > since for ledger in ledgers)

    wait_for(granted, timeout_s=60, what="each of the servers grants again")
