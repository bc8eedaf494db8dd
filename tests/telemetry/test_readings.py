"""The metrics that are read at each scrape, from values alone. ``tests/test_readme.py`` has their names and labels."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric

from sidecar.core.app_reports import Load
from sidecar.core.beats import CauseTrial, Fleet
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Hold, State
from sidecar.telemetry import readings

Samples = dict[tuple[str, ...], float]

CALM = Fleet(10)
LOUD = Fleet(
    10,
    6,
    2,
    "redis",
    (CauseTrial("mysql", 2, 1), CauseTrial("redis", 1, 0, 540.0, 2)),
    2,
    losses=3,
    helped=4,
    unhelped=5,
    unclear=6,
    hold=Hold("ann", "deploy", 1_700_000_000.0),
    retiring=2,
    culls_by=(("helped", "mysql", 1), ("helped", "redis", 3)),
    median_errors=4,
)
FRESH = Snapshot(100.0, Container(State.UP, 90.0, "app/a", born=40.0), Evidence(60), None, unix=5_000.0)
BUSY = Snapshot(
    100.0,
    Container(State.SUSPECT, 95.0, "app/a", born=40.0),
    Evidence(30, 3, {"redis": 2, "http": 1}),
    98.0,
    weight=40,
    success_rate=0.25,
    retire_at=160.0,
    load=Load(0.5, 99.0),
    unix=5_000.0,
)


def samples(families: Iterable[Metric]) -> Samples:
    """The value of every sample by its name without prefix and its label values."""
    return {
        (sample.name.removeprefix("arbiter_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def states(now: State) -> Samples:
    return {("state", state): float(state is now) for state in State}


def test_snapshot_is_shown_by_the_clock_of_the_world() -> None:
    assert samples(readings.of_container(FRESH, 101.0)) == {
        **states(State.UP),
        ("state_since_timestamp_seconds",): 4_990.0,
        ("not_honoured",): 0.0,
        ("age_seconds",): 61.0,
        ("lifetime_due_timestamp_seconds",): 0.0,
        ("window_seconds",): 60.0,
        ("weight",): 100.0,
    }
    assert samples(readings.of_container(BUSY, 100.0)) == {
        **states(State.SUSPECT),
        ("state_since_timestamp_seconds",): 4_995.0,
        ("not_honoured",): 0.0,
        ("age_seconds",): 60.0,
        ("lifetime_due_timestamp_seconds",): 5_060.0,
        ("load",): 0.5,
        ("window_seconds",): 30.0,
        ("window_errors", "redis"): 2.0,
        ("window_errors", "http"): 1.0,
        ("weight",): 40.0,
        ("success_rate",): 0.25,
        ("last_check_timestamp_seconds",): 4_998.0,
    }


def test_would_be_weight_is_shown_in_shadow_mode_alone() -> None:
    shadow = Snapshot(100.0, BUSY.container, Evidence(60), None, weight=40, enforce=False)
    shown = samples(readings.of_container(shadow, 100.0))
    assert (shown["weight",], shown["would_weight",]) == (100.0, 40.0)


def test_container_that_is_not_replaced_is_shown() -> None:
    overdue = Snapshot(0.0, Container(State.DOWN, 0.0, "app/a", is_overdue=True), Evidence(60), None)
    assert samples(readings.of_container(overdue, 0.0))["not_honoured",] == 1.0


def test_counts_of_the_controller() -> None:
    assert samples(readings.of_controller({"redis": 3}, {"client_error": 2}, stale=1, lag_s=0.5)) == {
        ("errors_total", "server_error", "redis"): 3.0,
        ("errors_total", "client_error", ""): 2.0,
        ("stale_reports_total",): 1.0,
        ("loop_lag_seconds",): 0.5,
    }


@pytest.mark.parametrize(
    ("name", "calm", "loud"),
    [
        ("fleet_alive", 10, 10),
        ("fleet_suspect", 0, 6),
        ("fleet_down", 0, 2),
        ("fleet_retiring", 0, 2),
        ("fleet_policies", 1, 2),
        ("fleet_median_errors", None, 4),
        ("trial_limit mysql", None, 2),
        ("trial_limit redis", None, 1),
        ("trial_out mysql", None, 1),
        ("trial_out redis", None, 0),
        ("cause_paused_seconds mysql", None, 0),
        ("cause_paused_seconds redis", None, 540),
        ("fleet_same_cause redis", None, 1),
        ("hold_until_timestamp_seconds", 0, 1_700_000_000),
        ("engineer_needed paused", 0, 1),
        ("fleet_culls_total helped ", 0, None),
        ("fleet_culls_total unhelped ", 0, 5),
        ("fleet_culls_total unclear ", 0, 6),
        ("fleet_culls_total helped redis", None, 3),
        ("fleet_culls_total helped mysql", None, 1),
        ("data_losses_total", 0, 3),
    ],
)
def test_fleet_of_the_last_beat(name: str, calm: float | None, loud: float | None) -> None:
    key = tuple(name.split(" "))
    assert [samples(readings.of_fleet(fleet)).get(key) for fleet in (CALM, LOUD)] == [calm, loud]


def test_no_other_sample_is_shown_and_none_of_a_fleet_that_is_not_known() -> None:
    assert (len(samples(readings.of_fleet(LOUD))), samples(readings.of_fleet(None))) == (20, {})


def test_ledger_and_datagrams() -> None:
    assert samples(readings.of_ledger(3, 7)) == {("events_waiting",): 3.0, ("events_dropped_total",): 7.0}
    counts = {"packets": 9, "lines": 8, "unreadable": 2, "kernel": 1}
    assert samples(readings.of_datagrams(counts)) == {
        ("datagram_packets_total",): 9.0,
        ("datagram_lines_total",): 8.0,
        ("datagram_dropped_total", "unreadable"): 2.0,
        ("datagram_dropped_total", "kernel"): 1.0,
    }
