"""cascade.cfg in a real HAProxy with fake agents: weights, slow returns and fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.apps import FailingApp, shares
from harness.haproxy import FakeAgent, Ports, await_agent, await_status, config, status, weight
from harness.http_request import request
from harness.ports import free_ports
from harness.traffic import Traffic, failed, lost, retried
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

REQUESTS: Final = 400
RATE: Final = 600
PERCENTS: Final = {"app1": 73, "app2": 51, "app3": 34, "app4": 10}


@dataclass
class Site:
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
        with Traffic(self.front, RATE) as traffic:
            traffic.next_answers(REQUESTS)
        return traffic


StartSite = Callable[..., Site]


@pytest.fixture
def start_site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[StartSite]:
    """Starts a site with one replacement in the shipped file."""
    with ExitStack() as stack:

        def start(old: str = "", new: str = "") -> Site:
            agents = {name: stack.enter_context(FakeAgent()) for name in PERCENTS}
            apps = {name: children.adopt(FailingApp(run_dir, name)).start() for name in PERCENTS}
            front, metrics = free_ports(2)
            servers = {name: Ports(app.port, agents[name].port) for name, app in apps.items()}
            text = config(servers, front=front, metrics=metrics, state=run_dir / "server-state")
            assert old in text
            proxy = haproxy(text.replace(old, new) if old else text)
            for name in apps:
                await_agent(proxy, name, "L7OK")
            return Site(apps, agents, proxy, front, metrics)

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
    assert failed(traffic.seen(), "POST") == 0


def _weights_in_the_metrics(site: Site) -> dict[str, float]:
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
    seen = site.traffic().seen()
    posts = sum(count for outcome, count in seen.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(seen, "GET") == 0
    assert 0.15 < failed(seen, "POST") < 0.4, "about a quarter: a retry takes a turn too"
    assert retried(seen, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"
    site.apps["app2"].kill()
    assert lost(site.traffic().seen()) == {}
    assert status(site.proxy, "app2").startswith("UP"), "no request was spared it"
