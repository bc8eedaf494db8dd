"""A real HAProxy with the shipped configurations, under load: before apps with sidecars, and before fake agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.apps import FailingApp, shares
from harness.haproxy import FakeAgent, Ports, await_agent, await_status, cascade, config, status, weight
from harness.http_request import request
from harness.ports import free_port, free_ports
from harness.traffic import Traffic, failed, lost, retried
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import Children, StartHaproxy, StartSidecar
    from harness.haproxy import Haproxy
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

NAMES = ("app1", "app2", "app3")
RATE = 200
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


@pytest.fixture(params=["agent", pytest.param("plain", marks=pytest.mark.site)])
def site(
    request: pytest.FixtureRequest, run_dir: Path, children: Children, sidecar: StartSidecar, haproxy: StartHaproxy
) -> Iterator[Site]:
    front = free_port()
    with ExitStack() as stack:
        apps = {name: children.adopt(FailingApp(run_dir, name)).start() for name in NAMES}
        sidecars = {name: sidecar(name, settle="0s", drain="5m", error_ratio="0") for name in NAMES}
        listener = "agent" if request.param == "agent" else "public"
        servers = {name: Ports(apps[name].port, sidecars[name].address(listener)[1]) for name in NAMES}
        proxy = haproxy(config(request.param, servers, front=front))
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
    assert lost(site.traffic.so_far()) == {}
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
    assert lost(site.traffic.so_far()) == {}
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


# -- cascade.cfg with fake agents: weights, slow returns and fallback -------------------------------------------------

REQUESTS: Final = 400
CASCADE_RATE: Final = 600
PERCENTS: Final = {"app1": 73, "app2": 51, "app3": 34, "app4": 10}


@dataclass
class CascadeSite:
    """Four apps with fake agents, and HAProxy in front of them."""

    apps: dict[str, FailingApp]
    agents: dict[str, FakeAgent]
    proxy: Haproxy
    front: int
    metrics: int

    def served(self) -> dict[str, int]:
        """The number of requests of each app."""
        return {name: app.served() for name, app in self.apps.items()}

    def traffic(self) -> Traffic:
        """Some requests, with their answers."""
        with Traffic(self.front, CASCADE_RATE) as traffic:
            traffic.next_answers(REQUESTS)
        return traffic


StartSite = Callable[..., CascadeSite]


@pytest.fixture
def start_site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[StartSite]:
    """Starts a site with one replacement in the shipped file."""
    with ExitStack() as stack:

        def start(old: str = "", new: str = "") -> CascadeSite:
            agents = {name: stack.enter_context(FakeAgent()) for name in PERCENTS}
            apps = {name: children.adopt(FailingApp(run_dir, name)).start() for name in PERCENTS}
            front, metrics = free_ports(2)
            servers = {name: Ports(app.port, agents[name].port) for name, app in apps.items()}
            text = cascade(servers, front=front, metrics=metrics, state=run_dir / "server-state")
            assert old in text
            proxy = haproxy(text.replace(old, new) if old else text)
            for name in apps:
                await_agent(proxy, name, "L7OK")
            return CascadeSite(apps, agents, proxy, front, metrics)

        yield start


def test_each_server_gets_the_percent_of_its_agent(start_site: StartSite) -> None:
    site = start_site()
    for name, percent in PERCENTS.items():
        site.agents[name].line = f"up ready {percent}%"
    wait_for(lambda: _weights_in_the_metrics(site) == PERCENTS, timeout_s=60, what="the metrics have the weights")
    before = site.served()
    traffic = site.traffic()
    expected = {name: percent / sum(PERCENTS.values()) for name, percent in PERCENTS.items()}
    assert shares(before, site.served()) == pytest.approx(expected, abs=0.02)
    assert failed(traffic.so_far(), "POST") == 0


def _weights_in_the_metrics(site: CascadeSite) -> dict[str, float]:
    _, page = request(site.metrics, "/metrics")
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return {each.labels["server"]: each.value for each in samples if each.name == "haproxy_server_weight"}


def test_culled_server_returns_slowly_a_drained_one_at_once_and_a_dead_one_not_at_all(start_site: StartSite) -> None:
    site = start_site("slowstart 2s", "slowstart 10m")
    site.agents["app1"].line, site.agents["app2"].line = "fail #culled", "drain 0% #stopping"
    await_status(site.proxy, "app1", "DOWN")
    await_status(site.proxy, "app2", "DRAIN")
    site.agents["app1"].line = site.agents["app2"].line = "up ready 80%"
    await_status(site.proxy, "app1", "UP")
    assert weight(site.proxy, "app1") < 80
    await_status(site.proxy, "app2", "UP")
    assert weight(site.proxy, "app2") == 80
    site.apps["app3"].kill()
    await_status(site.proxy, "app3", "DOWN")
    assert site.agents["app3"].line == "up ready 100%"


def test_failed_get_and_refused_connection_go_to_another_server_and_a_failed_post_does_not(
    start_site: StartSite,
) -> None:
    site = start_site("check inter 200ms fall 3", "check inter 200ms fall 1000")  # HAProxy does not notice
    site.apps["app2"].fail(1.0)
    outcomes = site.traffic().so_far()
    posts = sum(count for outcome, count in outcomes.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(outcomes, "GET") == 0
    assert 0.15 < failed(outcomes, "POST") < 0.4, "about a quarter: a retry takes a turn too"
    assert retried(outcomes, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"
    site.apps["app2"].kill()
    assert lost(site.traffic().so_far()) == {}
    assert status(site.proxy, "app2").startswith("UP"), "no request was spared it"
