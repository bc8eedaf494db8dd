"""The fleet and the ledger in the metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sidecar.core.types import CauseTrial, Fleet, Hold
from sidecar.telemetry.readings import FleetReadings, LedgerReadings

CALM = Fleet(10)
FREEZE = Hold("ann", "deploy", 1_700_000_000.0)
TRIED = CauseTrial("mysql", 2, 1)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 2)
LOUD = Fleet(
    10,
    6,
    2,
    "redis",
    (TRIED, PAUSED),
    2,
    losses=3,
    helped=4,
    unhelped=5,
    unclear=6,
    hold=FREEZE,
    retiring=2,
    culls_by=(("helped", "mysql", 1), ("helped", "redis", 3)),
    median_errors=4,
    median_ratio=0.25,
    duplicate=True,
)


def board(fleet: Fleet | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(FleetReadings(lambda: fleet))
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "calm", "loud"),
    [
        ("arbiter_fleet_alive", {}, 10, 10),
        ("arbiter_fleet_suspect", {}, 0, 6),
        ("arbiter_fleet_down", {}, 0, 2),
        ("arbiter_fleet_policies", {}, 1, 2),
        ("arbiter_fleet_median_errors", {}, None, 4),
        ("arbiter_trial_limit", {"cause": "mysql"}, None, 2),
        ("arbiter_trial_limit", {"cause": "redis"}, None, 1),
        ("arbiter_trial_out", {"cause": "mysql"}, None, 1),
        ("arbiter_trial_out", {"cause": "redis"}, None, 0),
        ("arbiter_cause_paused_seconds", {"cause": "mysql"}, None, 0),
        ("arbiter_cause_paused_seconds", {"cause": "redis"}, None, 540),
        ("arbiter_hold_until_timestamp_seconds", {}, 0, FREEZE.until),
        ("arbiter_engineer_needed", {"reason": "paused"}, 0, 1),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": ""}, 0, None),
        ("arbiter_fleet_culls_total", {"outcome": "unhelped", "kind": ""}, 0, 5),
        ("arbiter_fleet_culls_total", {"outcome": "unclear", "kind": ""}, 0, 6),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "redis"}, None, 3),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "mysql"}, None, 1),
        ("arbiter_fleet_retiring", {}, 0, 2),
        ("arbiter_fleet_same_cause", {"kind": "redis"}, None, 1),
        ("arbiter_data_losses_total", {}, 0, 3),
    ],
)
def test_fleet_is_read_at_the_scrape(name: str, labels: dict[str, str], calm: float | None, loud: float | None) -> None:
    assert [board(fleet).get_sample_value(name, labels) for fleet in (CALM, LOUD)] == [calm, loud]


def test_no_other_sample_is_on_the_page() -> None:
    samples = [sample for family in board(LOUD).collect() for sample in family.samples]
    assert len(samples) == 20


def test_fleet_that_is_not_known_has_no_samples() -> None:
    assert generate_latest(board(None)) == b""


def test_page_says_how_many_entries_wait_and_how_many_were_lost() -> None:
    registry = CollectorRegistry()
    registry.register(LedgerReadings(lambda: 3, lambda: 7))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == ["arbiter_events_waiting 3.0", "arbiter_events_dropped_total 7.0"]
