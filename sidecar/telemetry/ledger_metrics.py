"""Metrics of the ledger: entries that wait for the store, and entries that were lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class LedgerReadings(Collector):
    """Metrics of the ledger, read at each scrape."""

    def __init__(self, waiting: Callable[[], int], dropped: Callable[[], int]) -> None:
        self._waiting = waiting
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """The metrics, as they are now."""
        yield GaugeMetricFamily(
            "arbiter_events_waiting", "Ledger entries that the store has not confirmed yet.", value=self._waiting()
        )
        yield CounterMetricFamily(
            "arbiter_events_dropped",
            "Ledger entries lost because too many were waiting.",
            value=self._dropped(),
        )
