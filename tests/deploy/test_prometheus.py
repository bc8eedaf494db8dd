"""The shipped files of Prometheus and Grafana: valid, tested, with our metrics and Nomad's labels."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from deploy.nomad_job import JOB_FILE, NOMAD, blocks, read
from deploy.prometheus_rules import (
    ALERT_TESTS,
    ALERTS,
    RECORDING,
    RUNBOOK_URL,
    SHIPPED,
    cases_of,
    copied,
    dashboard,
    documented,
    names,
    ours,
    panels,
    queries,
    recorded,
)
from harness.prometheus import found_targets, promtool
from harness.waiting import wait_for
from sidecar.core.types import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEVERITIES: Final = {"info", "warning", "critical"}
EXPRESSIONS: Final = RECORDING.read_text() + ALERTS.read_text() + json.dumps(dashboard())

_DISCOVERY: Final = re.compile(r"^    nomad_sd_configs:\n(?:      .*\n)+", re.MULTILINE)
_NEVER_SEEN_BY_PROMETHEUS: Final = "field nomad_sd_configs not found"


def _with_targets_from(text: str, path: str) -> str:
    """The configuration with targets from a file, for a Prometheus without Nomad's discovery."""
    changed, count = _DISCOVERY.subn(f"    file_sd_configs:\n      - files: [{path}]\n", text)
    assert count == 1
    return changed


# -- promtool ---------------------------------------------------------------------------------------------


def test_promtool_accepts_the_rules() -> None:
    assert promtool("check", "rules", RECORDING, ALERTS) == ""


@pytest.mark.parametrize("name", [pytest.param("alerts.test.yml", marks=pytest.mark.site), "recording.test.yml"])
def test_shipped_tests_of_the_rules_pass(name: str) -> None:
    assert promtool("test", "rules", SHIPPED / name) == ""


def test_promtool_accepts_the_configuration_for_nomad(tmp_path: Path) -> None:
    directory = copied(tmp_path)
    config = directory / "prometheus.yml"
    output = promtool("check", "config", config)
    if _NEVER_SEEN_BY_PROMETHEUS in output:
        (directory / "found.json").write_text("[]")
        config.write_text(_with_targets_from(config.read_text(), "found.json"))
        output = promtool("check", "config", config)
    assert output == ""


# -- the tests of the rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", names(ALERTS, "alert"))
def test_alert_is_tested_with_a_case_that_fires_and_a_near_miss(alert: str) -> None:
    tests = cases_of(alert)
    assert f"alertname: {alert}\n" in tests
    assert f"runbook_url: {RUNBOOK_URL}#{alert.lower()}\n" in tests
    assert 'service="near"' in tests
    assert "service: near" not in tests


def test_every_recording_rule_is_tested() -> None:
    tests = (SHIPPED / "recording.test.yml").read_text()
    assert [name for name in names(RECORDING, "record") if f"- expr: {name}\n" not in tests] == []


def test_every_alert_has_severity_summary_description_and_runbook() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    for rule in rules:
        said = rule["annotations"]
        assert rule["labels"]["severity"] in SEVERITIES
        assert set(said) == {"summary", "description", "runbook_url"}
        assert said["runbook_url"] == f"{RUNBOOK_URL}#{rule['alert'].lower()}"
        assert rule.get("keep_firing_for") == ("5m" if rule["labels"]["severity"] == "critical" else None)


# -- the dashboard --------------------------------------------------------------------------------------------------


def test_every_query_of_a_panel_has_the_service_a_name_and_a_legend() -> None:
    for panel in panels():
        refs = [target["refId"] for target in panel["targets"]]
        assert refs
        assert len(refs) == len(set(refs))
        for target in panel["targets"]:
            assert 'service=~"$service"' in target["expr"]
            assert "{{" in target["legendFormat"]
            assert target["datasource"]["uid"] == "${datasource}"


