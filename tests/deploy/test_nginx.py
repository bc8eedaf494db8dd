"""The shipped nginx configuration and the script that writes its weights, with a real nginx."""

from __future__ import annotations

import re
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.apps import FailingApp, shares
from harness.binaries import require
from harness.child import Child
from harness.http_server import Asked, Said, http_server
from harness.ports import free_port, is_open
from harness.traffic import Outcome, Traffic, failed, lost, retried
from harness.waiting import wait_for
from sidecar.server.health import WEIGHT

if TYPE_CHECKING:
    from harness.children import Children

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "nginx"
NAMES: Final = ("app1", "app2", "app3")
REQUESTS: Final = 400
MAIN: Final = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {site}
}}
"""


class Nginx(Child):
    """A real nginx in the foreground, with ``site`` in its ``http`` block, listening on ``port``."""

    def __init__(self, directory: Path, site: str, port: int) -> None:
        super().__init__("nginx", directory)
        self._program = require("nginx")
        self._port = port
        self._config = directory / "nginx.conf"
        self._config.write_text(MAIN.format(directory=directory, site=site))

    def workers(self) -> set[str]:
        """The process ids of the workers, also of those that finish after a reload."""
        return set(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())

    def reload_command(self) -> str:
        """The command for a reload; none of its words has a blank."""
        return " ".join([*self._command(), "-s", "reload"])

    def _command(self) -> list[str]:
        return [self._program, "-e", "stderr", "-p", str(self.directory), "-c", str(self._config)]

    def _is_ready(self) -> bool:
        # The master opens the port before it starts a worker; ``workers`` needs one before a reload.
        return is_open(self._port) and bool(self.workers())


@contextmanager
def fake_sidecars() -> Iterator[tuple[str, dict[str, int]]]:
    """Host and port of public listeners at the hosts ``127.0.0.N``, and the weight that each shows, by its host."""
    weights: dict[str, int] = {}

    def health(asked: Asked) -> Said:
        weight = weights[str(asked.headers["Host"]).partition(":")[0]]
        return Said(200 if weight else 503, headers={WEIGHT: str(weight)})

    with http_server(health, "0.0.0.0") as port:
        yield str(port), weights


@dataclass
class Site:
    """Three apps, each with a fake listener at ``127.0.0.N``, and nginx in front of them."""

    nginx: Nginx
    servers: Path
    port: int
    apps: dict[str, FailingApp]
    pairs: list[str]
    weights: dict[str, int]

    def run_script(self) -> str:
        """Run the script once; the servers file after it, once nginx uses it."""
        before, workers = self.servers.read_text(), self.nginx.workers()
        run_script(self.servers, *self.pairs, reload=self.nginx.reload_command())
        after = self.servers.read_text()
        if after != before:
            wait_for(lambda: not workers & self.nginx.workers(), timeout_s=60, what="the old workers are gone")
        return after

    def answers(self) -> Counter[Outcome]:
        """The answers to some requests from users."""
        with Traffic(self.port) as traffic:
            traffic.next_answers(REQUESTS)
        return traffic.so_far()

    def served(self) -> dict[str, int]:
        return {name: app.served() for name, app in self.apps.items()}


def run_script(servers: Path, *pairs: str, reload: str) -> None:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "RELOAD": reload}
    command = ["sh", str(DIRECTORY / "arbiter-weights"), str(servers), *pairs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def site(run_dir: Path, children: Children) -> Iterator[Site]:
    require("curl")
    port, servers = free_port(), run_dir / "app.servers"
    text = (DIRECTORY / "app.conf").read_text().replace("listen 8000", f"listen 127.0.0.1:{port}")
    nginx = children.adopt(Nginx(run_dir, text.replace("/etc/nginx/arbiter/app.servers", str(servers)), port))
    with fake_sidecars() as (sidecars, weights):
        apps = {name: children.adopt(FailingApp(run_dir, name)).start() for name in NAMES}
        weights.update({f"127.0.0.{number}": 100 for number in range(1, 4)})
        pairs = [f"127.0.0.1:{app.port}={host}:{sidecars}" for app, host in zip(apps.values(), weights, strict=True)]
        run_script(servers, *pairs, reload="true")
        yield Site(nginx.start(), servers, port, apps, pairs, weights)


@contextmanager
def _unanswered(port: int) -> Iterator[None]:
    """Listen on this port with a full backlog: connections are not answered, as by a machine that is gone."""
    with ExitStack() as held, socket.create_server(("127.0.0.1", port), backlog=0):
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(("127.0.0.1", port))
        yield


@pytest.mark.site
def test_failed_get_goes_to_another_server_a_post_does_not_and_no_connection_costs_a_request(site: Site) -> None:
    site.apps["app2"].fail(1.0)
    seen = site.answers()
    posts = sum(count for outcome, count in seen.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(seen, "GET") == 0
    assert 0.2 < failed(seen, "POST") < 0.5, "about a third: a retry takes a turn too"
    assert retried(seen, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"
    site.apps["app2"].kill()
    assert lost(site.answers()) == {}, "refused connections"
    with _unanswered(site.apps["app2"].port):
        assert lost(site.answers()) == {}, "connections without an answer"


@pytest.mark.site
def test_script_gives_each_server_the_weight_of_its_sidecar_and_reloads_after_a_change(
    site: Site, tmp_path: Path
) -> None:
    marked = tmp_path / "reloaded"
    run_script(site.servers, *site.pairs, reload=f"touch {marked}")
    assert not marked.exists(), "nothing has changed"
    site.weights["127.0.0.2"] = 13
    assert "weight=13 " in site.run_script()
    before = site.served()
    site.answers()
    assert shares(before, site.served())["app2"] == pytest.approx(13 / 213, abs=0.03)
    site.weights["127.0.0.2"] = 0
    servers_after = site.run_script()
    assert len(re.findall(" down ", servers_after)) == 1
    before = site.served()
    assert lost(site.answers()) == {}
    assert site.served()["app2"] == before["app2"]


def test_sidecar_without_an_answer_changes_nothing_and_a_new_server_has_its_full_weight(tmp_path: Path) -> None:
    servers, dead = tmp_path / "app.servers", f"127.0.0.1:{free_port()}"
    known = "server 10.0.0.12:8080 down max_fails=0 max_conns=64;\n"
    servers.write_text(known)
    run_script(servers, f"10.0.0.11:8080={dead}", f"10.0.0.12:8080={dead}", reload="true")
    assert servers.read_text() == f"server 10.0.0.11:8080 weight=100 max_fails=0 max_conns=64;\n{known}"
