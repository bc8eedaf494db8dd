"""The jobs of Nomad with a stand-in for it: a culled app is restarted or replaced, and what fails is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from deploy.nomad_job import JOB_FILE, TASK_API_JOB_FILE, read
from deploy.nomad_stand_in import SPEED, Deployment, Placement, until
from harness.cascade import Ports, await_status, config, status
from harness.ports import free_ports
from harness.sidecar import Setting, command
from harness.traffic import Traffic, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy
    from harness.redis_server import RedisServer

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
    proxy = haproxy(config(servers, front=front, metrics=metrics, state=run_dir / "server-state"))
    for name in places:
        await_status(proxy, name, "UP")
    with Traffic(front, RATE) as traffic:
        for name in places:
            _see_a_cull(places, name, proxy)
        traffic.next_answers(REQUESTS)
    assert {each: count for each, count in lost(traffic.seen()).items() if each.method == "GET"} == {}
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


def test_task_api_that_refuses_hangs_or_is_gone_leaves_the_app_to_its_check_and_a_person_learns_why(
    run_dir: Path, children: Children, redis_server: RedisServer
) -> None:
    job = read(TASK_API_JOB_FILE.read_text())
    place = Placement("one", job, run_dir, children, redis_url=redis_server.url, action_timeout="500ms", **QUICK)
    with ExitStack() as stack:
        stack.callback(place.start().end)
        place.api.has_policy = False
        _cull(place, 1, "Nomad answered 403: Permission denied")
        place.api.hangs = True
        _cull(place, 2, "no end after 0.5 s")
        place.api.__exit__()
        _cull(place, 3, "Nomad's task API cannot be asked: ")
        assert len(place.api.asked) == 2, "each is asked for once"
        assert place.events == []
        assert place.app.alive
        wait_for(
            lambda: _are_in_the_ledger(place, "403", "no end", "cannot be asked"), timeout_s=60, what="all are told"
        )


def test_cull_whose_drain_ends_while_the_agent_is_away_is_carried_out_when_it_is_back(
    run_dir: Path, children: Children, redis_server: RedisServer
) -> None:
    job = read(TASK_API_JOB_FILE.read_text())
    place = Placement("one", job, run_dir, children, redis_url=redis_server.url, action_timeout="5m", **QUICK)
    with ExitStack() as stack:
        stack.callback(place.start().end)
        place.api.__exit__()
        place.arbiter.post_error(5, kind="redis")
        wait_for(lambda: place.arbiter.health("/health/nomad")[0] == 503, timeout_s=60, what="the drain is over")
        place.api.__enter__()
        until([place], lambda: place.events == ["stopped"] and place.is_up(), "it is replaced")


@pytest.mark.parametrize(("name", "running"), [("check", [False, True]), ("nomad-stop", [True, True])])
def test_cull_in_a_deployment_is_replaced_by_the_task_api_and_not_by_the_check(
    run_dir: Path, children: Children, redis_server: RedisServer, name: str, running: list[bool]
) -> None:
    path, more = JOBS[name]
    job = read(path.read_text())
    deployment, places = Deployment(job, 2), list[Placement]()
    with ExitStack() as stack:
        for number in range(2):
            settings: dict[str, Setting] = {"redis_url": redis_server.url, **QUICK, **more}
            place = Placement(f"app-{number}", job, run_dir, children, **settings)
            place.deployment = deployment
            places.append(place.start())
            stack.callback(place.end)
            until(places, lambda place=place: _is_healthy(deployment, place, places), "it is healthy")  # type: ignore[misc]
            if number == 0:
                place.arbiter.post_error(5, kind="redis")
                until(places, lambda: places[0].events == [RESULTS[name]], "it is culled")
        until(places, lambda: deployment.see(places) == "successful", "all were healthy once")
        if running[0]:
            until(places, places[0].is_up, "it is replaced")
        assert [place.is_up() for place in places] == running


def _is_healthy(deployment: Deployment, place: Placement, places: list[Placement]) -> bool:
    deployment.see(places)
    return place.allocation in deployment.healthy


@pytest.mark.parametrize("has_check", [True, False], ids=["its check", "no check"])
def test_deployment_of_an_app_that_does_not_listen_fails_by_the_check_of_the_app(
    run_dir: Path, children: Children, redis_server: RedisServer, *, has_check: bool
) -> None:
    job = read(TASK_API_JOB_FILE.read_text().replace('healthy_deadline = "5m"', 'healthy_deadline = "1m"'))
    if not has_check:
        job.app_check.clear()
    place = Placement("deaf", job, run_dir, children, redis_url=redis_server.url, **QUICK)
    place.is_deaf = True
    with ExitStack() as stack:
        stack.callback(place.start().end)
        deployment = Deployment(job, 1)
        until([place], lambda: deployment.see([place]) != "running", "the deployment ends")
        assert deployment.status == ("failed" if has_check else "successful")
        assert place.app.alive


def _are_in_the_ledger(place: Placement, *words: str) -> bool:
    events = command(place.arbiter, "events").out
    return all(word in events for word in words)


def _cull(place: Placement, number: int, reason: str) -> None:
    """Cull the app, see the action fail, and begin another life of the app."""
    place.arbiter.post_error(5, kind="redis", app_start=f"life-{number}")
    failed = 'arbiter_actions_total{action="nomad-stop",outcome="failed"}'
    wait_for(lambda: place.arbiter.metrics()[failed] == number, timeout_s=60, what="the action has failed")
    assert place.arbiter.health("/health/nomad")[0] == 503
    errors = [line for line in place.arbiter.log_lines() if line["level"] == "error"]
    assert reason in str(errors[-1]), errors
    assert reason in place.arbiter.request("local", "GET", "/why?format=text").body
    place.arbiter.post_error(1, count=0, app_start=f"life-{number + 1}")
    wait_for(lambda: place.arbiter.health("/health/nomad")[0] == 200, timeout_s=60, what="another life")
