"""A job in JSON, as Nomad writes it: what is read of it, and files that are no job."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from deploy.nomad_job import JOB_FILE, TASK_API_JOB_FILE, blocks, one, read
from sidecar.cli.doctor import jobspec
from sidecar.cli.doctor.jobspec import Check, Group, JobError, Reschedule, Restart, Task, Template

JOBS = Path(__file__).parent / "jobs"
NS = jobspec.NS_PER_S

EVERYTHING = {
    "Job": {
        "Reschedule": {"Delay": 10 * NS, "Unlimited": True},
        "TaskGroups": [
            {
                "Name": "web",
                "ShutdownDelay": 3 * NS,
                "RestartPolicy": {"Attempts": 3, "Delay": 90 * NS},
                "ReschedulePolicy": {"Attempts": 2, "DelayFunction": "constant", "Unlimited": False},
                "Networks": [
                    {
                        "Mode": "bridge",
                        "ReservedPorts": [{"Label": "fixed", "Value": 9000, "To": 0}],
                        "DynamicPorts": [
                            {"Label": "arbiter", "Value": 0, "To": 9181},
                            {"Label": "same", "Value": 0, "To": -1},
                        ],
                    }
                ],
                "Services": [{"Checks": [{"Path": "/health", "Interval": 10 * NS, "Timeout": NS // 2}]}],
                "Tasks": [
                    {
                        "Name": "arbiter",
                        "Driver": "docker",
                        "Config": {"image": "arbiter:1", "command": "run", "args": ["--fast"], "ulimit": {"core": "0"}},
                        "Services": [
                            {
                                "PortLabel": "arbiter",
                                "Tags": ["agent-port=1"],
                                "Checks": [
                                    {
                                        "Protocol": "https",
                                        "TLSSkipVerify": True,
                                        "Path": "/health/nomad",
                                        "CheckRestart": {"Limit": 3, "Grace": 120 * NS},
                                        "CheckRestarts": {},
                                    }
                                ],
                            }
                        ],
                        "Templates": [
                            {
                                "EmbeddedTmpl": "A=1\n",
                                "Envvars": True,
                                "ChangeMode": "noop",
                                "DestPath": "secrets/env",
                                "Wait": {"Min": NS},
                            }
                        ],
                        "Identities": [{"Name": "vault", "File": False}, {"Name": "default", "File": True}],
                        "Resources": {"MemoryMB": 64, "MemoryMaxMB": 96},
                        "KillTimeout": 10 * NS,
                        "ShutdownDelay": NS,
                        "Lifecycle": {"Hook": "poststart", "Sidecar": True},
                        "RestartPolicy": {"Mode": "delay"},
                        "Env": {"ARBITER_DRAIN": "20s"},
                    },
                ],
            }
        ],
    }
}

READ = Group(
    "web",
    (
        Task(
            "arbiter",
            {"ARBITER_DRAIN": "20s"},
            Restart(3, 90.0, "delay"),
            is_sidecar=True,
            kill_timeout_s=10.0,
            shutdown_delay_s=3.0,
            driver="docker",
            templates=(Template("A=1\n", is_env=True, change_mode="noop", destination="secrets/env", wait_s=1.0),),
            memory_mb=64,
            memory_max_mb=96,
            has_token=True,
            image="arbiter:1",
            words=("run", "--fast"),
            core_limit="0",
        ),
    ),
    (
        Check("", "/health", 10.0, 0.5, 0, 1.0),
        Check(
            *("arbiter", "/health/nomad", 0.0, 0.0, 3, 120.0, "arbiter", "https"),
            names_host=True,
            misspelt="CheckRestarts",
        ),
    ),
    "bridge",
    {"fixed": 9000, "arbiter": 9181, "same": jobspec.SOME_PORT + 2},
    ("agent-port=1",),
    Reschedule("constant", is_limited=True, delay_s=10.0),
    has_service=True,
)
NOTHING = {"TaskGroups": [{"Name": "web", "Tasks": [{"Name": "app", "Env": None, "Services": None}], "Networks": None}]}


def _read(tmp_path: Path, text: str) -> list[Group]:
    (tmp_path / "job").write_text(text)
    return jobspec.read(str(tmp_path / "job"))


def test_job_is_read_and_what_it_leaves_out_is_the_default_of_nomad(tmp_path: Path) -> None:
    assert _read(tmp_path, json.dumps(EVERYTHING)) == [READ]
    assert _read(tmp_path, json.dumps(NOTHING)) == [Group("web", (Task("app"),), ())]


def test_job_comes_from_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(EVERYTHING)))
    assert jobspec.read("-") == [READ]


@pytest.mark.parametrize(
    ("name", "path"), [("app", JOB_FILE), ("app-task-api", TASK_API_JOB_FILE)], ids=["check", "API"]
)
def test_samples_are_the_jobs_that_we_ship(name: str, path: Path) -> None:
    (group,), shipped = jobspec.read(str(JOBS / f"{name}.json")), read(path.read_text())
    app, arbiter = group.tasks
    assert arbiter.env == one(shipped.arbiter, "env")
    assert {*group.ports} == {*shipped.ports}
    assert len(group.checks) == sum(len([*blocks(service, "check")]) for service in blocks(shipped.app, "service"))
    assert app.shutdown_delay_s == 10


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[" * 100_000, '{"Job": []}', 'job "app" {\n}'),
        '{"Job": {"TaskGroups": [{"Tasks": 5, "Name": "x"}]}}',
        '{"Job": {"TaskGroups": [{"Name": "x", "Tasks": [], "RestartPolicy": {"Delay": "soon"}}]}}',
    ],
    ids=lambda text: text[:20],
)
def test_file_without_a_job_is_named_with_what_to_give(tmp_path: Path, text: str) -> None:
    with pytest.raises(JobError, match="job is not a job of Nomad in JSON: give the output of nomad job run"):
        _read(tmp_path, text)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: no such file"):
        jobspec.read(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="cannot be read: not UTF-8"):
        jobspec.read(str(tmp_path / "binary"))
