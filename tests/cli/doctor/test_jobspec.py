"""A job file read from both of its forms: what the arbiter cares about is the same in either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.doctor import jobspec
from sidecar.cli.doctor.jobspec import Check, Group, JobError, Restart, Task

SHIPPED = Path(__file__).parents[3] / "nomad" / "app.nomad.hcl"
NS = 1_000_000_000

HCL = """
job "app" {
  group "web" {
    restart {
      attempts = 3
      delay    = "1m30s"
    }
    service {
      name = "outer"
      check {
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "500ms"
      }
    }
    task "app" {
      driver = "docker"
      service {
        check {
          path     = "/health/nomad"
          interval = "5s"
          timeout  = "2s"
          check_restart {
            limit = 3
            grace = "2m"
          }
        }
      }
    }
    task "arbiter" {
      driver = "docker"
      kill_timeout = "10s"
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      restart {
        mode = "delay"
      }
      env {
        ARBITER_DRAIN = "20s"
      }
    }
  }
}
"""

SPEC: dict[str, Any] = {
    "Job": {
        "ID": "app",
        "TaskGroups": [
            {
                "Name": "web",
                "RestartPolicy": {"Attempts": 3, "Delay": 90 * NS},
                "Services": [
                    {"Checks": [{"Path": "/health", "Interval": 10 * NS, "Timeout": NS // 2, "CheckRestart": None}]}
                ],
                "Tasks": [
                    {
                        "Name": "app",
                        "Env": None,
                        "Services": [
                            {
                                "Checks": [
                                    {
                                        "Path": "/health/nomad",
                                        "Interval": 5 * NS,
                                        "Timeout": 2 * NS,
                                        "CheckRestart": {"Limit": 3, "Grace": 120 * NS},
                                    }
                                ]
                            }
                        ],
                    },
                    {
                        "Name": "arbiter",
                        "KillTimeout": 10 * NS,
                        "Lifecycle": {"Hook": "poststart", "Sidecar": True},
                        "RestartPolicy": {"Mode": "delay"},
                        "Env": {"ARBITER_DRAIN": "20s"},
                    },
                ],
            }
        ],
    }
}

READ = [
    Group(
        "web",
        (
            Task("app", {}, Restart(3, 90.0)),
            Task(
                "arbiter",
                {"ARBITER_DRAIN": "20s"},
                Restart(3, 90.0, "delay"),
                is_sidecar=True,
                kill_timeout_s=10.0,
            ),
        ),
        (
            Check("", "/health", 10.0, 0.5, 0, 1.0),
            Check("app", "/health/nomad", 5.0, 2.0, 3, 120.0),
        ),
    )
]


def _read(tmp_path: Path, text: str) -> list[Group]:
    (tmp_path / "job").write_text(text)
    return jobspec.read(str(tmp_path / "job"))


@pytest.mark.parametrize(
    "text", [HCL, json.dumps(SPEC), json.dumps(SPEC["Job"])], ids=["HCL", "JSON", "JSON of the job alone"]
)
def test_job_is_read(tmp_path: Path, text: str) -> None:
    assert _read(tmp_path, text) == READ


def test_job_that_we_ship_is_read() -> None:
    (group,) = jobspec.read(str(SHIPPED))
    assert [task.name for task in group.tasks] == ["app", "arbiter"]
    assert [(check.task, check.path) for check in group.checks] == [("app", "/health/nomad")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not a Nomad job"),
        ("{}", None),
        ('{"Job": []}', "is not a Nomad job"),
        ('{"Job": {"TaskGroups": [{"Tasks": 5, "Name": "x"}]}}', "is not a Nomad job"),
        ('{"Job": {"TaskGroups": [{"Name": "x", "RestartPolicy": {"Delay": "soon"}}]}}', "is not a Nomad job"),
        ("[" * 100_000, "is not HCL"),
        ("job {{{", "is not HCL"),
        ("", "is not a Nomad job"),
    ],
)
def test_file_without_a_job_is_named(tmp_path: Path, text: str, complaint: str | None) -> None:
    if complaint is None:
        assert _read(tmp_path, text) == []
        return
    with pytest.raises(JobError, match=complaint):
        _read(tmp_path, text)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: no such file"):
        jobspec.read(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="cannot be read: not UTF-8"):
        jobspec.read(str(tmp_path / "binary"))
