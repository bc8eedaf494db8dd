"""The shipped dashboard: well formed, with queries that a real Prometheus of a real fleet answers."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.prometheus_rules import SHIPPED, Query, panels, queries, recorded
from harness.children import Children, StartRedis, StartSidecar
from harness.fleet_driver import FleetDriver, await_answers
from harness.prometheus import Prometheus, promtool
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.sidecar import Sidecar

SERVICE: Final = "shop"
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

NUMBERS: Final[dict[str, float]] = {
    "Alive": 2,
    "Suspect": 0,
    "Down": 1,
    "Retiring": 0,
    "Causes paused": 0,
    "Held for": 0,
    "Tokens left": 9,
    "Engineer needed": 0,
}
QUIET: Final = {"instance:arbiter_scrapes_failed:ratio10m", "service:arbiter_cause_shared:max"}
"""Recorded series without data in such a fleet."""

MUST_HAVE_DATA: Final = [query for query in QUERIES if (query.panel, query.ref) not in UNTROUBLED | SWITCHED_OFF]


# -- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_every_query_of_a_panel_has_the_service_a_name_and_a_legend(panel: dict[str, Any]) -> None:
    refs = [target["refId"] for target in panel["targets"]]
    assert refs
    assert len(refs) == len(set(refs))
    for target in panel["targets"]:
        assert 'service=~"$service"' in target["expr"]
        assert "{{" in target["legendFormat"]
        assert target["datasource"]["uid"] == "${datasource}"


def test_promtool_reads_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:number_{number}", "expr": query.expression} for number, query in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert promtool("check", "rules", tmp_path / "rules.yml") == ""
    rules[-1]["expr"] += " +"
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert promtool("check", "rules", tmp_path / "rules.yml") != ""


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
    seen = f'arbiter_state{{state="down", instance="{fleet[0].name}"}} == 1'
    wait_for(lambda: _polled(fleet) and prometheus.instant(seen), timeout_s=60, what="Prometheus knows it")


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
                redis_timeout="10s",
                service=SERVICE,
                lifetime="1d",
                beat_interval="1s",
                check_interval="11s",
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


@pytest.mark.site
def test_every_query_of_the_dashboard_is_answered_for_the_chosen_service(prometheus: Prometheus) -> None:
    for query in QUERIES:
        assert all(isinstance(number, float) for number in _numbers(prometheus, query))
        assert isinstance(prometheus.instant(query.expression), list)
    waited = {query.expression: query for query in MUST_HAVE_DATA}

    def without_data() -> list[str]:
        for expression, query in [*waited.items()]:
            if any(not math.isnan(number) for number in _numbers(prometheus, query)):
                del waited[expression]
        return [*waited]

    wait_for(lambda: not without_data(), timeout_s=60, what="every query has data")
    alive = next(query for query in queries(service=SERVICE, rate_interval="10s") if query.panel == "Alive")
    other = next(query for query in queries(service="other", rate_interval="10s") if query.panel == "Alive")
    assert [one["metric"]["service"] for one in prometheus.instant(alive.expression)] == [SERVICE]
    assert prometheus.instant(other.expression) == []


@pytest.mark.site
def test_single_numbers_alerts_and_recorded_series_are_those_of_one_cull(prometheus: Prometheus) -> None:
    numbers = {query.panel: query for query in QUERIES if query.panel in NUMBERS}

    def shown() -> dict[str, list[float]]:
        return {title: _numbers(prometheus, query) for title, query in numbers.items()}

    expected = {title: [number] for title, number in NUMBERS.items()}
    wait_for(lambda: shown() == expected, timeout_s=60, what="the numbers are those of one cull")
    rules = wait_for(prometheus.rules, timeout_s=60, what="the rules are loaded")
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule.get("lastError")] == []
    wait_for(
        lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, timeout_s=60, what="every rule was evaluated"
    )

    def firing() -> set[str]:
        return {one["metric"]["alertname"] for one in prometheus.instant('ALERTS{alertstate="firing"}')}

    wait_for(lambda: "ArbiterCulls" in firing(), timeout_s=60, what="the alert fires")
    assert firing() == {"ArbiterCulls"}
    wanted = recorded((SHIPPED / "recording.yml").read_text()) - QUIET
    wait_for(
        lambda: not wanted - prometheus.metrics('{__name__=~".+:arbiter_.+"}'), timeout_s=60, what="all are recorded"
    )
