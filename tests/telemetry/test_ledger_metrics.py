from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from sidecar.telemetry.ledger_metrics import LedgerReadings


def test_page_says_how_many_entries_wait_and_how_many_were_lost() -> None:
    registry = CollectorRegistry()
    registry.register(LedgerReadings(lambda: 3, lambda: 7))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == ["arbiter_events_waiting 3.0", "arbiter_events_dropped_total 7.0"]
