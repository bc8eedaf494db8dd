"""cascade.cfg.tpl: cascade.cfg with servers from Nomad's registry, rendered by consul-template if that is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.haproxy_config import CASCADE, DIRECTORY
from harness.binaries import find, require

TEMPLATE: Final = DIRECTORY / "cascade.cfg.tpl"
JOB: Final = DIRECTORY.parents[1] / "nomad" / "app.nomad.hcl"
ALLOCATIONS: Final = ("2873cf75-42e5-7c45-ca1c-415f3e18be3d", "9a4f1f0c-6ad1-2c8e-0c1f-5d0a3c8c7e11")


def _settings(text: str) -> list[str]:
    """The lines of all sections without the servers."""
    lines = text[text.index("global\n") :].splitlines()
    return [line for line in lines if not line.lstrip().startswith(("server app", "server {{", "{{"))]


def test_template_differs_from_the_cascade_only_in_its_servers() -> None:
    assert _settings(TEMPLATE.read_text()) == _settings(CASCADE.read_text())


def test_template_matches_the_service_of_the_job_file() -> None:
    service = re.search(r'nomadService "(.*)"', TEMPLATE.read_text())
    tag = re.search(r'regexMatch "(.*?)" \.', TEMPLATE.read_text())
    registered = re.search(r'name += "(.*)"\s+provider = "nomad"\s+port += "app"\s+tags += \["(.*)"\]', JOB.read_text())
    assert service
    assert tag
    assert registered
    assert registered[1] == service[1]
    assert re.fullmatch(tag[1], registered[2].replace("${NOMAD_HOST_PORT_arbiter_agent}", "29182"))


def test_every_action_of_the_template_is_closed() -> None:
    text = TEMPLATE.read_text()
    opened = re.findall(r"\{\{-? *(?:range|if|with)\b", text)
    assert len(opened) == len(re.findall(r"\{\{-? *end\b", text)) == 3
    assert text.count("{{") == text.count("}}")


# -- rendered -------------------------------------------------------------------------------------------------------


def _registration(number: int, tags: list[str]) -> dict[str, Any]:
    allocation = ALLOCATIONS[number]
    place = {"Address": f"10.0.0.1{number}", "Port": 28080 + number, "NodeID": f"node{number}", "Datacenter": "dc1"}
    names = {"ID": f"_nomad-task-{allocation}", "ServiceName": "app", "Namespace": "default", "JobID": "app"}
    return {**place, **names, "AllocID": allocation, "Tags": tags, "CreateIndex": 1, "ModifyIndex": 1}


class _Registry(BaseHTTPRequestHandler):
    """Nomad's API for the service ``app``."""

    def do_GET(self) -> None:
        known = [_registration(0, ["blue", "agent-port=29182"]), _registration(1, ["agent-port=${unknown}"])]
        body = json.dumps(known if self.path.startswith("/v1/service/app?") else []).encode()
        self.send_response(200)
        for name, value in (("Index", "1"), ("KnownLeader", "true"), ("LastContact", "0")):
            self.send_header(f"X-Nomad-{name}", value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def rendered(registry: str, tmp_path: Path) -> Path:
    program = find("consul-template")
    if program is None:
        pytest.skip("consul-template is not installed, and Debian has no package of it")
    config = tmp_path / "haproxy.cfg"
    command = [program, "-once", "-template", f"{TEMPLATE}:{config}"]
    subprocess.run(command, env={**os.environ, "NOMAD_ADDR": registry}, check=True, timeout=90, capture_output=True)
    return config


def test_each_allocation_has_its_own_line(rendered: Path) -> None:
    servers = [line.split() for line in rendered.read_text().splitlines() if line.startswith("    server ")]
    assert servers == [
        ["server", ALLOCATIONS[0], "10.0.0.10:28080", "agent-port", "29182"],
        ["server", ALLOCATIONS[1], "10.0.0.11:28081", "no-agent-check"],
    ]


@pytest.mark.haproxy
def test_haproxy_accepts_the_rendered_file_without_a_warning(rendered: Path, tmp_path: Path) -> None:
    state = tmp_path / "server-state"
    state.write_text("1\n")
    rendered.write_text(rendered.read_text().replace("/var/lib/haproxy/server-state", str(state)))
    command = [require("haproxy"), "-c", "-dW", "-f", str(rendered)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
