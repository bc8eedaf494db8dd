"""The README says what the code does: its tables are those of the settings and of the metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar import settings
from sidecar.answer.agent import line
from sidecar.answer.metrics import DatagramReadings, Metrics, Readings
from sidecar.core.arbiter import Standing
from sidecar.core.records import Snapshot
from sidecar.core.words import Evidence, Latch, State

README = (Path(__file__).parents[1] / "README.md").read_text()
EVIDENCE = Evidence(60, 1, {"redis": 1}, {}, 0, 0)


def _table(title: str) -> list[list[str]]:
    section = README.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def _metrics() -> list[list[str]]:
    metrics = Metrics("enforce", 5, 10)
    snapshot = Snapshot(1.0, Standing(State.UP, 0.0, "app/a"), EVIDENCE, 0.0)
    readings = Readings(
        lambda: snapshot, counted=lambda: ({}, {}), stale=lambda: 0, lag_s=lambda: 0.0, unix_of=lambda at: at
    )
    metrics.registry.register(readings)
    metrics.registry.register(DatagramReadings(lambda: {"packets": 0, "lines": 0, "kernel": 0}))
    families = [family for family in metrics.registry.collect() if family.name.startswith("arbiter_")]
    return [[f"`{_full_name(family.name, family.type)}`", family.documentation] for family in families]


def _full_name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def test_settings_table_is_that_of_the_code() -> None:
    expected = [[f"`{name}`", f"`{default}`" if default else "", text] for name, default, text in settings.table()]
    assert _table("Settings") == expected


def test_metrics_table_is_that_of_the_code() -> None:
    assert _table("Metrics") == _metrics()


@pytest.mark.parametrize("state", State)
def test_table_of_states_is_that_of_the_code(state: State) -> None:
    row = next(row for row in _table("States, and what each door answers") if row[0] == f"`{state}`")
    latch = Latch("id", 0.0, "reason") if state in (State.DRAINING, State.DOWN) else None
    standing = Standing(state, 0.0, "app/a", latch=latch)
    assert row[2] == ("200" if standing.haproxy_up else "503")
    assert re.match(r"\d+", row[3])[0] == ("200" if standing.nomad_up else "503")  # type: ignore[index]
    said = line(standing).partition("#")[0].strip()
    assert row[4].strip("`").partition("#")[0].strip() == said


def test_a_latched_sidecar_that_stops_stays_down_for_nomad() -> None:
    """The table says "200, unless culled"."""
    assert not Standing(State.STOPPING, 0.0, "app/a", nomad_told=True).nomad_up


def test_the_readme_is_about_as_long_as_one_reads() -> None:
    assert len(README.splitlines()) < 200
