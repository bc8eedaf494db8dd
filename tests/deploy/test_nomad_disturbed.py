"""The shipped jobs under a real Nomad: its agent, a sidecar, the app or the job is disturbed. This takes half an hour.

``-s`` shows the seconds of each story. The quiet ones are in test_nomad_agent.py.
"""

from __future__ import annotations

import signal
import time
from typing import Final

import pytest

from deploy.nomad_agent import Allocation
from deploy.nomad_job import JOB_FILE, one, read, seconds
from deploy.nomad_rules import cull_in_grace_s, settings_of
from deploy.nomad_site import COUNT, Case, Clock, NomadSite, with_canary, with_stubborn_app
from deploy.nomad_story import (
    CHECK,
    RATE,
    RESTART,
    RESTORED_S,
    STOP,
    begin_deployment,
    count_without,
    cull,
    has_ended,
    lost_gets,
    see_a_cull,
)
from harness.traffic import Traffic

pytestmark = [pytest.mark.site, pytest.mark.timeout(600), pytest.mark.redis, pytest.mark.haproxy]

CHECK_JOB: Final = read(JOB_FILE.read_text())
GRACE_S: Final = seconds(one(CHECK_JOB.check, "check_restart"), "grace")
INTERVAL_S: Final = seconds(CHECK_JOB.check, "interval")
KILL_S: Final = seconds(CHECK_JOB.app, "kill_timeout")
LOOK_S: Final = 3.0
"""The grant is seen that much later at most."""

POLLS: Final = 'arbiter_polls_total{code="200",path="/health/nomad",poller="nomad"}'


def _processes(site: NomadSite) -> dict[str, list[int]]:
    """The processes of each allocation that runs."""
    tasks = ("app", "arbiter")
    return {one.id: [pid for task in tasks for pid in site.nomad.pids(one.id, task)] for one in site.nomad.running()}


def _await_end_of_grace(clock: Clock, one: Allocation) -> None:
    """Failures of the check of this allocation count from now on."""
    clock.until(lambda: time.time() > one.created_at + GRACE_S + 10, "the grace of the check is over")


# -- the agent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [CHECK, STOP], ids=lambda case: case.name)
def test_restart_of_the_agent_leaves_the_apps_alone_and_a_later_cull_is_carried_out(
    site: NomadSite, clock: Clock, case: Case
) -> None:
    sick = site.deploy(case)[0]
    before = _processes(site)
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(RATE)
        clock.restart()
        site.nomad.restart()
        clock.until(site.is_well, "the agent is back, and all are up")
        traffic.next_answers(RATE)
    assert lost_gets(traffic) == {}
    assert _processes(site) == before
    culled = cull(site, clock, case, sick)
    assert culled.restored_s < RESTORED_S + (cull_in_grace_s(CHECK_JOB) if case is CHECK else 0)


def test_cull_whose_drain_ends_while_the_agent_is_away_is_carried_out_when_it_is_back(
    site: NomadSite, clock: Clock
) -> None:
    sick = site.deploy(STOP)[0]
    pid, arbiter = site.app_pid(sick), site.arbiter(sick)
    clock.restart()
    site.make_sick(sick)
    clock.until(lambda: site.is_draining(sick), "granted")
    site.nomad.stop(timeout_s=30)
    clock.until(lambda: arbiter.metrics()['arbiter_state{state="down"}'] == 1, "the drain is over, without an agent")
    site.nomad.start()
    clock.until(lambda: has_ended(pid), "the agent is back, and the app has ended")
    clock.until(lambda: count_without(site, sick) == COUNT, "as many run as before")
    assert site.now(sick).client_status == "complete"


# -- a sidecar that hangs ---------------------------------------------------------------------------------------------


def test_check_replaces_the_app_of_a_stopped_arbiter_and_no_other(site: NomadSite, clock: Clock) -> None:
    stopped = site.deploy(CHECK)[0]
    _await_end_of_grace(clock, stopped)
    before, pid = _processes(site), site.app_pid(stopped)
    clock.restart()
    site.signal_arbiter(stopped, signal.SIGSTOP)
    ended = clock.until(lambda: has_ended(pid), "the app has ended")
    assert ended >= CHECK_JOB.patience_s
    clock.until(lambda: count_without(site, stopped) == COUNT, "as many run as before")
    clock.until(site.is_well, "all are judged, and up")
    clock.until(lambda: clock.seconds > 60, "60 s are over")
    assert site.now(stopped).client_status == "failed"
    after = _processes(site)
    assert {each: after.get(each) for each in before if each != stopped.id} == {
        each: pids for each, pids in before.items() if each != stopped.id
    }


# -- updates in place -------------------------------------------------------------------------------------------------


def _update_in_place(site: NomadSite) -> None:
    """Give the sidecar's service one more tag, or take it away again: Nomad keeps the allocations."""
    plain, more = 'tags = ["arbiter-service=', 'tags = ["more", "arbiter-service='
    site.update(lambda text: text.replace(plain, more) if plain in text else text.replace(more, plain))


