"""The shipped dashboard: well formed, with queries that a real Prometheus of a real fleet answers."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.prometheus_rules import SHIPPED, Query, dashboard, panels, queries, recorded
from harness.children import Children, StartRedis, StartSidecar
from harness.fleet_driver import FleetDriver, await_answers
from harness.prometheus import Prometheus
from harness.sidecar import Sidecar
from harness.waiting import wait_for

SERVICE: Final = "shop"
COLUMNS: Final = 24
VARIABLES: Final = {"datasource", "service"}
QUERIES: Final = list(queries(service=".+", rate_interval="10s"))
UNTROUBLED: Final = {
    ("Failures and drops", "B"),
    ("Refusals and scrapes", "A"),
    ("Refusals and scrapes", "C"),
    ("annotation Culls", "A"),
}
"""Queries without data unless such events happened within the last minute."""

SWITCHED_OFF: Final = {
    ("Messages and events", "A"),
    ("Messages and events", "B"),
    ("Standby", "A"),
    ("Certificate", "A"),
}
"""Queries about features that this fleet does not use: messages, a run lock, TLS."""

MUST_HAVE_DATA: Final = [query for query in QUERIES if (query.panel, query.ref) not in UNTROUBLED | SWITCHED_OFF]


# -- the file -------------------------------------------------------------------------------------------------------


def _cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def test_ids_of_panels_are_unique() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids)) > 30


def test_panels_do_not_overlap_and_stay_on_the_page() -> None:
    placed = [(panel["title"], _cells(panel)) for panel in dashboard()["panels"]]
    assert [(one, other) for (one, here), (other, there) in combinations(placed, 2) if here & there] == []
    assert all(0 <= x < COLUMNS for _, cells in placed for x, _ in cells)


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_panel_has_title_description_unit_and_datasource(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_every_query_of_a_panel_has_the_service_a_name_and_a_legend(panel: dict[str, Any]) -> None:
    refs = [target["refId"] for target in panel["targets"]]
    assert refs
    assert len(refs) == len(set(refs))
    for target in panel["targets"]:
        assert 'service=~"$service"' in target["expr"]
        assert "{{" in target["legendFormat"]
        assert target["datasource"]["uid"] == "${datasource}"


def test_titles_are_unique() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(titles) == len(set(titles))


def test_all_used_variables_are_defined() -> None:
    assert {variable["name"] for variable in dashboard()["templating"]["list"]} == VARIABLES
    assert [query for query in QUERIES if "$" in query.expression] == []


def test_exceptions_name_queries_that_exist() -> None:
    assert {(query.panel, query.ref) for query in QUERIES} >= UNTROUBLED | SWITCHED_OFF


# -- the queries ----------------------------------------------------------------------------------------------------


def _scraping(directory: Path, fleet: list[Sidecar]) -> Path:
    """The trial configuration with this fleet and ten times shorter intervals."""
    config = Path(shutil.copytree(SHIPPED, directory / "config")) / "try.yml"
    one = """\
      - targets: ['127.0.0.1:9181']
        labels: {namespace: default, service: app}
