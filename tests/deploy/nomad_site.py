"""A site under a real Nomad: the shipped jobs, and HAProxy with the servers of Nomad's registry.

The jobs are the shipped files with the changes in ``without_docker``, and settings of the test. HAProxy is a job too: a
template of Nomad renders the shipped cascade.cfg.tpl with the waits of haproxy.nomad.hcl, and a script reloads HAProxy.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from deploy.nomad_agent import Allocation, NomadAgent
from deploy.nomad_job import JOB_FILE, TASK_API_JOB_FILE
from harness.apps import PROGRAMS
from harness.binaries import require
from harness.haproxy import EMPTY_STATE
from harness.http_request import request
from harness.ports import free_ports
from harness.redis_server import RedisServer
from harness.sidecar import Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping

    from harness.children import Children

TEMPLATE: Final = JOB_FILE.parents[1] / "deploy" / "haproxy" / "cascade.cfg.tpl"
POLICY: Final = JOB_FILE.parent / "arbiter.policy.hcl"
FILES: Final = {"check": JOB_FILE, "task API": TASK_API_JOB_FILE}
COUNT: Final = 3
LONGEST_S: Final = 300.0
PAUSE_S: Final = 0.1
PORTS: Final = ("app", "arbiter", "arbiter_agent")
_BEFORE_SETTING: Final = "        # Time after its start"

_RELOAD: Final = """#!{python}
# Without socat: the state of the servers, and then SIGUSR2 to the master.
import os, pathlib, signal, socket
with socket.socket(socket.AF_UNIX) as admin:
    admin.connect("{socket}")
    admin.sendall(b"show servers state\\n")
    pathlib.Path("{state}").write_bytes(b"".join(iter(lambda: admin.recv(65536), b"")))
