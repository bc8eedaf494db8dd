"""A job in JSON, as Nomad writes it: what is read of it, and files that are no job."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest

from sidecar.cli.doctor import job
from sidecar.cli.doctor.job import Check, Group, JobError, Restart, Task, Template

NS = job.NS_PER_S

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
                        "Config": {"image": "arbiter:1", "command": "run", "args": ["--fast"]},
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
                        "Resources": {"MemoryMB": 64},
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
    name="web",
    tasks=(
        Task(
            name="arbiter",
            env={"ARBITER_DRAIN": "20s"},
            restart=Restart(3, 90.0, "delay"),
            is_sidecar=True,
            kill_timeout_s=10.0,
            shutdown_delay_s=3.0,
            image="arbiter:1",
            words=("run", "--fast"),
            templates=(Template("A=1\n", "secrets/env", is_env=True, change_mode="noop", wait_s=1.0),),
            memory_mb=64,
            has_token=True,
        ),
    ),
    checks=(
        Check("", "/health", "", 10.0, 0, 1.0, is_secured=False, misspelt=""),
        Check("arbiter", "/health/nomad", "arbiter", 0.0, 3, 120.0, is_secured=True, misspelt="CheckRestarts"),
    ),
    network_mode="bridge",
    ports={"fixed": 9000, "arbiter": 9181, "same": job.SOME_PORT + 2},
    tags=("agent-port=1",),
    has_service=True,
    replaced_within_s=math.inf,
)
NOTHING = {"TaskGroups": [{"Name": "web", "Tasks": [{"Name": "app", "Env": None, "Services": None}], "Networks": None}]}
OF_NOTHING = Group(
    name="web",
    tasks=(Task("app", {}, Restart(), False, 5.0, 0.0, "", ("",), (), 300, False),),  # noqa: FBT003 - the defaults
    checks=(),
    network_mode="",
    ports={},
    tags=(),
    has_service=False,
    replaced_within_s=math.inf,
)


def _read(tmp_path: Path, text: str) -> list[Group]:
    (tmp_path / "job").write_text(text)
    return job.read(str(tmp_path / "job"))


def test_job_is_read_and_what_it_leaves_out_is_the_default_of_nomad(tmp_path: Path) -> None:
    assert _read(tmp_path, json.dumps(EVERYTHING)) == [READ]
    assert _read(tmp_path, json.dumps(NOTHING)) == [OF_NOTHING]


def test_job_comes_from_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(EVERYTHING)))
    assert job.read("-") == [READ]


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
        job.read(str(tmp_path / "none"))
