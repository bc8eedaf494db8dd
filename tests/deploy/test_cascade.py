"""cascade.cfg in a real HAProxy with fake agents: weights, fallback, limits and reloads."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.apps import shares
from harness.cascade import EMPTY_STATE, FakeAgentSite, await_agent, await_status, await_weight, status, weights
from harness.http_request import request
from harness.traffic import Traffic, failed, lost, retried
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy

pytestmark = pytest.mark.process

REQUESTS: Final = 400
RATE: Final = 600
PERCENTS: Final = {"app1": 73, "app2": 51, "app3": 34, "app4": 10}
NEVER_DOWN: Final = ("check inter 200ms fall 3", "check inter 200ms fall 1000")
SLOW_START: Final = ("slowstart 2s", "slowstart 10m")


@pytest.fixture
def site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[FakeAgentSite]:
    with ExitStack() as stack:
        yield FakeAgentSite(run_dir, children, haproxy, stack)


def _changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


# -- weights --------------------------------------------------------------------------------------------------------


def test_each_server_gets_the_percent_of_its_agent_and_keeps_it_when_the_agent_is_gone(site: FakeAgentSite) -> None:
    proxy = site.open(4)
    assert proxy.show_servers()["app", "app1"]["slim"] == "64"
    for name, percent in PERCENTS.items():
        site.agents[name].line = f"up ready {percent}%"
        await_weight(proxy, name, percent, percent)
    assert _weights_in_the_metrics(site) == PERCENTS
    before = site.served()
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    expected = {name: percent / sum(PERCENTS.values()) for name, percent in PERCENTS.items()}
    assert shares(before, site.served()) == pytest.approx(expected, abs=0.02)
    assert failed(traffic.seen(), "POST") == 0
    site.agents["app1"].line = "up ready 73% maxconn:7"
    wait_for(lambda: proxy.show_servers()["app", "app1"]["slim"] == "7", timeout_s=60, what="the limit is seven")
    site.agents["app2"].stop()
    await_agent(proxy, "app2", "L4CON")
    assert weights(proxy)["app2"] == 51
    assert status(proxy, "app2").startswith("UP")  # "UP 2/3" after a late check of a busy machine


def _weights_in_the_metrics(site: FakeAgentSite) -> dict[str, float]:
    _, page = request(site.metrics, "/metrics")
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return {each.labels["server"]: each.value for each in samples if each.name == "haproxy_server_weight"}


def test_culled_server_returns_slowly_a_drained_one_at_once_and_a_dead_one_not_at_all(site: FakeAgentSite) -> None:
    proxy = site.open(3, lambda text: _changed(text, SLOW_START))
    site.agents["app1"].line, site.agents["app2"].line = "fail #culled", "drain 0% #stopping"
    await_status(proxy, "app1", "DOWN")
    await_status(proxy, "app2", "DRAIN")
    site.agents["app1"].line = site.agents["app2"].line = "up ready 80%"
    first = wait_for(lambda: _weight_when_up(proxy, "app1"), timeout_s=60, what="app1 is UP")
    assert first < 80
    await_status(proxy, "app2", "UP")
    assert weights(proxy)["app2"] == 80
    site.apps["app3"].kill()
    await_status(proxy, "app3", "DOWN")
    assert site.agents["app3"].line == "up ready 100%"


def _weight_when_up(proxy: Haproxy, name: str) -> int:
    """The weight of a server that is up, else 0."""
    row = proxy.show_servers()["app", name]
    return int(row["weight"]) if row["status"].startswith("UP") else 0


# -- falling back ---------------------------------------------------------------------------------------------------


def test_failed_get_and_refused_connection_go_to_another_server_and_a_failed_post_does_not(site: FakeAgentSite) -> None:
    proxy = site.open(4, lambda text: _changed(text, NEVER_DOWN))
    site.apps["app2"].fail(1.0)
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    seen = traffic.seen()
    posts = sum(count for outcome, count in seen.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(seen, "GET") == 0
    assert 0.15 < failed(seen, "POST") < 0.4, "about a quarter: a retry takes a turn too"
    assert retried(seen, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"
    site.apps["app2"].kill()
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    assert lost(traffic.seen()) == {}
    assert status(proxy, "app2").startswith("UP"), "no request was spared it"


# -- reload ----------------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_reload_with_the_state_file_keeps_weights_and_states_until_the_agents_answer_again(
    site: FakeAgentSite, haproxy: StartHaproxy
) -> None:
    state = _state_of_four(site)
    site.apps = dict(reversed(site.apps.items()))
    proxy = _reloaded(site, haproxy, state)
    assert weights(proxy) == {"app1": 100, "app2": 13, "app3": 0, "app4": 100}
    assert [status(proxy, name).split()[0] for name in sorted(site.apps)] == ["UP", "UP", "DRAIN", "DOWN"]
    for agent in site.agents.values():
        agent.revive()
    for name in site.apps:
        await_status(proxy, name, "UP")
        await_weight(proxy, name, 100, 100)
    for agent in site.agents.values():
        agent.stop()
    proxy.stop()
    proxy = _reloaded(site, haproxy, EMPTY_STATE)
    assert set(weights(proxy).values()) == {100}
    assert {status(proxy, name).split()[0] for name in site.apps} == {"UP"}, "without the file all is forgotten"


def _state_of_four(site: FakeAgentSite) -> str:
    """The state of four servers: full weight, low weight, draining, culled. Then HAProxy and the agents end."""
    proxy = site.open(4)
    lines = ("up ready 100%", "up ready 13%", "drain 0% #culled", "fail #culled")
    for agent, line in zip(site.agents.values(), lines, strict=True):
        agent.line = line
    await_weight(proxy, "app2", 13, 13)
    await_status(proxy, "app3", "DRAIN")
    await_status(proxy, "app4", "DOWN")
    state_text = proxy.admin("show servers state")
    for agent in site.agents.values():
        agent.stop()
    proxy.stop()
    return state_text


def _reloaded(site: FakeAgentSite, haproxy: StartHaproxy, state: str) -> Haproxy:
    """The next process with this state file; the agents are stopped until it runs."""
    (site.directory / "kept").write_text(state)
    return haproxy(site.config("kept"), "next")
