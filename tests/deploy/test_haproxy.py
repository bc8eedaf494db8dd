"""The shipped HAProxy configurations and the job of Nomad that runs one: valid, and true of the sidecar.

The stories with real sidecars are in tests/e2e.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.nomad_job import HAPROXY_JOB_FILE, JOB_FILE, blocks, labelled, one, plain, seconds
from harness.binaries import require
from harness.haproxy import EMPTY_STATE, HAPROXY, Haproxy, notice_s, option
from harness.ports import free_ports
from harness.waiting import wait_for
from sidecar.config import addresses
from sidecar.config.settings import Config
from sidecar.runlock import durations

if TYPE_CHECKING:
    from harness.children import Children

TOP: Final = HAPROXY.parents[1]
SHIPPED: Final = ("agent", "plain", "cascade")
TEMPLATE: Final = HAPROXY / "cascade.cfg.tpl"
PUBLIC_PORT: Final = addresses.split(Config().server.public_listen)[1]
AGENT_PORT: Final = addresses.split(Config().server.agent_listen)[1]


def _text(name: str) -> str:
    return (HAPROXY / f"{name}.cfg").read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_haproxy_asks_the_ports_of_the_sidecar_and_acts_within_the_drain(name: str) -> None:
    text = _text(name)
    path, port, expected = ("/", "agent-port", AGENT_PORT)
    if name == "plain":
        path, port, expected = ("/health/haproxy", "port", PUBLIC_PORT)
    assert option(text, port) == str(expected)
    assert f"http-check send meth GET uri {path} ver HTTP/1.1 " in text
    assert notice_s(text) < Config().culling.drain


@pytest.mark.haproxy
@pytest.mark.parametrize("name", SHIPPED)
def test_haproxy_accepts_it_without_a_warning(name: str, tmp_path: Path) -> None:
    (tmp_path / "server-state").write_text(EMPTY_STATE)
    text = _text(name).replace("/var/lib/haproxy/server-state", str(tmp_path / "server-state"))
    Haproxy(tmp_path, text).check()


# -- servers from Nomad's registry -----------------------------------------------------------------------------------


def test_template_is_the_cascade_with_the_service_and_the_tag_of_the_job() -> None:
    template = TEMPLATE.read_text()
    lines = [text[text.index("global\n") :].splitlines() for text in (template, _text("cascade"))]
    assert [line for line in lines[0] if "{{" not in line] == [line for line in lines[1] if "server app" not in line]
    (service,), (tag,) = re.findall(r'nomadService "(.*)"', template), re.findall(r'regexMatch "(.*?)" \.', template)
    registered = re.search(
        r'name += "(.*)"\s+provider = "nomad"\s+port += "app"\s+tags += \["(.*)"\]', JOB_FILE.read_text()
    )
    assert registered
    assert registered[1] == service
    assert re.fullmatch(tag, registered[2].replace("${NOMAD_HOST_PORT_arbiter_agent}", "29182"))


JOB: Final = labelled(labelled(plain(HAPROXY_JOB_FILE.read_text()), "job")["haproxy"], "group")["haproxy"]
TASK: Final[dict[str, Any]] = labelled(JOB, "task")["haproxy"]
CONFIG, SCRIPT = blocks(TASK, "template")


def _template() -> str:
    """The template of the configuration, as ``nomad job run`` reads it at the top of the project."""
    (path,) = re.findall(r'file\("(.*?)"\)', CONFIG["data"])
    text = (TOP / path).read_text()
    for old, new in re.findall(r'"(/[\w/]+/)",\s*"(/[\w/]+/)"', CONFIG["data"]):
        assert old in text
        text = text.replace(old, new)
    return str(text)


def test_job_follows_the_registry_before_an_app_that_is_stopped_ends_and_keeps_to_its_ports_and_directory() -> None:
    waits = one(CONFIG, "wait")
    assert (CONFIG["change_mode"], SCRIPT["change_mode"]) == ("script", "noop")
    assert one(CONFIG, "change_script")["args"] == [f"/{SCRIPT['destination']}"]
    assert seconds(waits, "max") + durations.parse(option(_text("cascade"), "inter")) < 10
    ports = labelled(one(JOB, "network"), "port")
    assert re.findall(r"bind :(\d+)", _template()) == [str(port["static"]) for port in ports.values()]
    texts = (_template(), one(TASK, "config")["args"][1], SCRIPT["data"])
    paths = [path for text in texts for path in re.findall(r"(?<=[\s>]/)[\w-]+/[\w.-]+", text)]
    assert {path.partition("/")[0] for path in paths} == {"local"}


SOCAT: Final = f"""#!{sys.executable}
import shutil, socket, sys
with socket.socket(socket.AF_UNIX) as admin:
    admin.connect(sys.argv[2])
    admin.sendall(sys.stdin.buffer.read())
    shutil.copyfileobj(admin.makefile("rb"), sys.stdout.buffer)
