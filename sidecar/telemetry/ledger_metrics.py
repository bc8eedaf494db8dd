"""What the metrics say of the ledger: how many entries wait for the bucket, and how many were lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class LedgerReadings(Collector):
    """A collector; it is read whenever the page is asked for."""

    def __init__(self, waiting: Callable[[], int], dropped: Callable[[], int]) -> None:
        self._waiting = waiting
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """The metrics, as they are now."""
        yield GaugeMetricFamily(
            "arbiter_events_waiting", "Entries of the ledger that the bucket has not confirmed.", value=self._waiting()
        )
        yield CounterMetricFamily(
            "arbiter_events_dropped",
            "Entries of the ledger lost because too many waited for the bucket.",
            value=self._dropped(),
        )
