"""An outage of a whole fleet as its people see it: the shipped rules and dashboard, Alertmanager, a webhook.

Five real sidecars, a real Redis, a real Prometheus and Alertmanager. One container is culled, which does not help, so
culls are paused. The outage is played once; then every source is read.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from deploy.prometheus_rules import SHIPPED, Query, queries, recorded
from harness import receiver
from harness.children import StartRedis
from harness.fleet_driver import FleetDriver, await_denied
from harness.prometheus import Alertmanager, Prometheus
from harness.sidecar import ASKS_AGAIN, GATES, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.children import Children, StartSidecar
    from harness.receiver import Receiver

pytestmark = [pytest.mark.redis, pytest.mark.site]

SERVICE: Final = "shop"
SETTINGS: Final[dict[str, Setting]] = {
    **GATES,
    **ASKS_AGAIN,
    "service": SERVICE,
    "beat_interval": "1s",
    "after_data_loss": "continue",
    "lifetime": "1d",
    "runbook_url": "https://wiki/runbooks.md",
}
SHORTENED: Final = ((r"(scrape_interval|evaluation_interval): \w+", r"\1: 500ms"), (r"\bfor: 5m", "for: 1s"))
"""Shorter intervals and durations in the shipped files; their ranges stay ten minutes and an hour."""

QUERIES: Final = list(queries(service=".+", rate_interval="10s"))
WITHOUT_DATA: Final = {
    ("Failures and drops", "B"),
    ("Refusals and scrapes", "A"),
    ("Refusals and scrapes", "C"),
    ("annotation Culls", "A"),
    ("Standby", "A"),
    ("Certificate", "A"),
}
"""Queries about what this fleet does not have: refused requests, scrapes, a run lock, TLS."""

NUMBERS: Final[dict[str, float]] = {
    "Alive": 5,
    "Suspect": 5,
    "Down": 0,
    "Retiring": 0,
    "Causes paused": 1,
    "Held for": 0,
    "Tokens left": 9,
    "Engineer needed": 1,
}
QUIET: Final = {"instance:arbiter_scrapes_failed:ratio10m"}
"""Recorded series without data in such a fleet."""

ALERTS: Final = {
    "ArbiterCulls": "info",
    "ArbiterCullsPausedForMost": "critical",
    "ArbiterSuspectsWithoutToken": "warning",
}


@dataclass
class Incident:
    """The fleet in its outage, and who watches it."""

    fleet: list[Sidecar]
    culled: Sidecar
    prometheus: Prometheus
    alerts: Alertmanager
    messages: Receiver


@pytest.fixture(scope="module")
def incident(shared_dir: Path, shared_children: Children, shared_sidecar: StartSidecar) -> Iterator[Incident]:
    with receiver.webhook() as messages:
        url = StartRedis(shared_dir, shared_children)().url
        alerts = shared_children.adopt(Alertmanager(shared_dir)).start()
        fleet = shared_sidecar.fleet(5, **SETTINGS, redis_url=url, webhook_url=messages.url)
        prometheus = shared_children.adopt(Prometheus(shared_dir, _config(shared_dir, fleet, alerts))).start()
        driver = FleetDriver(fleet)
        driver.await_metrics(fleet_alive=5)
        for one in fleet:
            one.request("local", "POST", "/results", json.dumps({"ok": 100, "failed": 1}))
        wait_for(lambda: _is_scraped(fleet, prometheus), timeout_s=60, what="all are scraped")
        driver.make_sick(*fleet, kind="mysql", errors=6)
        (culled,) = wait_for(driver.down, timeout_s=60, what="one is culled")
        down = f'arbiter_state{{state="down", instance="{culled.name}"}} == 1'
        wait_for(lambda: prometheus.instant(down), timeout_s=60, what="Prometheus knows it")
        driver.replace(culled)
        with driver.keep_sick(*fleet, kind="mysql"):
            for one in fleet:
                await_denied(one, "paused")
            yield Incident(fleet, culled, prometheus, alerts, messages)


def _config(directory: Path, fleet: list[Sidecar], alerts: Alertmanager) -> Path:
    """The shipped rules and try.yml with shorter times, this fleet and this Alertmanager."""
    shipped = Path(shutil.copytree(SHIPPED, directory / "rules"))
    for path in (shipped / "alerts.yml", shipped / "try.yml"):
        text = path.read_text()
        for old, new in SHORTENED:
            text = re.sub(old, new, text)
        path.write_text(text)
    labels = "{{namespace: default, service: {}, instance: {}}}"
    targets = "".join(
        f"      - targets: ['127.0.0.1:{one.address('public')[1]}']\n"
        f"        labels: {labels.format(SERVICE, one.name)}\n"
        for one in fleet
    )
    config = shipped / "try.yml"
    text, replaced = re.subn(r"      - targets: .*\n        labels: .*\n", targets, config.read_text())
    assert replaced == 1, "try.yml has no targets"
    address = alerts.url.removeprefix("http://")
    config.write_text(f"{text}\nalerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n")
    return config


def _is_scraped(fleet: list[Sidecar], prometheus: Prometheus) -> bool:
    """Poll as HAProxy and Nomad do; whether each has been scraped twice."""
    for one in fleet:
        for path in ("/health/haproxy", "/health/nomad"):
            one.health(path)
    return len(prometheus.instant("count_over_time(up[5s]) > 1")) == len(fleet)


# -- the dashboard and the rules --------------------------------------------------------------------------------------


def _numbers(prometheus: Prometheus, query: Query) -> list[float]:
    """The values of a graph of the last minute, or of a single number."""
    if query.is_instant:
        return [float(one["value"][1]) for one in prometheus.instant(query.expression)]
    now = time.time()
    series = prometheus.over(query.expression, now - 60, now, 1)
    return [float(value) for one in series for _, value in one["values"]]


def test_every_query_of_the_dashboard_has_data_of_the_chosen_service(incident: Incident) -> None:
    waited = {query.expression: query for query in QUERIES if (query.panel, query.ref) not in WITHOUT_DATA}

    def without_data() -> list[str]:
        for expression, query in [*waited.items()]:
            if any(not math.isnan(number) for number in _numbers(incident.prometheus, query)):
                del waited[expression]
        return [*waited]

    for query in QUERIES:
        _numbers(incident.prometheus, query)  # it raises for an error or a warning
    wait_for(lambda: not without_data(), timeout_s=60, what="every query has data")
    for service, shown in ((SERVICE, [SERVICE]), ("other", [])):
        alive = next(query for query in queries(service, rate_interval="10s") if query.panel == "Alive")
        assert [one["metric"]["service"] for one in incident.prometheus.instant(alive.expression)] == shown


def test_single_numbers_and_recorded_series_are_those_of_the_incident(incident: Incident) -> None:
    prometheus = incident.prometheus
    panels = {query.panel: query for query in QUERIES if query.panel in NUMBERS}

    def shown() -> dict[str, list[float]]:
        return {title: _numbers(prometheus, query) for title, query in panels.items()}

    expected = {title: [number] for title, number in NUMBERS.items()}
    wait_for(lambda: shown() == expected, timeout_s=60, what="the numbers are those of one cull")
    wait_for(
        lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, timeout_s=60, what="rules are evaluated"
    )
    wanted = recorded((SHIPPED / "recording.yml").read_text()) - QUIET
    wait_for(lambda: not wanted - prometheus.metrics('{__name__=~".+:arbiter_.+"}'), timeout_s=60, what="all recorded")


# -- who is told ------------------------------------------------------------------------------------------------------


def test_alertmanager_has_the_alerts_of_the_incident(incident: Incident) -> None:
    wait_for(lambda: incident.alerts.severities() == ALERTS, timeout_s=60, what=f"the alerts are {ALERTS}")


def test_fleet_sends_one_message(incident: Incident) -> None:
    def sent() -> float:
        return sum(one.metrics().get('arbiter_messages_total{outcome="sent"}', 0) for one in incident.fleet)

    wait_for(lambda: sent() == 1, timeout_s=60, what="the accepted message is counted as sent")
    time.sleep(2)  # time for messages that must not come
    (message,) = incident.messages.accepted
    for part in ("Culls for mysql did not help", "health-arbiter why n0", "https://wiki/runbooks.md#paused"):
        assert part in message["text"]
    assert (incident.messages.refused, sent()) == ([], 1)