os.kill(int(pathlib.Path("{pid}").read_text()), signal.SIGUSR2)
"""
_HAPROXY_JOB: Final = """
job "haproxy" {{
  group "haproxy" {{
    task "haproxy" {{
      driver = "raw_exec"
      config {{
        command = "{program}"
        args    = ["-W", "-db", "-p", "{pid}", "-f", "${{NOMAD_TASK_DIR}}/haproxy.cfg"]
      }}
      template {{
        destination = "${{NOMAD_TASK_DIR}}/haproxy.cfg"
        wait {{
          min = "500ms"
          max = "2s"
        }}
        change_mode = "script"
        change_script {{
          command       = "{script}"
          timeout       = "20s"
          fail_on_error = false
        }}
        data = <<-EOT
{text}
        EOT
      }}
    }}
  }}
}}
"""


def without_docker(text: str) -> str:
    """A shipped job for a node without Docker and CNI: driver raw_exec, and mode "host" as README.md describes it.

    Nothing else differs: checks, services, restarts, templates, identities and times are those of the file.
    """
    python, app = sys.executable, PROGRAMS / "failing_app.py"
    text = _replaced(text, 'driver = "docker"', 'driver = "raw_exec"', 2)
    text = _replaced(text, 'mode = "bridge"', 'mode = "host"\n      port "arbiter_local" {}')
    for label in PORTS:
        text, count = re.subn(rf'(port "{label}" {{)\s+to = \d+\s+}}', r"\1}", text)
        assert count == 1, f"no port {label}"
    runs_app = f'config {{\n command = "{python}"\n args = ["{app}", "${{NOMAD_ALLOC_ID}}", "${{NOMAD_PORT_app}}"]\n}}'
    text = _replaced(text, "config {\n        image = var.app_image\n      }", runs_app)
    runs_arbiter = f'config {{\n command = "{python}"\n args = ["-m", "sidecar", "run"]\n}}'
    text, count = re.subn(
        r"config \{\n\s+image +\= var\.arbiter_image.*?\n      \}", lambda _: runs_arbiter, text, flags=re.DOTALL
    )
    assert count == 1, "no arbiter"
    errors = 'ERRORS_URL = "http://127.0.0.1:{}/errors"'
    text = _replaced(text, errors.format(9180), errors.format("${NOMAD_PORT_arbiter_local}"))
    return with_settings(
        text,
        ARBITER_PUBLIC_LISTEN="0.0.0.0:${NOMAD_PORT_arbiter}",
        ARBITER_AGENT_LISTEN="0.0.0.0:${NOMAD_PORT_arbiter_agent}",
        ARBITER_LOCAL_LISTEN="127.0.0.1:${NOMAD_PORT_arbiter_local}",
    )


def with_settings(text: str, **settings: str) -> str:
    """The job with these settings of its sidecars in place of its own."""
    for name, value in settings.items():
        text = re.sub(rf"(?m)^ +{name} += .*\n", "", text)
        assert _BEFORE_SETTING in text
        text = text.replace(_BEFORE_SETTING, f'        {name} = "{value}"\n{_BEFORE_SETTING}')
    return text


def _replaced(text: str, old: str, new: str, count: int = 1) -> str:
    found = text.count(old)
    assert found == count, f"{old!r} is {found} times in the job"
    return text.replace(old, new)


class Case(NamedTuple):
    """A job file of FILES with settings of the test. ``change`` changes its text."""

    name: str
    settings: Mapping[str, str] = MappingProxyType({})
    change: Callable[[str], str] = str

    def text(self) -> str:
        """The job as it runs here."""
        settings = {"ARBITER_MODE": "enforce", **self.settings}
        return self.change(with_settings(without_docker(FILES[self.name].read_text()), **settings))


class NomadSite:
    """The agent, Redis, and HAProxy at ``front``. ``text`` is the job that runs."""

    def __init__(self, directory: Path, children: Children) -> None:
        self.nomad = NomadAgent(directory)
        self.front, self._metrics = free_ports(2)
        self.redis = children.adopt(RedisServer(directory))
        self.text = ""
        self._jobs = 0
        self._directory = directory

    def start(self) -> Self:
        """Start all, with the policy and the variable of README.md."""
        self.redis.start()
        self.nomad.start()
        for place in ("web", "web/arbiter"):
            self.nomad.run("var", "put", f"nomad/jobs/app/{place}", f"redis_url={self.redis.url}")
        self.apply_policy()
        self._run(self._haproxy_job(), "haproxy")
        return self

    def apply_policy(self) -> None:
        """As README.md says."""
        where = ("-namespace", "default", "-job", "app", "-group", "web", "-task", "arbiter")
        self.nomad.run("acl", "policy", "apply", *where, "arbiter-app", str(POLICY))

    def deploy(self, case: Case) -> list[Allocation]:
        """Have this case run, deployed and judged, unless it runs already; its allocations."""
        if (text := case.text()) != self.text:
            self.submit(text)
            self.await_deployment("successful")
        now_and_then(self.is_well, "the fleet is up")
        return self.nomad.running()

    def submit(self, text: str) -> None:
        """Run this job in place of the one that runs, without its history; returns when its deployment has begun."""
        if self.text:
            self.nomad.purge("app")
        self._jobs += 1
        self._begin(text)

    def _begin(self, text: str) -> None:
        before = self.nomad.deployment().get("ID") if self.text else None
        self.text = text
        self._run(with_settings(text, ARBITER_NAMESPACE=f"n{self._jobs}"), "app")
        now_and_then(lambda: self.nomad.deployment().get("ID") not in (before, None), "a deployment has begun")

    def _run(self, text: str, name: str) -> str:
        path = self._directory / f"{name}.nomad.hcl"
        path.write_text(text)
        images = ("-var", "app_image=none") if name == "app" else ()
        return self.nomad.run("job", "run", "-detach", *images, str(path))

    def await_deployment(self, status: str) -> None:
        now_and_then(lambda: self.nomad.deployment().get("Status") == status, f"the deployment is {status}")

    # -- the fleet ---------------------------------------------------------------------------------------------------

    def arbiter(self, allocation: Allocation) -> Sidecar:
        """The sidecar of this allocation, to be asked."""
        labels = {"local": "arbiter_local", "public": "arbiter", "agent": "arbiter_agent"}
        ports = self.nomad.ports(allocation.id)
        listeners = {f"{name}_listen": f"127.0.0.1:{ports[label]}" for name, label in labels.items()}
        return Sidecar(self._directory, allocation.id, **listeners)

    def is_well(self) -> bool:
        """Whether all that should run are judged and up, and HAProxy has them and no others."""
        running = self.nomad.running()
        return (
            len(running) == COUNT
            and {one.id for one in running} == self.servers()
            and all(self.is_up(one) for one in running)
        )

    def is_up(self, one: Allocation) -> bool:
        """Whether its app listens and is judged fine."""
        metrics = self.arbiter(one).metrics()
        return metrics['arbiter_state{state="up"}'] == 1 and metrics["arbiter_app_listening"] == 1

    def is_draining(self, one: Allocation) -> bool:
        return self.arbiter(one).metrics()['arbiter_state{state="draining"}'] == 1

    def is_up_for_nomad(self, one: Allocation) -> bool:
        return self.arbiter(one).health("/health/nomad")[0] == 200

    def now(self, one: Allocation) -> Allocation:
        """What has become of this allocation."""
        return next(each for each in self.nomad.allocations() if each.id == one.id)

    def make_sick(self, one: Allocation, errors: int = 5) -> None:
        self.arbiter(one).post_error(errors, kind="redis")

    def app_pid(self, one: Allocation) -> int:
        """The process of the app."""
        (pid,) = self.nomad.pids(one.id, "app")[-1:]
        return pid

    def signal_arbiter(self, one: Allocation, number: signal.Signals) -> None:
        """Send this signal to the sidecar that answers: it listens."""
        tasks = [pid for name in ("arbiter", "standby") for pid in self.nomad.pids(one.id, name)]
        port = self.nomad.ports(one.id)["arbiter_local"]
        os.kill(next(pid for pid in tasks if _listens(pid, port)), number)

    def servers(self) -> set[str]:
        """The names of the servers that HAProxy sends requests to."""
        page = request(self._metrics, "/metrics")[1]
        return set(re.findall(r'haproxy_server_status\{proxy="app",server="(.*?)",state="UP"\} 1', page))

    def _haproxy_job(self) -> str:
        state, pid, socket = (self._directory / f"haproxy.{end}" for end in ("state", "pid", "sock"))
        state.write_text(EMPTY_STATE)
        script = self._directory / "reload"
        script.write_text(_RELOAD.format(python=sys.executable, socket=socket, state=state, pid=pid))
        script.chmod(0o700)
        text = TEMPLATE.read_text()
        for old, new in (
            ("bind :8000", f"bind 127.0.0.1:{self.front}"),
            ("bind :8405", f"bind 127.0.0.1:{self._metrics}"),
            ("/var/lib/haproxy/server-state", str(state)),
            ("/run/haproxy/admin.sock", str(socket)),
        ):
            text = _replaced(text, old, new)
        return _HAPROXY_JOB.format(program=require("haproxy"), pid=pid, script=script, text=text)


def _listens(pid: int, port: int) -> bool:
    """Whether this process listens at the loopback port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    return any(str(path.readlink()) in inodes for path in Path(f"/proc/{pid}/fd").iterdir())


class Clock:
    """The seconds of a story since ``restart``. ``lines`` has what happened when."""

    def __init__(self, story: str) -> None:
        self.lines = [story]
        self.restart()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def restart(self) -> None:
        self._began = time.monotonic()

    def until(self, predicate: Callable[[], object], what: str) -> float:
        """Wait, and return the seconds."""
        now_and_then(predicate, what)
        seconds = self.seconds
        self.lines.append(f"{seconds:7.1f} s  {what}")
        return seconds


def now_and_then(predicate: Callable[[], object], what: str) -> None:
    """``wait_for`` with a pause between two looks: each is several requests."""

    def look() -> object:
        time.sleep(PAUSE_S)
        return predicate()

    wait_for(look, timeout_s=LONGEST_S, what=what)
