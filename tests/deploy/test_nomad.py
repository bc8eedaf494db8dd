"""The shipped job files: ``doctor`` finds nothing in them, and the pages and the policy beside them agree.

``doctor`` reads a job in the JSON of Nomad, so the samples in tests/cli/doctor/jobs have to be these files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import hcl2
import pytest

from deploy.nomad_job import (
    JOB_FILE,
    SECRET_SAMPLE,
    TASK_API_JOB_FILE,
    Block,
    JobFile,
    blocks,
    one,
    read,
    seconds,
)
from sidecar import __version__
from sidecar.cli.doctor import job as jobs
from sidecar.cli.doctor import job_findings
from sidecar.cli.doctor.job import ports_of, restart_of, services_of
from sidecar.config.load import load
from sidecar.runlock import durations

TEXT: Final = JOB_FILE.read_text()
POLICY: Final = (JOB_FILE.parent / "arbiter.policy.hcl").read_text()
README: Final = (JOB_FILE.parent / "README.md").read_text()
SAMPLES: Final = Path(__file__).parents[1] / "cli" / "doctor" / "jobs"
WATCH_S: Final = 1
"""Nomad looks at the results of its checks once a second."""

both_jobs = pytest.mark.parametrize(
    ("path", "sample"),
    [(JOB_FILE, "app.json"), (TASK_API_JOB_FILE, "app-task-api.json")],
    ids=["check", "task API"],
)


@pytest.fixture(scope="module")
def job() -> JobFile:
    return read(TEXT)


# -- what doctor reads ------------------------------------------------------------------------------------------------


@both_jobs
def test_sample_has_what_the_job_file_says(path: Path, sample: str) -> None:
    (group,), shipped = jobs.blocks(jobs.read(str(SAMPLES / sample)), "TaskGroups"), read(path.read_text())
    app, arbiter = jobs.blocks(group, "Tasks")
    for task, written in ((app, shipped.app), (arbiter, shipped.arbiter)):
        policy = {"delay": "15s", "interval": "30m", **one(written, "restart")}
        times = seconds(policy, "delay"), seconds(policy, "interval")
        assert restart_of(group, task) == (policy["attempts"], times[0], policy["mode"], times[1])
    assert jobs.seconds(app, "ShutdownDelay") == seconds(shipped.app, "shutdown_delay")
    assert jobs.seconds(arbiter, "KillTimeout") == seconds(shipped.arbiter, "kill_timeout")
    assert arbiter["Env"] == one(shipped.arbiter, "env")
    assert arbiter["Lifecycle"]["Sidecar"] == one(shipped.arbiter, "lifecycle")["sidecar"]
    assert arbiter["Resources"]["MemoryMB"] == one(shipped.arbiter, "resources")["memory"]
    assert [(each["ChangeMode"], each["Envvars"]) for each in arbiter["Templates"]] == [
        (each["change_mode"], each["env"]) for each in blocks(shipped.arbiter, "template")
    ]
    assert ports_of(group) == {label: port["to"] for label, port in shipped.ports.items()}
    again, sampled = one(shipped.group, "reschedule"), group["ReschedulePolicy"]
    assert (sampled["DelayFunction"], sampled["Unlimited"]) == (again["delay_function"], again["unlimited"])
    assert _checks_of_sample(group) == _checks(shipped.app)


def _checks_of_sample(group: jobs.Block) -> list[tuple[object, ...]]:
    return [
        (
            *(check["Path"], check["PortLabel"] or service["PortLabel"], jobs.seconds(check, "Interval")),
            *(jobs.field(check, "CheckRestart.Limit", 0), jobs.seconds(check, "CheckRestart.Grace", 1.0)),
        )
        for service, _ in services_of(group)
        for check in jobs.blocks(service, "Checks")
    ]


def _checks(app: Block) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for service, check in ((each, check) for each in blocks(app, "service") for check in blocks(each, "check")):
        restart = one(check, "check_restart")
        asked = check.get("path", ""), str(check.get("port", service["port"])), seconds(check, "interval")
        found.append((*asked, restart.get("limit", 0), seconds({"grace": "1s", **restart}, "grace")))
    return found


@both_jobs
def test_doctor_finds_nothing_in_the_job(path: Path, sample: str) -> None:
    findings = job_findings.of_job(jobs.read(str(SAMPLES / sample)))
    assert [finding.sentence for finding in findings if finding.level != "ok"] == []
    job = read(path.read_text())
    assert f'default     = "health-arbiter:{__version__}"' in path.read_text()
    assert one(job.app, "restart") == {"attempts": 0, "mode": "fail"}, "a culled app is replaced"


# -- settings, pages and the policy -----------------------------------------------------------------------------------


def test_settings_come_from_the_job_file_and_from_nomad(job: JobFile) -> None:
    settings = load({}, job.environ)
    assert (settings.identity.service, settings.identity.instance) == ("app.web", job.environ["NOMAD_ALLOC_ID"])
    assert (settings.identity.mode, settings.process.state_dir) == ("shadow", "/alloc/tmp")
    assert (settings.judging.grace, settings.culling.drain, settings.server.stop_drain) == (30, 10, 5)
    assert settings.redis.redis_url == SECRET_SAMPLE
    assert settings.app.app_port == str(job.ports["app"]["to"])


@pytest.mark.parametrize("name", ["LIFETIME", "SOCKET"])
def test_setting_in_comments_is_valid(name: str) -> None:
    assert TEXT.count(f"# ARBITER_{name} =") == 1
    load({}, read(TEXT.replace(f"# ARBITER_{name} =", f"ARBITER_{name} =")).environ)


def test_readme_has_the_times_of_the_job_file(job: JobFile) -> None:
    readme, drain_s = " ".join(README.split()), load({}, job.environ).culling.drain
    counted_s = seconds(job.check, "interval") + job.patience_s + WATCH_S
    in_grace_s = seconds(one(job.check, "check_restart"), "grace") + counted_s
    assert f"Nomad is told {drain_s:g} s after the grant" in readme
    assert f"restarts the app {drain_s + counted_s:g} s after it at the latest" in readme
    assert f"places a new allocation {durations.parse(one(job.group, 'reschedule')['delay']):g} s later" in readme
    assert f"up to {in_grace_s:g} s after the grant" in readme
    assert f"dead for longer than {job.patience_s:g} s" in readme


def test_policy_lets_the_task_of_the_job_do_what_the_action_needs() -> None:
    (namespace,) = hcl2.loads(POLICY)["namespace"]
    (granted,) = namespace.values()
    assert [name.strip('"') for name in granted["capabilities"]] == ["alloc-lifecycle"]
    command = "nomad acl policy apply -namespace default -job app -group web -task arbiter"
    assert command in POLICY
    assert command in README


def test_jobs_differ_only_in_what_restarts_the_app(job: JobFile) -> None:
    task_api = read(TASK_API_JOB_FILE.read_text())
    assert task_api.environ == {**job.environ, "ARBITER_ACTION": "nomad-stop"}
    assert job.arbiter.keys() ^ task_api.arbiter.keys() == {"identity"}
    assert job.ports == task_api.ports
