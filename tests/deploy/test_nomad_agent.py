"""The shipped jobs under a real Nomad, where one is on PATH, with the shipped times: this takes half an hour.

``-s`` shows the seconds of each story. test_nomad_disturbed.py has those in which the agent, a sidecar or the job is
disturbed, test_nomad_stories.py such stories with a stand-in, everywhere.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from deploy.nomad_agent import Allocation
from deploy.nomad_site import COUNT, FILES, Case, Clock, NomadSite, with_standby
from deploy.nomad_stand_in import TOKEN, TaskApi, ask
from deploy.nomad_story import CHECK, NO_TRIAL, RESTART, RESTORED_S, STOP, begin_deployment, count_without, see_a_cull
from harness.polls import REFUSED, RESET, UP, Polls

pytestmark = [pytest.mark.site, pytest.mark.timeout(900), pytest.mark.redis, pytest.mark.haproxy]

MEMORY: Final = Path("/sys/fs/cgroup/memory/nomad")
MIB: Final = 1024**2
PAIR: Final = Case("check", NO_TRIAL, with_standby)
WINDOW_S: Final = 60
TRIAL: Final = Case("task API", {"ARBITER_BUDGET_WINDOW": f"{WINDOW_S}s", "ARBITER_PROBATION": "20s"})
FAILED: Final = 'arbiter_actions_total{action="nomad-stop",outcome="failed"}'
POLLS: Final = 100.0


# -- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_shipped_job_is_valid_and_only_its_driver_is_missing(site: NomadSite, name: str) -> None:
    words = ("-var", "app_image=shop:42", str(FILES[name]))
    assert "Job validation successful" in site.nomad.run("job", "validate", *words)
    plan = site.nomad.run("job", "plan", *words, code=1)
    assert "(3 create)" in plan
    assert 'Constraint "missing drivers": 1 nodes excluded' in plan
    assert plan.count("WARNING") == 1


# -- the check --------------------------------------------------------------------------------------------------------


def test_check_has_a_sick_app_replaced(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, CHECK, within_s=2 * RESTORED_S)


def test_culled_app_that_is_restarted_in_place_is_not_killed_again_by_the_check(site: NomadSite, clock: Clock) -> None:
    sick = site.deploy(CHECK)[0]
    clock.restart()
    site.make_sick(sick)
    clock.until(lambda: not site.is_up_for_nomad(sick), "Nomad is told")
    site.nomad.run("alloc", "restart", "-task", "app", sick.id)
    clock.until(lambda: site.is_up_for_nomad(sick), "the restart in place is noticed")
    pid, seen = site.app_pid(sick), clock.seconds
    clock.until(lambda: clock.seconds > seen + 90, "Nomad had time to restart it")
    assert site.app_pid(sick) == pid
    assert site.now(sick).client_status == "running"


def test_cull_in_a_deployment_by_the_check_is_replaced_when_somebody_asks(site: NomadSite, clock: Clock) -> None:
    site.deploy(CHECK)
    sick = begin_deployment(site, clock)
    site.make_sick(sick)
    clock.until(lambda: site.is_draining(sick), "granted")
    clock.until(lambda: site.now(sick).client_status == "failed", "the culled allocation has failed")
    clock.until(lambda: site.nomad.deployment()["Status"] != "running", "the deployment has ended")
    clock.lines.append(f"{site.nomad.deployment()['Status']}, {len(site.nomad.running())} run")
    assert len(site.nomad.running()) == COUNT - 1
    site.nomad.run("job", "eval", "-force-reschedule", "-detach", "app")
    clock.until(lambda: count_without(site, sick) == COUNT, "somebody has asked, and as many run as before")


def test_standby_goes_on_when_the_main_is_killed(site: NomadSite, clock: Clock) -> None:
    one = site.deploy(PAIR)[0]
    app, port = site.app_pid(one), site.nomad.ports(one.id)["arbiter"]
    with Polls(("127.0.0.1", port), POLLS) as polls:
        for _ in range(2):
            before = sum(site.now(one).restarts.values())
            clock.restart()
            clock.until(lambda: site.arbiter(one).metrics().get("arbiter_standby_ready") == 1, "a standby waits")
            site.signal_arbiter(one, signal.SIGKILL)
            clock.until(partial(_is_restarted, site, one, before), "Nomad has restarted the killed one")
    outcomes = polls.polled.outcomes
    clock.lines.append(f"polls: {dict(outcomes)}")
    assert set(outcomes) <= {UP, RESET, REFUSED}
    assert outcomes[RESET] <= 4, "requests under way"
    assert site.app_pid(one) == app


def _is_restarted(site: NomadSite, one: Allocation, before: int) -> bool:
    return sum(site.now(one).restarts.values()) > before


# -- the task API -----------------------------------------------------------------------------------------------------


def test_task_api_has_a_sick_app_restarted_in_place(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, RESTART, within_s=RESTORED_S)


def test_task_api_has_the_allocation_of_a_sick_app_replaced(site: NomadSite, clock: Clock) -> None:
    see_a_cull(site, clock, STOP, within_s=RESTORED_S)


def test_killed_or_stopped_arbiter_leaves_the_app_alone(site: NomadSite, clock: Clock) -> None:
    killed, stopped, _ = site.deploy(STOP)
    before = {one.id: site.app_pid(one) for one in site.nomad.running()}
    clock.restart()
    site.signal_arbiter(killed, signal.SIGKILL)
    site.signal_arbiter(stopped, signal.SIGSTOP)
    clock.until(lambda: site.now(killed).restarts["arbiter"] == 1 and site.is_up_for_nomad(killed), "one is back")
    clock.until(lambda: clock.seconds > 60, "the other was stopped for 60 s")
    site.signal_arbiter(stopped, signal.SIGCONT)
    clock.until(lambda: site.is_up(stopped), "it answers")
    assert {one.id: site.app_pid(one) for one in site.nomad.running()} == before


def test_stand_in_answers_what_the_task_api_answers(site: NomadSite, run_dir: Path) -> None:
    one = site.deploy(STOP)[0]
    real, unknown = site.nomad.secrets(one.id, "arbiter"), "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11"
    restart, stop = f"/v1/client/allocation/{one.id}/restart", f"/v1/allocation/{one.id}/stop"
    tokens = {run_dir: TOKEN, real: (real / "nomad_token").read_text()}

    def answers(secrets: Path, token: str, *paths: str) -> list[tuple[int, str]]:
        return [ask(secrets, path, token, {"TaskName": "app"}) for path in paths]

    with TaskApi(run_dir, one.id, lambda _: None, lambda: None):
        refused = {
            secrets: [
                *answers(secrets, "", restart),
                *answers(secrets, "no", restart),
                *answers(secrets, token, restart.replace(one.id, unknown), stop.replace(one.id, unknown), f"{stop}s"),
            ]
            for secrets, token in tokens.items()
        }
        assert refused[run_dir] == refused[real]
        done = {secrets: answers(secrets, token, restart, stop) for secrets, token in tokens.items()}
        assert _keys(done[run_dir]) == _keys(done[real])


def _keys(answers: list[tuple[int, str]]) -> list[tuple[int, set[str]]]:
    return [(status, set(json.loads(text))) for status, text in answers]


def test_refusal_is_told_and_a_restart_in_place_is_noticed_without_a_word_of_the_app(
    site: NomadSite, clock: Clock
) -> None:
    sick = site.deploy(STOP)[0]
    pid = site.app_pid(sick)
    site.nomad.run("acl", "policy", "delete", "arbiter-app")
    try:
        clock.restart()
        site.make_sick(sick)
        clock.until(lambda: site.arbiter(sick).metrics()[FAILED] == 1, "Nomad has refused")
    finally:
        site.apply_policy()
    assert "Nomad answered 403: Permission denied" in _in_task(site, sick, "why")
    assert not site.is_up_for_nomad(sick)
    assert site.app_pid(sick) == pid
    clock.restart()
    site.nomad.run("alloc", "restart", "-task", "app", sick.id)
    clock.until(lambda: site.is_up_for_nomad(sick), "the restart in place is noticed")
    assert site.app_pid(sick) != pid
    clock.until(site.is_well, "it is judged, and up")
    assert "restarted" in _in_task(site, sick, "events")


def test_doctor_fits_into_the_memory_of_the_task(site: NomadSite, clock: Clock) -> None:
    one = site.deploy(STOP)[0]
    cgroup = MEMORY / f"{one.id}.arbiter"
    if not cgroup.exists():
        pytest.skip("no memory cgroups of version 1")
    limit, usage, peak = (cgroup / f"memory.{name}_in_bytes" for name in ("limit", "usage", "max_usage"))
    before = int(usage.read_text())
    peak.write_text("0")
    # Docker runs a command within the memory of its container, raw_exec does not.
    doctor = f"echo $$ > {cgroup}/cgroup.procs && exec {sys.executable} -m sidecar doctor"
    assert "\nok " in site.nomad.run("alloc", "exec", "-task", "arbiter", one.id, "sh", "-c", doctor)
    sizes = [size // MIB for size in (before, int(peak.read_text()), int(limit.read_text()))]
    clock.lines.append("{} MiB, and {} with doctor, of {}".format(*sizes))
    assert sizes[1] < 0.9 * sizes[2]


def _in_task(site: NomadSite, one: Allocation, *words: str) -> str:
    """The output of a command of the sidecar in its task."""
    return site.nomad.run("alloc", "exec", "-task", "arbiter", one.id, sys.executable, "-m", "sidecar", *words)


def test_cull_in_a_deployment_is_replaced_by_the_task_api(site: NomadSite, clock: Clock) -> None:
    site.deploy(STOP)
    sick = begin_deployment(site, clock)
    site.make_sick(sick)
    clock.until(lambda: site.is_draining(sick), "granted")
    ended = clock.until(lambda: site.now(sick).client_status == "complete", "the culled allocation has ended")
    assert clock.until(lambda: count_without(site, sick) == COUNT, "as many run as before") - ended < RESTORED_S
    clock.until(lambda: site.nomad.deployment()["Status"] == "successful", "the deployment is successful")
    assert len(site.nomad.running()) == COUNT


def test_deployment_of_an_app_that_does_not_listen_fails(site: NomadSite, clock: Clock) -> None:
    site.deploy(STOP)
    clock.restart()
    site.update(_that_does_not_listen)
    failed = site.nomad.deployment()["ID"]
    clock.until(lambda: site.nomad.deployment(failed)["Status"] == "failed", "the deployment has failed")
    assert "rolling back to job version" in site.nomad.deployment(failed)["StatusDescription"]
    clock.until(site.is_well, "the job is as before")
    site.submit(_that_does_not_listen(STOP.text()))
    clock.until(lambda: site.nomad.deployment().get("Status") == "failed", "the first deployment has failed")
    assert "no stable job version to auto revert to" in site.nomad.deployment()["StatusDescription"]


def _that_does_not_listen(text: str) -> str:
    """The job with an app that listens at another port, and shorter waits for it: by default 5 and 10 minutes."""
    text = text.replace('"${NOMAD_PORT_app}"]', '"0"]')
    return text.replace('healthy_deadline = "5m"', 'healthy_deadline = "45s"\n    progress_deadline = "60s"')


def test_of_three_that_stay_sick_one_is_culled_in_a_window(site: NomadSite, clock: Clock) -> None:
    first = {one.id for one in site.deploy(TRIAL)}
    over = threading.Event()
    reporter = threading.Thread(target=_keep_sick, args=(site, over))
    clock.restart()
    reporter.start()
    try:
        clock.until(lambda: clock.seconds > 2.5 * WINDOW_S, "errors of all three, without a pause")
    finally:
        over.set()
        reporter.join(30)
    placed = sorted(one.created_at for one in site.nomad.allocations() if one.id not in first)
    clock.lines.append(f"replaced {[round(at - placed[0]) for at in placed]} s after the first")
    assert 1 <= len(placed) <= 3
    assert all(later - earlier >= WINDOW_S for earlier, later in pairwise(placed))


def _keep_sick(site: NomadSite, over: threading.Event) -> None:
    while not over.wait(1):
        for one in site.nomad.running():
            with contextlib.suppress(OSError):
                site.make_sick(one, errors=2)
