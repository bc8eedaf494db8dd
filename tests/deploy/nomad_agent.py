"""A real Nomad: one agent that is server and client, with ACLs, and the shipped jobs as it can run them here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote

import pytest

from harness.binaries import find
from harness.child import Child, python_env
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = "2.0.5"
"""The version that the shipped jobs were tried with."""

START_S: Final = 120.0
LOWEST_PORT: Final = 10_000
PORTS: Final = 200
"""For the tasks, below those that ``free_port`` gives; other tests may run beside this one."""

_CONFIG: Final = """
data_dir  = "{data}"
bind_addr = "127.0.0.1"
log_level = "DEBUG"
disable_update_check = true
ports {{
  http = {http}
  rpc  = {rpc}
  serf = {serf}
}}
advertise {{
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}}
acl {{
  enabled = true
}}
server {{
  enabled          = true
  bootstrap_expect = 1
  default_scheduler_config {{
    memory_oversubscription_enabled = false
  }}
}}
client {{
  enabled           = true
  network_interface = "lo"
  cpu_total_compute = 20000
  memory_total_mb   = 16000
  min_dynamic_port  = {least}
  max_dynamic_port  = {most}
  options {{
    "driver.allowlist"     = "raw_exec"
    "fingerprint.denylist" = "env_aws,env_azure,env_digitalocean,env_gce,consul,vault"
  }}
}}
plugin "raw_exec" {{
  config {{
    enabled = true
  }}
}}
consul {{
  client_auto_join = false
  server_auto_join = false
  auto_advertise   = false
}}
"""


def require_nomad() -> str:
    """The path of the program; without it the test is skipped, under ``CI=true`` too."""
    path = find("nomad")
    if path is None:
        pytest.skip(f"no nomad on PATH (tried with {VERSION}); test_nomad_stories.py has the same with a stand-in")
    if os.geteuid() != 0:
        pytest.skip("a client of Nomad needs root")
    return path


class Allocation(NamedTuple):
    """An allocation. ``is_healthy`` for its deployment; ``restarts`` counts those of each task, in place."""

    id: str
    client_status: str
    desired_status: str
    created_at: float
    is_healthy: bool
    restarts: dict[str, int]


class NomadAgent(Child):
    """``nomad agent`` with a data directory that outlasts a restart. ``token`` is the management token.

    The directory's path must be short: the task API is a unix socket in it.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__("nomad", directory)
        self._program = require_nomad()
        self.token = ""
        self._http = free_port()
        self._ports: dict[str, dict[str, int]] = {}
        self._data = directory.resolve() / "n"
        self._mark = f"NOMAD_OF_TEST={directory}".encode()
        least = LOWEST_PORT + os.getpid() % 9 * PORTS
        ports = {"http": self._http, "rpc": free_port(), "serf": free_port(), "least": least, "most": least + PORTS - 1}
        text = _CONFIG.format(data=directory / "n", **ports)
        self._config = directory / "agent.hcl"
        self._config.write_text(text)

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON answer of the HTTP API; AssertionError for an error."""
        status, text = self._request(method, path, body)
        assert status == 200, f"{method} {path}: {status} {text}"
        return json.loads(text) if text else None

    def run(self, *words: str, code: int | None = 0) -> str:
        """The output of a command of Nomad, which ends with this exit code; None: any."""
        done = subprocess.run(
            [self._program, *words], env=self.environ(), capture_output=True, text=True, timeout=120, check=False
        )
        output = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"nomad {' '.join(words)}: {done.returncode}\n{output}"
        return output

    def environ(self) -> dict[str, str]:
        return {**python_env(), "NOMAD_ADDR": f"http://127.0.0.1:{self._http}", "NOMAD_TOKEN": self.token}

    def allocations(self, job: str = "app") -> list[Allocation]:
        """The allocations of a job, the oldest first."""
        listed = self.ask("GET", f"/v1/job/{quote(job)}/allocations?all=true")
        return sorted((_allocation(each) for each in listed), key=lambda one: one.created_at)

    def running(self, job: str = "app") -> list[Allocation]:
        """The allocations that run, and should."""
        return [one for one in self.allocations(job) if (one.client_status, one.desired_status) == ("running", "run")]

    def ports(self, allocation: str) -> dict[str, int]:
        """The ports of an allocation by their label."""
        if allocation not in self._ports:
            found = self.ask("GET", f"/v1/allocation/{allocation}")["AllocatedResources"]["Shared"]["Ports"]
            self._ports[allocation] = {port["Label"]: port["Value"] for port in found}
        return self._ports[allocation]

    def secrets(self, allocation: str, task: str) -> Path:
        """The secrets directory of a task, with its task API and its token; a short path."""
        return self.directory / "n" / "alloc" / allocation / task / "secrets"

    def deployment(self, wanted: str = "") -> dict[str, Any]:
        """The deployment with this ID, or the newest one of the job ``app``; empty: none."""
        path = f"/v1/deployment/{wanted}" if wanted else "/v1/job/app/deployment"
        found: dict[str, Any] | None = self.ask("GET", path)
        return found or {}

    def pids(self, allocation: str, task: str) -> list[int]:
        """The processes of a task that runs: those with its environment, the oldest first."""
        wanted = {f"NOMAD_ALLOC_ID={allocation}".encode(), f"NOMAD_TASK_NAME={task}".encode()}
        return [pid for pid, environ in _environments() if wanted <= environ]

    # -- the process -------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        super().start()
        if not self.token:
            wait_for(self._bootstrap, timeout_s=START_S, what="the ACLs are bootstrapped")
        wait_for(self._has_node, timeout_s=START_S, what="the node is ready")
        return self

    def restart(self) -> None:
        """End the agent and start it again; its tasks go on meanwhile."""
        self.stop(timeout_s=30)
        self.start()

    def end(self) -> None:
        """Stop every job, end the agent, and what is left of its processes and mounts."""
        with suppress(AssertionError, OSError, HTTPException):
            for job in self.ask("GET", "/v1/jobs?namespace=*"):
                self.purge(job["ID"])
        self.stop(timeout_s=20)
        for pid, environ in _environments():
            if self._mark in environ:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for line in Path("/proc/mounts").read_text().splitlines():
            if (mounted := line.split()[1]).startswith(str(self._data)):
                subprocess.run(["umount", "-l", mounted], check=False)

    def purge(self, job: str) -> None:
        """Stop a job, and return when none of its tasks runs."""
        self.ask("DELETE", f"/v1/job/{quote(job)}?no_shutdown_delay=true")
        ended = {"complete", "failed", "lost"}

        def is_over() -> bool:
            return all(one.client_status in ended for one in self.allocations(job))

        wait_for(is_over, timeout_s=START_S, what=f"no task of {job} runs")
        self.ask("DELETE", f"/v1/job/{quote(job)}?purge=true")
        self.ask("PUT", "/v1/system/gc")

    def _command(self) -> list[str]:
        return [self._program, "agent", "-config", str(self._config)]

    def _env(self) -> dict[str, str]:
        name, _, value = self._mark.decode().partition("=")
        return python_env(**{name: value})  # what it starts inherits it

    def _is_ready(self) -> bool:
        return self._request("GET", "/v1/status/leader")[1].strip('"\n') != ""

    def _bootstrap(self) -> bool:
        status, text = self._request("POST", "/v1/acl/bootstrap")
        if status == 200:
            self.token = json.loads(text)["SecretID"]
        return bool(self.token)

    def _has_node(self) -> bool:
        nodes = self.ask("GET", "/v1/nodes")
        return any(node["Status"] == "ready" and "raw_exec" in node["Drivers"] for node in nodes)

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self._http, timeout=60)
        try:
            headers = {"X-Nomad-Token": self.token} if self.token else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def _allocation(listed: dict[str, Any]) -> Allocation:
    restarts = {name: task["Restarts"] for name, task in (listed["TaskStates"] or {}).items()}
    statuses = (listed["ClientStatus"], listed["DesiredStatus"])
    is_healthy = bool((listed["DeploymentStatus"] or {}).get("Healthy"))
    return Allocation(listed["ID"], *statuses, listed["CreateTime"] / 1e9, is_healthy, restarts)


def _environments() -> Iterable[tuple[int, set[bytes]]]:
    for directory in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            yield int(directory.name), set((directory / "environ").read_bytes().split(b"\0"))
