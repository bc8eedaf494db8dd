"""cascade.cfg with a real HAProxy: each line does its part. The agents are steered by the test."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.cascade import await_status, await_weight, status, weights
from harness.failing_app import shares
from harness.steered_site import SteeredSite
from harness.traffic import Traffic, failed, lost, retried
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.haproxy import Haproxy
    from harness.starting import Children, StartHaproxy

REQUESTS = 400
RATE = 600


@pytest.fixture
def site(run_dir: Path, children: Children, haproxy: StartHaproxy) -> Iterator[SteeredSite]:
    with ExitStack() as lives:
        yield SteeredSite(run_dir, children, haproxy, lives)


# -- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "percents",
    [(100, 13, 100, 100), (73, 51, 34, 22), (10, 10, 10, 10)],
    ids=["one suffers", "each suffers in its own way", "all at the floor"],
)
def test_each_server_gets_its_percent(site: SteeredSite, percents: tuple[int, ...]) -> None:
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


def test_weight_of_a_silent_agent_stays(site: SteeredSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "up ready 40%"
    await_weight(proxy, "app2", 40, 40)
    site.agents["app2"].stop()
    wait_for(
        lambda: proxy.show_servers()["app", "app2"]["agent_status"] == "L4CON", timeout_s=30, what="nobody answers"
    )
    assert (weights(proxy)["app2"], status(proxy, "app2")) == (40, "UP")


def _weight_when_up(proxy: Haproxy, name: str) -> int:
    """Its weight at the moment when it is seen to be up; 0 as long as it is not."""
    row = proxy.show_servers()["app", name]
    return int(row["weight"]) if row["status"].startswith("UP") else 0


def test_newcomer_starts_slowly_and_ends_at_its_percent(site: SteeredSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "fail #culled"
    await_status(proxy, "app2", "DOWN")
    site.agents["app2"].line = "up ready 80%"
    first = wait_for(lambda: _weight_when_up(proxy, "app2"), timeout_s=30, what="app2 is UP")
    assert first < 80
    await_weight(proxy, "app2", 80, 80)


def test_server_back_from_drain_has_its_percent_at_once(site: SteeredSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "drain 0% #stopping"
    await_status(proxy, "app2", "DRAIN")
    site.agents["app2"].line = "up ready 80%"
    await_status(proxy, "app2", "UP")
    assert weights(proxy)["app2"] == 80


def test_agent_may_lower_the_limit_of_connections(site: SteeredSite) -> None:
    proxy = site.open(1)
    assert proxy.show_servers()["app", "app1"]["slim"] == "64"
    site.agents["app1"].line = "up ready 100% maxconn:7"
    wait_for(lambda: proxy.show_servers()["app", "app1"]["slim"] == "7", timeout_s=30, what="seven at once")


def test_dead_app_is_down_whatever_its_agent_says(site: SteeredSite) -> None:
    proxy = site.open(2)
    site.apps["app2"].kill()
    await_status(proxy, "app2", "DOWN")
    assert site.agents["app2"].line == "up ready 100%"


def test_weights_are_told_to_prometheus(site: SteeredSite) -> None:
    proxy = site.open(2)
    site.agents["app2"].line = "up ready 13%"
    await_weight(proxy, "app2", 13, 13)
    connection = http.client.HTTPConnection("127.0.0.1", site.metrics, timeout=5)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    told = {
        sample.labels["server"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "haproxy_server_weight"
    }
    assert told == {"app1": 100, "app2": 13}


# -- falling back ---------------------------------------------------------------------------------------------------


def test_failed_get_is_answered_by_another_server(site: SteeredSite) -> None:
    site.open(3)
    site.apps["app2"].fail(1.0)
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    seen = traffic.seen()
    posts = sum(count for outcome, count in seen.items() if (outcome.method, outcome.status) == ("POST", 500))
    assert failed(seen, "GET") == 0
    assert 0.2 < failed(seen, "POST") < 0.5, "a third or so: a retry takes a turn as well"
    assert retried(seen, site.served()) == site.apps["app2"].counts()["failed"] - posts, "each GET, and no POST"


def test_failed_post_is_sent_once(site: SteeredSite) -> None:
    site.open(3)
    for app in site.apps.values():
        app.fail(1.0)
    assert [site.ask("POST")[0] for _ in range(5)] == [500] * 5
    assert sum(site.served().values()) == 5


def test_failed_get_is_sent_three_times_at_most(site: SteeredSite) -> None:
    site.open(4)
    for app in site.apps.values():
        app.fail(1.0)
    assert [site.ask("GET")[0] for _ in range(5)] == [500] * 5
    assert sum(site.served().values()) == 15


def test_refused_connection_costs_no_request_not_even_a_post(site: SteeredSite) -> None:
    # Nobody looks after app2: HAProxy goes on trying it.
    proxy = site.open(3, lambda text: text.replace("check inter 200ms fall 3", "check inter 200ms fall 1000"))
    site.apps["app2"].kill()
    with Traffic(site.front, RATE) as traffic:
        traffic.next_answers(REQUESTS)
    assert lost(traffic.seen()) == {}
    assert status(proxy, "app2").startswith("UP")


# -- limits ---------------------------------------------------------------------------------------------------------


def _at_work(proxy: Haproxy) -> dict[str, int]:
    """How many requests each server has at the moment."""
    return {name: int(row["scur"]) for (backend, name), row in proxy.show_servers().items() if backend == "app"}


def test_full_server_is_passed_over(site: SteeredSite) -> None:
    proxy = site.open(2, lambda text: text.replace("maxconn 64", "maxconn 1").replace("fall 3", "fall 1000"))
    site.apps["app2"].pause()
    with ExitStack() as lives:
        for _ in range(2):  # in turn: one of the two hangs, and holds the only place
            waiting = lives.enter_context(socket.create_connection(("127.0.0.1", site.front), 5))
            waiting.sendall(b"POST /work HTTP/1.1\r\nHost: app\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: _at_work(proxy) == {"app1": 0, "app2": 1}, timeout_s=30, what="one hangs, one is answered")
        answers = [site.ask("POST") for _ in range(10)]
    site.apps["app2"].resume()
    assert {answer for answer, _ in answers} == {200}
    # Who waited in the queue of the full one would wait for 0.25 s: that would be every second of them.
    assert sorted(took_s for _, took_s in answers)[7] < 0.25


def test_full_house_is_said_at_once(site: SteeredSite) -> None:
    site.open(1, lambda text: text.replace("maxconn 64", "maxconn 1").replace("fall 3", "fall 1000"))
    site.apps["app1"].pause()
    with Traffic(site.front, rate=20) as traffic:
        wait_for(lambda: any(o.status == 503 for o in traffic.seen()), timeout_s=30, what="some are turned away")
        answer, took_s = site.ask("GET")
        site.apps["app1"].resume()
    assert answer == 503
    assert 0.2 < took_s < 3, "and not after as long as an answer may take"
