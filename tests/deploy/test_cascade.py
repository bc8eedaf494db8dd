"""cascade.cfg in a real HAProxy with fake agents: weights, fallback, limits and reloads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.apps import shares
from harness.cascade import EMPTY_STATE, FakeAgentSite, await_agent, await_status, await_weight, status, weights
from harness.http_request import request
from harness.traffic import Traffic, failed, lost, retried
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import Children, StartHaproxy
    from harness.haproxy import Haproxy

REQUESTS = 400
RATE = 600


@pytest.fixture
def site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[FakeAgentSite]:
    with ExitStack() as stack:
        yield FakeAgentSite(run_dir, children, haproxy, stack)


# -- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "percents",
    [(100, 13, 100, 100), (73, 51, 34, 22), (10, 10, 10, 10)],
    ids=["one is sick", "all are sick", "all at the floor"],
)
def test_each_server_gets_its_percent(site: FakeAgentSite, percents: tuple[int, ...]) -> None:
    proxy = site.open(4)
    percent = dict(zip(site.apps, percents, strict=True))
    for name, value in percent.items():
        site.agents[name].line = f"up ready {value}%"
        await_weight(proxy, name, value, value)
    before = site.served()
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    expected = {name: value / sum(percents) for name, value in percent.items()}
    assert shares(before, site.served()) == pytest.approx(expected, abs=0.02)
    assert failed(traffic.seen(), "POST") == 0


def test_weight_stays_when_the_agent_is_gone(site: FakeAgentSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "up ready 40%"
    await_weight(proxy, "app2", 40, 40)
    site.agents["app2"].stop()
    await_agent(proxy, "app2", "L4CON")
    assert weights(proxy)["app2"] == 40
    assert status(proxy, "app2").startswith("UP")  # "UP 2/3" after a late check of a busy machine


def _weight_when_up(proxy: Haproxy, name: str) -> int:
    """The weight of a server that is up, else 0."""
    row = proxy.show_servers()["app", name]
    return int(row["weight"]) if row["status"].startswith("UP") else 0


def test_returning_server_starts_slowly_and_reaches_its_percent(site: FakeAgentSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "fail #culled"
    await_status(proxy, "app2", "DOWN")
    site.agents["app2"].line = "up ready 80%"
    first = wait_for(lambda: _weight_when_up(proxy, "app2"), timeout_s=60, what="app2 is UP")
    assert first < 80
    await_weight(proxy, "app2", 80, 80)


def test_server_back_from_drain_has_its_percent_at_once(site: FakeAgentSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "drain 0% #stopping"
    await_status(proxy, "app2", "DRAIN")
    site.agents["app2"].line = "up ready 80%"
    await_status(proxy, "app2", "UP")
    assert weights(proxy)["app2"] == 80


def test_agent_may_lower_the_limit_of_connections(site: FakeAgentSite) -> None:
    proxy = site.open(1)
    assert proxy.show_servers()["app", "app1"]["slim"] == "64"
    site.agents["app1"].line = "up ready 100% maxconn:7"
    wait_for(lambda: proxy.show_servers()["app", "app1"]["slim"] == "7", timeout_s=60, what="the limit is seven")


def test_dead_app_is_down_whatever_its_agent_says(site: FakeAgentSite) -> None:
    proxy = site.open(2)
    site.apps["app2"].kill()
    await_status(proxy, "app2", "DOWN")
    assert site.agents["app2"].line == "up ready 100%"


def test_weights_are_in_the_metrics_of_haproxy(site: FakeAgentSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "up ready 13%"
    await_weight(proxy, "app2", 13, 13)
    _, page = request(site.metrics, "/metrics")
    state_text = {
        sample.labels["server"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "haproxy_server_weight"
    }
    assert state_text == {"app1": 100, "app2": 13}


# -- falling back ---------------------------------------------------------------------------------------------------


def test_failed_get_is_answered_by_another_server(site: FakeAgentSite) -> None:
    site.open(3)
    site.apps["app2"].fail(1.0)
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    seen = traffic.seen()
    posts = sum(count for outcome, count in seen.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(seen, "GET") == 0
    assert 0.2 < failed(seen, "POST") < 0.5, "about a third: a retry takes a turn too"
    assert retried(seen, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"


def test_failed_post_is_sent_once(site: FakeAgentSite) -> None:
    site.open(3)
    for app in site.apps.values():
        app.fail(1.0)
    assert [site.ask("POST")[0] for _ in range(5)] == [500] * 5
    assert sum(site.served().values()) == 5


def test_failed_get_is_sent_three_times_at_most(site: FakeAgentSite) -> None:
    site.open(4)
    for app in site.apps.values():
        app.fail(1.0)
    assert [site.ask("GET")[0] for _ in range(5)] == [500] * 5
    assert sum(site.served().values()) == 15


def test_refused_connection_costs_no_request_not_even_a_post(site: FakeAgentSite) -> None:
    # With this ``fall`` HAProxy does not mark app2 as down.
    proxy = site.open(3, lambda text: text.replace("check inter 200ms fall 3", "check inter 200ms fall 1000"))
    site.apps["app2"].kill()
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    assert lost(traffic.seen()) == {}
    assert status(proxy, "app2").startswith("UP")


# -- limits ---------------------------------------------------------------------------------------------------------


def _at_work(proxy: Haproxy) -> dict[str, int]:
    """The number of requests that each server has now."""
    return {name: int(row["scur"]) for (backend, name), row in proxy.show_servers().items() if backend == "app"}


def _are_quick(answers: list[tuple[int, float]]) -> bool:
    """Whether few of ten take long. In the queue of the full server, 0.25 s, every second one would be."""
    assert {answer for answer, _ in answers} == {200}
    return sorted(took_s for _, took_s in answers)[7] < 0.25


def test_full_server_is_passed_over(site: FakeAgentSite) -> None:
    proxy = site.open(2, lambda text: text.replace("maxconn 64", "maxconn 1").replace("fall 3", "fall 1000"))
    site.apps["app2"].pause()
    with ExitStack() as stack:
        for _ in range(2):  # in turn: one of the two hangs, and takes the only connection
            waiting = stack.enter_context(socket.create_connection(("127.0.0.1", site.front), 5))
            waiting.sendall(b"POST /work HTTP/1.1\r\nHost: app\r\nContent-Length: 0\r\n\r\n")
        wait_for(
            lambda: _at_work(proxy) == {"app1": 0, "app2": 1},
            timeout_s=60,
            what="one request hangs, the other is answered",
        )
        # On a busy machine some take long without a queue, but not each time.
        assert any(_are_quick([site.ask("POST") for _ in range(10)]) for _ in range(10))
    site.apps["app2"].resume()


def test_request_is_refused_at_once_when_all_servers_are_full(site: FakeAgentSite) -> None:
    site.open(1, lambda text: text.replace("maxconn 64", "maxconn 1").replace("fall 3", "fall 1000"))
    site.apps["app1"].pause()
    with Traffic(site.front, rate=20) as traffic:
        wait_for(lambda: any(o.status == 503 for o in traffic.seen()), timeout_s=60, what="some are refused")
        answer, took_s = site.ask("GET")
        site.apps["app1"].resume()
    assert answer == 503
    assert 0.2 < took_s < 5, "not after the timeout of an answer, 10 s"


# -- reload ----------------------------------------------------------------------------------------------------------


def _reloaded(site: FakeAgentSite, haproxy: StartHaproxy, state: str) -> Haproxy:
    """The next process with this state file; the agents are stopped until it runs."""
    (site.directory / "kept").write_text(state)
    return haproxy(site.config("kept"), "next")


@pytest.fixture
def state(site: FakeAgentSite) -> str:
    """The state of four servers: full weight, low weight, draining, culled. The agents are stopped then."""
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


@pytest.mark.parametrize("moved", [False, True], ids=["same order", "servers in another order"])
def test_reload_with_the_state_file_keeps_weights_and_states(
    site: FakeAgentSite, haproxy: StartHaproxy, state: str, *, moved: bool
) -> None:
    if moved:
        site.apps = dict(reversed(site.apps.items()))
    proxy = _reloaded(site, haproxy, state)
    site.apps = dict(sorted(site.apps.items()))
    assert weights(proxy) == {"app1": 100, "app2": 13, "app3": 0, "app4": 100}
    assert [status(proxy, name).split()[0] for name in site.apps] == ["UP", "UP", "DRAIN", "DOWN"]


def test_reload_without_the_state_file_resets_all(site: FakeAgentSite, haproxy: StartHaproxy, state: str) -> None:
    assert state
    proxy = _reloaded(site, haproxy, EMPTY_STATE)
    assert set(weights(proxy).values()) == {100}
    assert {status(proxy, name).split()[0] for name in site.apps} == {"UP"}


def test_agents_that_answer_again_end_the_loaded_states(site: FakeAgentSite, haproxy: StartHaproxy, state: str) -> None:
    proxy = _reloaded(site, haproxy, state)
    for agent in site.agents.values():
        agent.revive()
    for name in site.apps:
        await_status(proxy, name, "UP")
        await_weight(proxy, name, 100, 100)
