"""A job file read from both of its forms: what the arbiter cares about is the same in either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.doctor import jobspec
from sidecar.cli.doctor.jobspec import Check, Group, JobError, Reschedule, Restart, Task, Template

SHIPPED = Path(__file__).parents[3] / "nomad"
NS = 1_000_000_000

HCL = """
job "app" {
  group "web" {
    restart {
      attempts = 3
      delay    = "1m30s"
    }
    reschedule {
      attempts       = 2
      delay          = "10s"
      delay_function = "constant"
      unlimited      = false
    }
    network {
      mode = "bridge"
      port "arbiter" {
        to = 9181
      }
      port "fixed" {
        static = 9000
      }
      port "any" {}
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
        port = "arbiter"
        tags = ["agent-port=1"]
        check {
          protocol = "https"
          tls_skip_verify = true
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
      config {
        image   = "arbiter:1"
        command = "run"
        args    = ["--fast"]
        ulimit {
          core = "0"
        }
      }
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      restart {
        mode = "delay"
      }
      template {
        data        = <<-EOT
          A=1
        EOT
        destination = "secrets/env"
        env         = true
        change_mode = "noop"
      }
      identity {
        file = true
      }
      env {
        ARBITER_DRAIN = "20s"
        ARBITER_STANDBY = false
      }
      resources {
        memory     = 64
        memory_max = 96
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
                "ReschedulePolicy": {"Attempts": 2, "Delay": 10 * NS, "DelayFunction": "constant", "Unlimited": False},
                "Networks": [
                    {
                        "Mode": "bridge",
                        "ReservedPorts": [
                            {"Label": "arbiter", "Value": 0, "To": 9181},
                            {"Label": "fixed", "Value": 9000, "To": 0},
                        ],
                        "DynamicPorts": [{"Label": "any", "Value": 0, "To": 0}],
                    }
                ],
                "Services": [
                    {"Checks": [{"Path": "/health", "Interval": 10 * NS, "Timeout": NS // 2, "CheckRestart": None}]}
                ],
                "Tasks": [
                    {
                        "Name": "app",
                        "Driver": "docker",
                        "Env": None,
                        "Services": [
                            {
                                "PortLabel": "arbiter",
                                "Tags": ["agent-port=1"],
                                "Checks": [
                                    {
                                        "PortLabel": "",
                                        "Protocol": "https",
                                        "TLSSkipVerify": True,
                                        "Path": "/health/nomad",
                                        "Interval": 5 * NS,
                                        "Timeout": 2 * NS,
                                        "CheckRestart": {"Limit": 3, "Grace": 120 * NS},
                                    }
                                ],
                            }
                        ],
                    },
                    {
                        "Name": "arbiter",
                        "Driver": "docker",
                        "Config": {
                            "image": "arbiter:1",
                            "command": "run",
                            "args": ["--fast"],
                            "ulimit": [{"core": "0"}],
                        },
                        "Templates": [
                            {"EmbeddedTmpl": "A=1\n", "Envvars": True, "ChangeMode": "noop", "DestPath": "secrets/env"}
                        ],
                        "Identity": {"File": True},
                        "Resources": {"MemoryMB": 64, "MemoryMaxMB": 96},
                        "KillTimeout": 10 * NS,
                        "Lifecycle": {"Hook": "poststart", "Sidecar": True},
                        "RestartPolicy": {"Mode": "delay"},
                        "Env": {"ARBITER_DRAIN": "20s", "ARBITER_STANDBY": "false"},
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
            Task("app", {}, Restart(3, 90.0), driver="docker"),
            Task(
                "arbiter",
                {"ARBITER_DRAIN": "20s", "ARBITER_STANDBY": "false"},
                Restart(3, 90.0, "delay"),
                is_sidecar=True,
                kill_timeout_s=10.0,
                driver="docker",
                templates=(Template("A=1\n", is_env=True, change_mode="noop", destination="secrets/env"),),
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
            Check("app", "/health/nomad", 5.0, 2.0, 3, 120.0, "arbiter", "https", names_host=True),
        ),
        "bridge",
        {"arbiter": 9181, "fixed": 9000, "any": jobspec.SOME_PORT + 2},
        ("agent-port=1",),
        Reschedule("constant", is_limited=True, delay_s=10.0),
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


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.nomad.hcl")), ids=lambda path: path.name)
def test_job_that_we_ship_is_read(path: Path) -> None:
    for group in jobspec.read(str(path)):
        assert [task.name for task in group.tasks] == ["app", "arbiter"]
        assert group.ports.items() >= {"arbiter": 9181, "arbiter_agent": 9182}.items()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not a Nomad job"),
        ("{}", None),
        ('{"Job": []}', "is not a Nomad job"),
        ('{"Job": {"TaskGroups": [{"Tasks": 5, "Name": "x"}]}}', "is not a Nomad job"),
        ('{"Job": {"TaskGroups": [{"Name": "x", "RestartPolicy": {"Delay": "soon"}}]}}', "is not a Nomad job"),
        ("[" * 100_000, r"job, line 1: a name of an attribute or block is missing"),
        ("a = " + "[" * 100_000, "is not a Nomad job"),
        ('\njob "x" {\n  group {{', r"job, line 3: a name of an attribute or block is missing"),
        ("", "is not a Nomad job"),
        (
            'job "x" {\n group "g" {\n  restart {\n   delay = "${7}s"\n   attempts = 2 * 2\n  }\n }\n}',
            r"job, line 5: attempts = 2 \* 2 is an expression, whose value Nomad knows: give the output of nomad",
        ),
        (
            'job "x" {\n dynamic "group" {\n }\n}',
            "job, line 2: a dynamic block is not read: give the output of nomad job run -output FILE",
        ),
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
