"""A real HAProxy with the shipped configurations in front of three small apps with their sidecars, under load."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.apps import FailingApp
from harness.ports import free_port
from harness.traffic import Traffic, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.children import Children, StartHaproxy, StartSidecar
    from harness.haproxy import Haproxy
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

SHIPPED = Path(__file__).parents[2] / "deploy" / "haproxy"
NAMES = ("app1", "app2", "app3")
RATE = 100
UNDER_WAY = 20
"""Answers after which no request is under way that HAProxy sent before."""


@dataclass
class Site:
    """Three apps, a sidecar each, and the balancer with its users."""

    apps: dict[str, FailingApp]
    sidecars: dict[str, Sidecar]
    proxy: Haproxy
    traffic: Traffic

    def status(self, name: str) -> str:
        return self.proxy.show_servers()["app", name]["status"]

    def await_status(self, name: str, start: str) -> None:
        wait_for(lambda: self.status(name).startswith(start), timeout_s=60, what=f"{name} is {start}")

    def await_served(self, name: str, more: int) -> None:
        goal = self.apps[name].served() + more
        wait_for(lambda: self.apps[name].served() >= goal, timeout_s=60, what=f"{name} has served {more} more")


def _config(variant: str, front: int, apps: dict[str, FailingApp], sidecars: dict[str, Sidecar]) -> str:
    """The shipped file with our ports and ten times shorter intervals."""
    text = (SHIPPED / f"{variant}.cfg").read_text()
    text = text.replace("bind :8000", f"bind 127.0.0.1:{front}").replace("inter 2s", "inter 200ms")
    text = re.sub(r"(agent-)?port 918[12] ", "", text)
    for name in NAMES:
        listener, option = ("agent", "agent-port") if variant == "agent" else ("public", "port")
        port = sidecars[name].address(listener)[1]
        line = f"server {name} 127.0.0.1:{apps[name].port} {option} {port}"
        text, replaced = re.subn(rf"server {name} .*", line, text)
        assert replaced == 1
    return text


@pytest.fixture(params=["agent", pytest.param("plain", marks=pytest.mark.site)])
def site(
    request: pytest.FixtureRequest, run_dir: Path, children: Children, sidecar: StartSidecar, haproxy: StartHaproxy
) -> Iterator[Site]:
    front = free_port()
    with ExitStack() as stack:
        apps = {name: children.adopt(FailingApp(run_dir, name)).start() for name in NAMES}
        sidecars = {name: sidecar(name, settle="0s", drain="5m") for name in NAMES}
        proxy = haproxy(_config(request.param, front, apps, sidecars))
        site = Site(apps, sidecars, proxy, Traffic(front, RATE))
        for name in NAMES:
            site.await_status(name, "UP")
        stack.enter_context(site.traffic)
        yield site


def test_culled_app_gets_no_more_requests_and_none_is_lost(site: Site) -> None:
    bad = site.sidecars["app2"]
    for name in NAMES:
        site.await_served(name, 20)

    bad.post_error(5, kind="redis")
    wait_for(lambda: bad.health("/health/haproxy")[0] == 503, timeout_s=60, what="HAProxy sees 503")
    wait_for(lambda: not site.status("app2").startswith("UP"), timeout_s=60, what="HAProxy stops using it")
    site.traffic.next_answers(UNDER_WAY)
    in_drain = site.apps["app2"].served()
    assert bad.health("/health/nomad")[0] == 200, "Nomad sees 503 only after the drain"

    for name in ("app1", "app3"):
        site.await_served(name, 50)
    assert site.apps["app2"].served() == in_drain

    _end_drain(bad)
    site.apps["app2"].stop()
    for name in ("app1", "app3"):
        site.await_served(name, 50)
    assert lost(site.traffic.seen()) == {}


def _end_drain(one: Sidecar) -> None:
    """Report no request in flight, until the drain is over."""

    def is_down() -> bool:
        one.request("local", "POST", "/results", '{"in_flight": 0}')
        return one.health("/health/nomad")[0] == 503

    wait_for(is_down, timeout_s=60, what="Nomad sees 503")


@pytest.mark.site
def test_stopping_sidecar_drains_without_a_lost_request(site: Site) -> None:
    """With a stop drain, a sidecar takes its app out of the balancer before it ends."""
    site.sidecars["app2"].stop()
    replaced = site.sidecars["app2"]
    replaced.settings["stop_drain"] = "15s"
    replaced.start()
    site.await_status("app2", "UP")
    replaced.terminate()
    wait_for(lambda: not site.status("app2").startswith("UP"), timeout_s=60, what="HAProxy stops using it")
    assert replaced.alive
    assert replaced.health("/health/nomad")[0] == 200
    assert replaced.wait() == 0
    assert lost(site.traffic.seen()) == {}
