"""The jobs of Nomad with a stand-in for it: a culled app is restarted or replaced, and what fails is told."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from deploy.nomad_job import JOB_FILE, TASK_API_JOB_FILE, read
from deploy.nomad_stand_in import SPEED, Placement, until
from harness.command import command
from harness.haproxy import Ports, await_status, cascade, status
from harness.ports import free_ports
from harness.traffic import Traffic, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting

pytestmark = [pytest.mark.site, pytest.mark.redis]

REQUESTS: Final = 100
RATE: Final = 100
QUICK: Final[dict[str, Setting]] = {"mode": "enforce", "settle": 0, "check_interval": "2s"}
JOBS: Final = {
    "check": (JOB_FILE, {}),
    "nomad-stop": (TASK_API_JOB_FILE, {"action": "nomad-stop"}),
    "nomad-restart": (TASK_API_JOB_FILE, {"action": "nomad-restart", "nomad_task": "app"}),
}
RESULTS: Final = {"check": "failed", "nomad-stop": "stopped", "nomad-restart": "restarted"}
AWAY_S: Final = read(JOB_FILE.read_text()).patience_s / SPEED + 2
"""How long an arbiter is stopped: the check job's patience is over by then."""


@pytest.fixture
def places(run_dir: Path, children: Children, redis_server: RedisServer) -> Iterator[dict[str, Placement]]:
    """An allocation of each job, all of one service."""
    made = {
        name: Placement(name, read(path.read_text()), run_dir, children, redis_url=redis_server.url, **QUICK, **more)
        for name, (path, more) in JOBS.items()
    }
    with ExitStack() as stack:
        for place in made.values():
            stack.callback(place.start().end)
        yield made


@pytest.mark.haproxy
def test_sick_app_is_restarted_without_a_lost_get_and_a_dead_arbiter_hurts_only_with_the_check(
    places: dict[str, Placement], run_dir: Path, haproxy: StartHaproxy
) -> None:
    front, metrics = free_ports(2)
    servers = {name: Ports(place.ports["app"], place.ports["agent"]) for name, place in places.items()}
    proxy = haproxy(cascade(servers, front=front, metrics=metrics, state=run_dir / "server-state"))
    for name in places:
        await_status(proxy, name, "UP")
    with Traffic(front, RATE) as traffic:
        for name in places:
            _see_a_cull(places, name, proxy)
        traffic.next_answers(REQUESTS)
    assert {each: count for each, count in lost(traffic.so_far()).items() if each.method == "GET"} == {}
    _see_dead_arbiters(places)


def _see_a_cull(places: dict[str, Placement], name: str, proxy: Haproxy) -> None:
    place = places[name]
    allocation, pid = place.allocation, place.app.pid
    place.arbiter.post_error(5, kind="redis")
    wait_for(lambda: not status(proxy, name).startswith("UP"), timeout_s=60, what="HAProxy sends nothing")
    assert place.app.pid == pid, "it is drained first"
    until(places.values(), lambda: place.events == [RESULTS[name]] and place.is_up(), f"{name} is up again")
    assert place.app.pid != pid
    assert (place.allocation == allocation) == (name == "nomad-restart")
    await_status(proxy, name, "UP")


def _see_dead_arbiters(places: dict[str, Placement]) -> None:
    before = {name: place.app.pid for name, place in places.items()}
    for place in places.values():
        place.arbiter.kill()
    _await_all(places)
    assert {name: place.app.pid for name, place in places.items()} == before
    for place in places.values():
        place.arbiter.pause()
    checked, over = places["check"], time.monotonic() + AWAY_S
    until(places.values(), lambda: time.monotonic() > over and checked.events == ["failed"] * 2, "its check has failed")
    untouched = [name for name in places if name != "check"]
    for name in untouched:
        places[name].arbiter.resume()
    _await_all(places)
    assert {name: places[name].app.pid for name in untouched} == {name: before[name] for name in untouched}


def _await_all(places: dict[str, Placement]) -> None:
    until(places.values(), lambda: all(place.is_up() for place in places.values()), "all are up")


@pytest.mark.parametrize("is_killed", [False, True], ids=["the same sidecar", "a restarted sidecar"])
def test_cull_of_an_agent_that_is_away_for_long_has_failed_and_is_carried_out_when_it_is_back(
    run_dir: Path, children: Children, redis_server: RedisServer, *, is_killed: bool
) -> None:
    job = read(TASK_API_JOB_FILE.read_text())
    place = Placement("one", job, run_dir, children, redis_url=redis_server.url, **QUICK)
    with ExitStack() as stack:
        stack.callback(place.start().end)
        place.api.__exit__()
        place.arbiter.post_error(5, kind="redis")
        wait_for(lambda: "asks again" in command(place.arbiter, "events").out, timeout_s=60, what="it is told")
        back_at = time.monotonic() + (28 - 15) / SPEED
        assert place.arbiter.health("/health/nomad")[0] == 503
        assert "the sidecar asks again" in place.arbiter.request("local", "GET", "/why?format=text").body
        if is_killed:
            place.arbiter.kill()
        until([place], lambda: time.monotonic() > back_at and place.arbiter.alive, "the agent is back")
        place.api.__enter__()
        until([place], lambda: place.events == ["stopped"] and place.is_up(), "it is replaced")
        events = command(place.arbiter, "events").out
        assert events.count("action_failed") == 1
