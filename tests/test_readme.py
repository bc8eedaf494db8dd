"""The README and the pages of settings and metrics say what the code does: their tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.app import notify_parts
from sidecar.config import settings
from sidecar.core.explain.reasons import DENIED
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.life.transitions import Container
from sidecar.core.types import Evidence, Fleet, Latch, State
from sidecar.server.agent_check import line
from sidecar.takeover.main_process import count_ready
from sidecar.telemetry.fleet_telemetry import FleetReadings
from sidecar.telemetry.ledger_metrics import LedgerReadings
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import DatagramReadings, Metrics, Readings
from sidecar.telemetry.observers import Observers

TOP = Path(__file__).parents[1]
README = (TOP / "README.md").read_text()
SETTINGS = (TOP / "deploy" / "settings.md").read_text()
METRICS = (TOP / "deploy" / "metrics.md").read_text()
EVIDENCE = Evidence(60, 1, {"redis": 1}, {}, 0, 0)


def _table(title: str) -> list[list[str]]:
    return _rows(README.split(f"\n## {title}\n")[1].split("\n## ")[0])


def _rows(section: str) -> list[list[str]]:
    """The cells of the one table in it, without its head."""
    rows = [row for row in section.splitlines() if row.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def _metrics() -> list[list[str]]:
    metrics = Metrics("enforce", 5, 10)
    snapshot = Snapshot(1.0, Container(State.UP, 0.0, "app/a"), EVIDENCE, 0.0)
    readings = Readings(
        lambda: snapshot,
        counted=lambda: ({}, {}),
        stale=lambda: 0,
        lag_s=lambda: 0.0,
        unix_of=lambda at: at,
        honour_s=300.0,
    )
    metrics.registry.register(readings)
    metrics.registry.register(DatagramReadings(lambda: {"packets": 0, "lines": 0, "kernel": 0}))
    metrics.registry.register(FleetReadings(lambda: Fleet(1)))
    metrics.registry.register(LedgerReadings(lambda: 0, lambda: 0))
    count_ready(metrics.registry, lambda: False)
    metrics.registry.register(notify_parts.Tally(Observers(metrics, Log())))
    families = [family for family in metrics.registry.collect() if family.name.startswith("arbiter_")]
    return [[f"`{_full_name(family.name, family.type)}`", family.documentation] for family in families]


def _full_name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _settings() -> list[list[str]]:
    return [[f"`{name}`", f"`{default}`" if default else "", text] for name, default, text in settings.table()]


def test_the_gates_have_every_reason_for_which_a_token_is_refused() -> None:
    shown = {word for row in _table("The fleet") for word in re.findall(r"`(\w+)`", row[2])}
    assert shown == {*DENIED}


def test_tables_of_settings_have_each_setting_of_the_code_once() -> None:
    shown = [row for section in SETTINGS.split("\n## ")[1:] for row in _rows(section)]
    assert sorted(shown) == sorted(_settings())


def test_the_few_settings_of_the_readme_are_as_in_the_code() -> None:
    shown = _table("Settings and metrics")
    assert shown
    assert [row for row in shown if row not in _settings()] == []


def test_tables_of_metrics_have_each_metric_of_the_code_once() -> None:
    shown = [row for section in METRICS.split("\n## ")[1:] for row in _rows(section)]
    assert sorted(shown) == sorted(_metrics())


@pytest.mark.parametrize("page", ["deploy/settings.md", "deploy/metrics.md"])
def test_readme_leads_to_the_tables(page: str) -> None:
    assert f"({page})" in README


@pytest.mark.parametrize("state", State)
def test_table_of_states_is_that_of_the_code(state: State) -> None:
    row = next(row for row in _table("States, and what each door answers") if row[0] == f"`{state}`")
    latch = Latch("id", 0.0, "reason") if state in (State.DRAINING, State.DOWN) else None
    container = Container(state, 0.0, "app/a", latch=latch)
    assert row[2] == ("200" if container.haproxy_up else "503")
    assert re.match(r"\d+", row[3])[0] == ("200" if container.nomad_up else "503")  # type: ignore[index]
    said = line(container).partition("#")[0].strip()
    assert row[4].strip("`").partition("#")[0].strip() == said


def test_a_latched_sidecar_that_stops_stays_down_for_nomad() -> None:
    """The table says "200, unless culled"."""
    assert not Container(State.STOPPING, 0.0, "app/a", nomad_told=True).nomad_up


def test_the_readme_is_about_as_long_as_one_reads() -> None:
    assert len(README.splitlines()) < 200
