"""Every trap of a job file by itself, in a job that is right but for that."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.doctor import job_findings
from sidecar.cli.doctor.findings import FindingLevel
from sidecar.cli.doctor.jobspec import Check, Group, Restart, Task

CHECK = Check("app", "/health/nomad", 5.0, 2.0, 5, 60.0)
APP = Task("app", restart=Restart(attempts=0))
ARBITER = Task("arbiter", {"ARBITER_MODE": "enforce"}, Restart(10, 1.0, "delay"), is_sidecar=True, kill_timeout_s=10.0)


def _found(check: Check | None = CHECK, app: Task = APP, arbiter: Task = ARBITER) -> list[tuple[str, str]]:
    group = Group("web", (app, arbiter), (check,) if check else ())
    found = list(job_findings.of_job([group], drain_s=10.0, stop_drain_s=5.0))
    assert {each.what for each in found} <= {"job"}
    return [(each.level, each.sentence) for each in found]


def test_good_job_says_how_long_a_cull_takes() -> None:
    assert _found() == [
        ("ok", "group web: a culled app is restarted 30 to 36 s after the grant: a drain of 10 s and 5 polls of 5 s")
    ]


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        pytest.param({"task": ""}, "FAIL", "one of the group: its check_restart restarts the arbiter too", id="group"),
        pytest.param({"task": "arbiter"}, "FAIL", "restarts arbiter, the arbiter, not the app", id="wrong task"),
        pytest.param({"limit": 0}, "FAIL", "has no check_restart: it restarts nothing", id="no check_restart"),
        pytest.param({"limit": 1}, "warn", "one lost poll of /health/nomad restarts the app", id="limit"),
        pytest.param({"grace_s": 10.0}, "warn", "pulling the arbiter's image may take longer", id="grace"),
        pytest.param({"timeout_s": 5.0}, "warn", "timeout 5 s is not below the interval 5 s", id="timeout"),
        pytest.param({"path": "/health"}, "warn", "it has to ask /health/nomad", id="path, slow"),
        pytest.param(
            {"path": "/health", "limit": 2}, "FAIL", "restarted after 5 s of a drain of 10", id="path, in the drain"
        ),
        pytest.param({"interval_s": 30.0}, "warn", "130 to 161 s after the grant", id="long"),
        pytest.param({"limit": 2}, "warn", "a restarted arbiter is away for 13.25 s", id="impatient"),
    ],
)
def test_trap_in_the_check(changes: dict[str, Any], level: str, said: str) -> None:
    assert any(each[0] == level and said in each[1] for each in _found(CHECK._replace(**changes)))


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        pytest.param({"restart": Restart()}, "FAIL", "a broken arbiter takes the app down", id="restart mode"),
        pytest.param({"is_sidecar": False}, "warn", "no lifecycle with sidecar = true", id="lifecycle"),
        pytest.param({"kill_timeout_s": 5.0}, "warn", "is not above ARBITER_STOP_DRAIN 5 s", id="kill_timeout"),
        pytest.param(
            {"env": {"ARBITER_REDIS_URL": "redis://:p@h"}}, "warn", "everybody who reads the job has it", id="secret"
        ),
        pytest.param({"env": {"ARBITER_DRAIN": "40s"}}, "warn", "60 to 66 s after the grant", id="drain of the job"),
    ],
)
def test_trap_in_the_task_of_the_arbiter(changes: dict[str, Any], level: str, said: str) -> None:
    assert any(each[0] == level and said in each[1] for each in _found(arbiter=ARBITER._replace(**changes)))


def test_app_that_is_restarted_in_place_has_to_say_so() -> None:
    (found,) = [each for each in _found(app=Task("app")) if each[0] == "warn"]
    assert "app is restarted in place 2 times: it has to report its app_start" in found[1]


def test_no_check_is_a_failure_and_no_arbiter_a_warning() -> None:
    assert _found(None) == [("FAIL", "group web: no check asks /health/nomad: Nomad never restarts a culled app")]
    (found,) = job_findings.of_job([Group("web", (APP,), (CHECK,))], 10.0, 5.0)
    assert (found.level, found.sentence[:21]) == (FindingLevel.WARN, "no task of it runs a ")