def test_promtool_reads_every_query(tmp_path: Path) -> None:
    expressions = [query.expression for query in queries(service=".+", rate_interval="10s")]
    rules = [{"record": f"query:number_{number}", "expr": said} for number, said in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert promtool("check", "rules", tmp_path / "rules.yml") == ""


# -- names in the files ------------------------------------------------------------------------------------------


def test_every_metric_in_a_rule_or_a_panel_is_one_of_ours() -> None:
    found = ours(EXPRESSIONS)
    assert len(found) > 30
    assert found - documented() == set()


def test_every_recorded_series_is_used_and_every_one_used_is_recorded() -> None:
    used = recorded(
        ALERTS.read_text() + json.dumps(dashboard()) + RECORDING.read_text().replace("record: ", "record: -")
    )
    assert recorded(EXPRESSIONS) == set(names(RECORDING, "record"))
    assert set(names(RECORDING, "record")) - used == set()


@pytest.mark.parametrize(("label", "known"), [("state", set(State)), ("path", {"/health/nomad"})])
def test_values_of_labels_are_those_of_the_sidecar(label: str, known: set[str]) -> None:
    assert set(re.findall(rf'\b{label}=\\*"([\w/]+)\\*"', EXPRESSIONS + ALERT_TESTS)) <= known


# -- Nomad's services ----------------------------------------------------------------------------------

ALLOCATIONS: Final = (
    NOMAD["NOMAD_ALLOC_ID"],
    "11111111-2222-3333-4444-555555555555",
    "66666666-7777-8888-9999-aaaaaaaaaaaa",
)


def _found(address: str, service: str, service_id: str, *tags: str) -> dict[str, Any]:
    """One service as Nomad's discovery describes it."""
    labels = {
        "__meta_nomad_address": address.partition(":")[0],
        "__meta_nomad_dc": "dc1",
        "__meta_nomad_namespace": "default",
        "__meta_nomad_node_id": "99999999-0000-1111-2222-333333333333",
        "__meta_nomad_service": service,
        "__meta_nomad_service_address": address.partition(":")[0],
        "__meta_nomad_service_id": service_id,
        "__meta_nomad_service_port": address.partition(":")[2],
        **({"__meta_nomad_tags": f",{','.join(tags)},"} if tags else {}),
    }
    return {"targets": [address], "labels": labels}


def _of_the_job_file() -> Iterator[dict[str, Any]]:
    """The services of the job file in one allocation, with a port each."""
    ports = {"app": "127.0.0.1:1", "arbiter": "127.0.0.1:2"}
    for service in blocks(read(JOB_FILE.read_text()).app, "service"):
        tags = [re.sub(r"\$\{(\w+)\}", lambda found: NOMAD.get(found[1], "7"), tag) for tag in service.get("tags", ())]
        name, port = service["name"], service["port"]
        yield _found(ports[port], name, f"_nomad-task-{ALLOCATIONS[0]}-app-{name}-{port}", *tags)


@pytest.fixture
def with_services(tmp_path: Path) -> Path:
    """The configuration for Nomad, with a file in place of Nomad's discovery."""
    config = copied(tmp_path) / "prometheus.yml"
    config.write_text(_with_targets_from(config.read_text(), "found.json"))
    elsewhere = [
        _found(
            "127.0.0.1:3", "pay", f"_nomad-task-{ALLOCATIONS[1]}-group-web-pay-arbiter", "x", "arbiter-service=pay.web"
        ),
        _found("127.0.0.1:4", "pay-health", f"_nomad-task-{ALLOCATIONS[2]}-app-pay-health-arbiter"),
        _found("127.0.0.1:5", "redis", f"_nomad-task-{ALLOCATIONS[2]}-redis-redis-db", "primary"),
    ]
    (config.parent / "found.json").write_text(json.dumps([*_of_the_job_file(), *elsewhere]))
    return config


def test_every_sidecar_is_found_by_its_allocation_and_nothing_else_is_scraped(with_services: Path) -> None:
    active = wait_for(
        lambda: found_targets(with_services, "health-arbiter"), timeout_s=60, what="promtool has read the file in time"
    )
    found = {int(one["__address__"].rpartition(":")[2]): one for one in active}
    labels = {name: value for name, value in found.pop(2).items() if not name.startswith("__")}
    assert labels.pop("service") in {"app", "app.web"}
    assert labels == {
        "job": "health-arbiter",
        "namespace": "default",
        "instance": ALLOCATIONS[0],
        "alloc": ALLOCATIONS[0][:8],
        "datacenter": "dc1",
    }
    of_the_others = {port: (one["service"], one["alloc"]) for port, one in found.items()}
    assert of_the_others == {3: ("pay.web", "11111111"), 4: ("pay", "66666666")}, "its tag, or else its name"
