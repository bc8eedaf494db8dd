"""A real HAProxy with the shipped configurations in front of three small apps with their sidecars, under load."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.apps import FailingApp
from harness.haproxy import HAPROXY, await_agent, await_status, status
from harness.ports import free_port
from harness.traffic import Traffic, lost
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import Children, StartHaproxy, StartSidecar
    from harness.haproxy import Haproxy
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

NAMES = ("app1", "app2", "app3")
RATE = 100
UNDER_WAY = 20
"""Answers after which no request is under way that HAProxy sent before."""


@dataclass
class Site:
    """Three apps, a sidecar each, and the balancer with its users. ``variant`` is the name of the shipped file."""

    variant: str
    apps: dict[str, FailingApp]
    sidecars: dict[str, Sidecar]
    proxy: Haproxy
    traffic: Traffic

    def await_served(self, name: str, more: int) -> None:
        goal = self.apps[name].served() + more
        wait_for(lambda: self.apps[name].served() >= goal, timeout_s=60, what=f"{name} has served {more} more")

    def await_unused(self, name: str) -> None:
        wait_for(lambda: not status(self.proxy, name).startswith("UP"), timeout_s=60, what=f"{name} is not used")


def _config(variant: str, front: int, apps: dict[str, FailingApp], sidecars: dict[str, Sidecar]) -> str:
    """The shipped file with our ports and ten times shorter intervals."""
    text = (HAPROXY / f"{variant}.cfg").read_text()
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
        sidecars = {name: sidecar(name, settle="0s", drain="5m", error_ratio="0") for name in NAMES}
        proxy = haproxy(_config(request.param, front, apps, sidecars))
        for name in NAMES:
            await_status(proxy, name, "UP")
        traffic = stack.enter_context(Traffic(front, RATE))
        yield Site(request.param, apps, sidecars, proxy, traffic)


def test_culled_app_gets_no_more_requests_and_none_is_lost(site: Site) -> None:
    bad = site.sidecars["app2"]
    for name in NAMES:
        site.await_served(name, 20)

    bad.post_error(5, kind="redis")
    wait_for(lambda: bad.health("/health/haproxy")[0] == 503, timeout_s=60, what="HAProxy sees 503")
    site.await_unused("app2")
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
    _see_dead_sidecars(site, "app1", culled="app2")


def _end_drain(one: Sidecar) -> None:
    """Report no request in flight, until the drain is over."""

    def is_down() -> bool:
        one.request("local", "POST", "/results", '{"in_flight": 0}')
        return one.health("/health/nomad")[0] == 503

    wait_for(is_down, timeout_s=60, what="Nomad sees 503")


def _see_dead_sidecars(site: Site, well: str, culled: str) -> None:
    """To the agent check the last answer stands; to the plain check a dead sidecar looks like a dead app."""
    for name in (well, culled):
        site.sidecars[name].kill()
    if site.variant == "plain":
        await_status(site.proxy, well, "DOWN")
        return
    for name in (well, culled):
        await_agent(site.proxy, name, "L4CON")
    assert status(site.proxy, well).startswith("UP")  # "UP 2/3" after a late check
    assert not status(site.proxy, culled).startswith("UP")
    site.apps[well].kill()
    await_status(site.proxy, well, "DOWN")


@pytest.mark.site
def test_stopping_sidecar_drains_without_a_lost_request_and_a_weight_is_followed(site: Site) -> None:
    """With a stop drain, a sidecar takes its app out of the balancer before it ends."""
    site.sidecars["app2"].stop()
    replaced = site.sidecars["app2"]
    replaced.settings["stop_drain"] = "15s"
    replaced.start()
    await_status(site.proxy, "app2", "UP")
    replaced.terminate()
    site.await_unused("app2")
    assert replaced.alive
    assert replaced.health("/health/nomad")[0] == 200
    assert replaced.wait() == 0
    assert lost(site.traffic.seen()) == {}
    if site.variant == "agent":
        _see_weight_of_half(site, "app3")


def _see_weight_of_half(site: Site, name: str) -> None:
    """An app that fails half of its requests gets an eighth of them."""
    one = site.sidecars[name]

    def weight() -> int:
        assert one.request("local", "POST", "/results", '{"ok": 5, "failed": 5}').status == 202
        return int(site.proxy.show_servers()["app", name]["weight"])

    wait_for(lambda: 10 <= weight() <= 14, timeout_s=60, what="HAProxy sends it an eighth")
    reply = one.request("public", "GET", "/health")
    assert (reply.status, reply.headers["x-envoy-degraded"]) == (200, "true")
    assert 10 <= int(reply.headers["X-Arbiter-Weight"]) <= 14