"""
    text = config.read_text()
    assert one in text
    labels = "{{namespace: default, service: {}, instance: {}}}"
    all_of_them = "".join(
        f"      - targets: ['127.0.0.1:{member.address('public')[1]}']\n"
        f"        labels: {labels.format(SERVICE, member.name)}\n"
        for member in fleet
    )
    config.write_text(text.replace(one, all_of_them).replace("_interval: 5s", "_interval: 500ms"))
    return config


def _polled(fleet: list[Sidecar]) -> list[int]:
    """Poll as HAProxy and Nomad do; the statuses."""
    answers = []
    for one in fleet:
        for path, agent in (("/health/haproxy", "HAProxy"), ("/health/nomad", "Nomad/1.8.0")):
            answers.append(one.request("public", "GET", path, headers={"User-Agent": agent}).status)
    return answers


def _make_one_sick(fleet: list[Sidecar], prometheus: Prometheus) -> None:
    """Have one of them culled, with every step scraped by Prometheus."""
    driver = FleetDriver(fleet)
    for one in fleet:
        one.request("local", "POST", "/results", json.dumps({"ok": 100, "failed": 1}))
    _polled(fleet)
    wait_for(lambda: len(prometheus.instant("count_over_time(up[5s]) > 1")) == 3, timeout_s=60, what="all are scraped")
    driver.make_sick(fleet[0])
    await_answers(fleet[0])
    wait_for(lambda: 503 in _polled(fleet), timeout_s=60, what="one is down")
    ends_at = time.monotonic() + 20
    seen = f'arbiter_state{{state="down", instance="{fleet[0].name}"}} == 1'
    while not prometheus.instant(seen):
        _polled(fleet)
        assert time.monotonic() < ends_at


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """A Prometheus that scraped three sidecars, one of which was culled."""
    children = Children()
    with tempfile.TemporaryDirectory(prefix="arbiter-", dir="/tmp") as held:
        directory = Path(held)
        try:
            url = StartRedis(directory, children)().url
            fleet = StartSidecar(directory, children).fleet(
                3,
                redis_url=url,
                service=SERVICE,
                lifetime="1d",
                beat_interval="1s",
                check_interval="2s",
                settle="100ms",
                drain="500ms",
            )
            values = children.adopt(Prometheus(directory, _scraping(directory, fleet))).start()
            _make_one_sick(fleet, values)
            yield values
        finally:
            children.stop()


def _numbers(prometheus: Prometheus, query: Query) -> list[float]:
    """The values of a graph of the last minute, or of a single number."""
    if query.is_instant:
        return [float(one["value"][1]) for one in prometheus.instant(query.expression)]
    now = time.time()
    series = prometheus.over(query.expression, now - 60, now, 1)
    return [float(value) for one in series for _, value in one["values"]]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.panel} {query.ref}")
def test_query_is_valid(prometheus: Prometheus, query: Query) -> None:
    assert all(isinstance(number, float) for number in _numbers(prometheus, query))
    assert isinstance(prometheus.instant(query.expression), list)


@pytest.mark.parametrize("query", MUST_HAVE_DATA, ids=lambda query: f"{query.panel} {query.ref}")
def test_query_has_data(prometheus: Prometheus, query: Query) -> None:
    def values() -> list[float]:
        return [number for number in _numbers(prometheus, query) if not math.isnan(number)]

    assert wait_for(values, timeout_s=60, what=f"{query.expression} has data")


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("Alive", 2),
        ("Suspect", 0),
        ("Down", 1),
        ("Retiring", 0),
        ("Causes paused", 0),
        ("Held for", 0),
        ("Tokens left", 9),
        ("Engineer needed", 0),
    ],
)
def test_single_number_is_right(prometheus: Prometheus, title: str, number: float) -> None:
    query = next(query for query in QUERIES if query.panel == title)

    def values() -> list[float]:
        return _numbers(prometheus, query)

    wait_for(lambda: values() == [number], timeout_s=60, what=f"{title} is {number}")
    assert len(values()) == 1


def test_service_can_be_chosen(prometheus: Prometheus) -> None:
    alive = next(query for query in queries(service=SERVICE, rate_interval="10s") if query.panel == "Alive")
    other = next(query for query in queries(service="other", rate_interval="10s") if query.panel == "Alive")
    assert [one["metric"]["service"] for one in prometheus.instant(alive.expression)] == [SERVICE]
    assert prometheus.instant(other.expression) == []


def test_rules_evaluate_on_real_metrics(prometheus: Prometheus) -> None:
    rules = wait_for(prometheus.rules, timeout_s=60, what="the rules are loaded")
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule.get("lastError")] == []
    wait_for(
        lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, timeout_s=60, what="every rule was evaluated"
    )


def test_only_the_alert_of_the_cull_fires(prometheus: Prometheus) -> None:
    def firing() -> set[str]:
        return {one["metric"]["alertname"] for one in prometheus.instant('ALERTS{alertstate="firing"}')}

    wait_for(lambda: "ArbiterCulls" in firing(), timeout_s=60, what="the alert fires")
    assert firing() == {"ArbiterCulls"}


def test_every_recorded_series_has_data(prometheus: Prometheus) -> None:
    quiet = {"instance:arbiter_scrapes_failed:ratio10m", "service:arbiter_cause_shared:max"}
    wanted = recorded((SHIPPED / "recording.yml").read_text()) - quiet

    def missing() -> set[str]:
        return wanted - prometheus.metrics('{__name__=~".+:arbiter_.+"}')

    wait_for(lambda: not missing(), timeout_s=60, what="all are recorded")
    assert missing() == set()
