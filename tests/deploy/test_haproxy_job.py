"""The HAProxy job of Nomad: its template is the shipped one, and its command and script run a real HAProxy."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.haproxy_config import CASCADE, server_option
from deploy.nomad_job import HAPROXY_JOB_FILE, blocks, labelled, one, plain, seconds
from harness.binaries import require
from harness.child import Child
from harness.ports import free_ports
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children

TOP: Final = HAPROXY_JOB_FILE.parents[1]
ALLOCATIONS: Final = ("2873cf75-42e5-7c45-ca1c-415f3e18be3d", "9a4f1f0c-6ad1-2c8e-0c1f-5d0a3c8c7e11")
_SOCAT: Final = f"""#!{sys.executable}
import shutil, socket, sys
with socket.socket(socket.AF_UNIX) as admin:
    admin.connect(sys.argv[2])
    admin.sendall(sys.stdin.buffer.read())
    shutil.copyfileobj(admin.makefile("rb"), sys.stdout.buffer)
"""


def _task() -> dict[str, Any]:
    job = labelled(plain(HAPROXY_JOB_FILE.read_text()), "job")["haproxy"]
    return labelled(labelled(job, "group")["haproxy"], "task")["haproxy"]


def _template() -> str:
    """The template of the configuration, as ``nomad job run`` reads it at the top of the project."""
    expression = blocks(_task(), "template")[0]["data"]
    (path,) = re.findall(r'file\("(.*?)"\)', expression)
    text = (TOP / path).read_text()
    for old, new in re.findall(r'"(/[\w/]+/)",\s*"(/[\w/]+/)"', expression):
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return str(text)


def _rendered(allocations: Sequence[str]) -> str:
    """What Nomad renders with these allocations in its registry."""
    servers = "".join(f"\n    server {each} 127.0.0.1:9 agent-port 9" for each in allocations)
    text, count = re.subn(r"\s*\{\{- range nomadService .*\{\{- end \}\}", servers, _template(), flags=re.DOTALL)
    assert count == 1
    return re.sub(r"\{\{- /\*.*?\*/ -\}\}\s*", "", text, flags=re.DOTALL)


def test_haproxy_follows_the_registry_before_an_app_that_is_stopped_ends() -> None:
    config, script = blocks(_task(), "template")
    waits, cascade = one(config, "wait"), CASCADE.read_text()
    assert (seconds(waits, "min"), seconds(waits, "max")) == (0.5, 2)
    assert (config["change_mode"], script["change_mode"]) == ("script", "noop")
    assert one(config, "change_script")["args"] == [f"/{script['destination']}"]
    assert seconds(waits, "max") + seconds({"inter": server_option(cascade, "inter")}, "inter") < 10


def test_ports_of_the_job_are_those_of_the_configuration() -> None:
    job = labelled(plain(HAPROXY_JOB_FILE.read_text()), "job")["haproxy"]
    ports = labelled(one(labelled(job, "group")["haproxy"], "network"), "port")
    assert re.findall(r"bind :(\d+)", _template()) == [str(port["static"]) for port in ports.values()]


def test_every_path_of_the_job_is_in_the_directory_that_nomad_gives_the_task() -> None:
    script = blocks(_task(), "template")[1]["data"]
    texts = (_template(), one(_task(), "config")["args"][1], script)
    assert {path.partition("/")[0] for text in texts for path in re.findall(r"(?<=[\s>]/)[\w-]+/[\w.-]+", text)} == {
        "local"
    }


class _Haproxy(Child):
    """The job's HAProxy with the task's directory in place of ``/local``, and a ``socat`` if there is none."""

    def __init__(self, directory: Path) -> None:
        super().__init__("haproxy", directory)
        self._ports = free_ports(2)
        (directory / "socat").write_text(_SOCAT)
        (directory / "socat").chmod(0o700)
        (directory / "reload").write_text(self._here(blocks(_task(), "template")[1]["data"]))

    def _here(self, text: str) -> str:
        return text.replace("/local/", f"{self.directory}/")

    def render(self, *allocations: str) -> None:
        text = self._here(_rendered(allocations))
        for old, new in zip((":8000", ":8405"), self._ports, strict=True):
            text = text.replace(f"bind {old}", f"bind 127.0.0.1:{new}")
        (self.directory / "haproxy.cfg").write_text(text)

    def check(self) -> None:
        """Have HAProxy read the configuration; no warning either."""
        command = [require("haproxy"), "-c", "-dW", "-f", str(self.directory / "haproxy.cfg")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def reload(self) -> None:
        """What Nomad runs after a change."""
        script = one(blocks(_task(), "template")[0], "change_script")
        command = [script["command"], *map(self._here, script["args"])]
        subprocess.run(command, env=self._env(), check=True, timeout=60)

    def admin(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.directory / "admin.sock"))
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def worker(self) -> str:
        (pid,) = re.findall(r"^Pid: (\d+)", self.admin("show info"), re.MULTILINE)
        return str(pid)

    def drained(self) -> dict[str, bool]:
        """Whether each server is drained by an order."""
        rows = [line.split() for line in self.admin("show servers state").splitlines()[2:] if line.strip()]
        return {row[3]: bool(int(row[6]) & 0x08) for row in rows}

    def _command(self) -> list[str]:
        config = one(_task(), "config")
        return [config["command"], *map(self._here, config["args"])]

    def _env(self) -> dict[str, str]:
        directories = (str(Path(require("haproxy")).parent), os.environ["PATH"], str(self.directory))
        return {"PATH": os.pathsep.join(directories)}

    def _is_ready(self) -> bool:
        return "Name: HAProxy" in self.admin("show info")


@pytest.mark.haproxy
@pytest.mark.process
def test_drained_server_stays_drained_when_nomads_registry_changes(run_dir: Path, children: Children) -> None:
    haproxy = children.adopt(_Haproxy(run_dir))
    haproxy.render(*ALLOCATIONS)
    (run_dir / "server-state").write_text("1\n")
    haproxy.check()
    haproxy.start()
    haproxy.admin(f"set server app/{ALLOCATIONS[1]} state drain")
    assert haproxy.drained() == dict(zip(ALLOCATIONS, (False, True), strict=True))
    before = haproxy.worker()
    haproxy.render("0f8fad5b-d9cb-469f-a165-70867728950e", ALLOCATIONS[1])
    haproxy.reload()
    wait_for(lambda: haproxy.worker() != before, timeout_s=60, what="another worker")
    assert haproxy.drained() == {"0f8fad5b-d9cb-469f-a165-70867728950e": False, ALLOCATIONS[1]: True}