"""
ALLOCATIONS: Final = ("2873cf75-42e5-7c45-ca1c-415f3e18be3d", "9a4f1f0c-6ad1-2c8e-0c1f-5d0a3c8c7e11")


class JobHaproxy(Haproxy):
    """The job's HAProxy with the task's directory in place of ``/local``, and a ``socat`` if there is none."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "")
        self.admin_socket = directory / "admin.sock"
        self._ports = free_ports(2)
        (directory / "server-state").write_text(EMPTY_STATE)
        (directory / "socat").write_text(SOCAT)
        (directory / "socat").chmod(0o700)
        (directory / "reload").write_text(self._here(SCRIPT["data"].replace('\\"', '"')))

    def render(self, *allocations: str) -> None:
        """Write what Nomad renders with these allocations in its registry."""
        text = self._here(_rendered(allocations))
        for old, new in zip((":8000", ":8405"), self._ports, strict=True):
            text = text.replace(f"bind {old}", f"bind 127.0.0.1:{new}")
        self.config.write_text(text)

    def reload(self) -> None:
        """What Nomad runs after a change."""
        script = one(CONFIG, "change_script")
        subprocess.run([script["command"], *map(self._here, script["args"])], env=self._env(), check=True, timeout=60)

    def worker(self) -> str:
        (pid,) = re.findall(r"^Pid: (\d+)", self.admin("show info"), re.MULTILINE)
        return str(pid)

    def drained(self) -> dict[str, bool]:
        """Whether each server is drained by an order."""
        rows = [line.split() for line in self.admin("show servers state").splitlines()[2:] if line.strip()]
        return {row[3]: bool(int(row[6]) & 0x08) for row in rows}

    def _here(self, text: str) -> str:
        return text.replace("/local/", f"{self.directory}/")

    def _command(self) -> list[str]:
        config = one(TASK, "config")
        return [config["command"], *map(self._here, config["args"])]

    def _env(self) -> dict[str, str]:
        directories = (str(Path(require("haproxy")).parent), os.environ["PATH"], str(self.directory))
        return {"PATH": os.pathsep.join(directories)}


def _rendered(allocations: Sequence[str]) -> str:
    servers = "".join(f"\n    server {each} 127.0.0.1:9 agent-port 9" for each in allocations)
    text, count = re.subn(r"\s*\{\{- range nomadService .*\{\{- end \}\}", servers, _template(), flags=re.DOTALL)
    assert count == 1
    return re.sub(r"\{\{- /\*.*?\*/ -\}\}\s*", "", text, flags=re.DOTALL)


@pytest.mark.haproxy
@pytest.mark.process
def test_drained_server_stays_drained_when_nomads_registry_changes(run_dir: Path, children: Children) -> None:
    haproxy, newcomer = children.adopt(JobHaproxy(run_dir)), "0f8fad5b-d9cb-469f-a165-70867728950e"
    haproxy.render(*ALLOCATIONS)
    haproxy.start()
    haproxy.admin(f"set server app/{ALLOCATIONS[1]} state drain")
    assert haproxy.drained() == dict(zip(ALLOCATIONS, (False, True), strict=True))
    before = haproxy.worker()
    haproxy.render(newcomer, ALLOCATIONS[1])
    haproxy.reload()
    wait_for(lambda: haproxy.worker() != before, timeout_s=60, what="another worker")
    assert haproxy.drained() == {newcomer: False, ALLOCATIONS[1]: True}