def test_update_in_place_begins_the_grace_of_the_check_anew(site: NomadSite, clock: Clock) -> None:
    sick = site.deploy(CHECK)[0]
    _await_end_of_grace(clock, sick)
    pid = site.app_pid(sick)
    clock.restart()
    site.make_sick(sick)
    clock.until(lambda: not site.is_up_for_nomad(sick), "Nomad is told")
    _update_in_place(site)
    clock.restart()
    assert clock.until(lambda: has_ended(pid), "after an update in place the app has ended") > GRACE_S
    clock.until(lambda: count_without(site, sick) == COUNT, "as many run as before")
    _update_in_place(site)


def test_each_update_in_place_adds_a_poller_until_the_agent_restarts(site: NomadSite, clock: Clock) -> None:
    polled = site.deploy(CHECK)[0]
    before = _processes(site)
    site.nomad.restart()
    usual = _await_polls(site, clock, polled, 6)
    for _ in range(4):
        _update_in_place(site)
        _await_polls(site, clock, polled, 2)
    assert _await_polls(site, clock, polled, 12) < usual
    site.nomad.restart()
    assert _await_polls(site, clock, polled, 6) > 4 * INTERVAL_S
    assert _processes(site) == before


def _await_polls(site: NomadSite, clock: Clock, polled: Allocation, count: int) -> float:
    """The seconds until Nomad's check has asked so many times more."""
    arbiter = site.arbiter(polled)
    goal = arbiter.metrics()[POLLS] + count
    clock.restart()
    return clock.until(lambda: arbiter.metrics()[POLLS] >= goal, f"{count} polls")


# -- a canary ---------------------------------------------------------------------------------------------------------

CANARY_CHECK: Final = CHECK._replace(change=with_canary)
CANARY_STOP: Final = STOP._replace(change=with_canary)


def test_canary_that_the_check_culls_is_not_replaced_and_its_deployment_can_only_be_failed(
    site: NomadSite, clock: Clock
) -> None:
    site.deploy(CANARY_CHECK)
    canary = begin_deployment(site, clock)
    site.make_sick(canary)
    clock.until(lambda: site.is_draining(canary), "granted")
    clock.until(lambda: site.now(canary).client_status == "failed", "the culled canary has failed")
    deployment = _refuse_promotion(site)
    before = len(site.nomad.allocations())
    asked = site.nomad.run("job", "eval", "-force-reschedule", "-detach", "-verbose", "app").split('"')[1]
    clock.until(lambda: site.nomad.ask("GET", f"/v1/evaluation/{asked}")["Status"] == "complete", "somebody has asked")
    assert len(site.nomad.allocations()) == before
    assert site.nomad.deployment()["Status"] == "running"
    site.nomad.run("deployment", "fail", "-detach", deployment)
    clock.until(lambda: site.nomad.deployment(deployment)["Status"] == "failed", "somebody has failed the deployment")
    assert "rolling back to job version" in site.nomad.deployment(deployment)["StatusDescription"]
    assert len(site.nomad.running()) == COUNT


def test_canary_that_the_task_api_culls_is_replaced_and_promoted(site: NomadSite, clock: Clock) -> None:
    site.deploy(CANARY_STOP)
    canary = begin_deployment(site, clock)
    site.make_sick(canary)
    clock.until(lambda: site.is_draining(canary), "granted")
    clock.until(lambda: site.now(canary).client_status == "complete", "the culled canary has ended")
    _refuse_promotion(site)
    clock.until(lambda: count_without(site, canary) == COUNT + 1, "there is another canary")
    (other,) = [one for one in site.nomad.running() if one.created_at > canary.created_at]
    clock.until(lambda: site.now(other).is_healthy, "it is healthy")
    site.nomad.run("deployment", "promote", "-detach", site.nomad.deployment()["ID"])
    clock.until(lambda: len(site.nomad.running()) == COUNT, "promoted")


def _refuse_promotion(site: NomadSite) -> str:
    """Nomad does not promote the newest deployment; its ID."""
    deployment: str = site.nomad.deployment()["ID"]
    refusal = site.nomad.run("deployment", "promote", "-detach", deployment, code=1)
    assert "0/1 healthy" in refusal, refusal
    return deployment


# -- an app that ignores its signal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "within_s"),
    [(CHECK, 2 * RESTORED_S), (RESTART, RESTORED_S), (STOP, RESTORED_S)],
    ids=["check", "nomad-restart", "nomad-stop"],
)
def test_app_that_ignores_its_signal_is_killed_after_its_kill_timeout(
    site: NomadSite, clock: Clock, case: Case, within_s: float
) -> None:
    stubborn = case._replace(change=with_stubborn_app)
    sick = site.deploy(stubborn)[0]
    if case is CHECK:
        _await_end_of_grace(clock, sick)
    culled = see_a_cull(site, clock, stubborn, within_s=within_s + KILL_S)
    assert culled.ended_s > settings_of(CHECK_JOB).culling.drain + KILL_S - LOOK_S
