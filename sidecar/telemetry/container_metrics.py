"""The metrics of the container and of its app's reports, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import ErrorLevel, State

Counts = Mapping[str, int]


class ContainerReadings(Collector):
    """Metrics of the controller, read at each scrape."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        counted: Callable[[], tuple[Counts, Counts]],
        stale: Callable[[], int],
        lag_s: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """``counted`` gives all errors ever by kind, and all other reports by level.

        ``clock``: that of the snapshot, which may be from the last check.
        """
        self._snapshot = snapshot
        self._counted = counted
        self._stale = stale
        self._lag_s = lag_s
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read a controller that has not begun."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the controller."""
        seen = self._snapshot()
        yield _states(seen)
        yield GaugeMetricFamily(
            "arbiter_state_since_timestamp_seconds",
            "When the current state was entered.",
            seen.unix_of(seen.container.since),
        )
        yield GaugeMetricFamily(
            "arbiter_not_honoured",
            "1 if the container has been out of service for so long after its cull that it is not being replaced.",
            float(seen.container.is_overdue),
        )
        age_s = self._clock() - seen.container.born
        yield GaugeMetricFamily("arbiter_age_seconds", "Age of the app's incarnation.", age_s)
        yield GaugeMetricFamily(
            "arbiter_lifetime_due_timestamp_seconds",
            "When the app is to be retired, unless it is busy then; 0: never.",
            0.0 if seen.retire_at is None else seen.unix_of(seen.retire_at),
        )
        yield GaugeMetricFamily(
            "arbiter_load", "Load that the app last reported.", seen.load.value if seen.load else None
        )
        yield GaugeMetricFamily("arbiter_window_seconds", "Length of the error window.", seen.evidence.window_s)
        yield _by("arbiter_window_errors", "Errors in the window that count.", "kind", seen.evidence.kinds)
        yield self._errors()
        yield GaugeMetricFamily("arbiter_weight", "Weight reported to the balancer, in percent.", seen.share)
        yield GaugeMetricFamily(
            "arbiter_would_weight",
            "Weight that enforce mode would report, in percent; only in shadow mode.",
            None if seen.enforce else seen.would_share,
        )
        yield GaugeMetricFamily(
            "arbiter_success_rate", "Recent success rate of the requests, from 0 to 1.", seen.success_rate
        )
        stale = CounterMetricFamily(
            "arbiter_stale_reports",
            "Reports of an earlier incarnation, or of an eleventh new one within a second; they are not counted.",
        )
        stale.add_metric([], self._stale())
        yield stale
        yield GaugeMetricFamily("arbiter_loop_lag_seconds", "Delay of the controller's last turn.", self._lag_s())
        if seen.checked_at is not None:
            yield GaugeMetricFamily(
                "arbiter_last_check_timestamp_seconds",
                "When the window was last checked.",
                seen.unix_of(seen.checked_at),
            )

    def _errors(self) -> Metric:
        kinds, levels = self._counted()
        family = CounterMetricFamily("arbiter_errors", "Errors reported by the app.", labels=["level", "kind"])
        for kind, count in kinds.items():
            family.add_metric([ErrorLevel.SERVER_ERROR, kind], count)
        for level, count in levels.items():
            family.add_metric([level, ""], count)
        return family


class DatagramReadings(Collector):
    """Metrics of the datagram sockets, read at each scrape."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        """``counts``: packets, lines, and the lost or invalid ones by reason."""
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the counts."""
        counts = dict(self._counts())
        for name, text in (("packets", "Datagrams received."), ("lines", "Lines in the datagrams.")):
            family = CounterMetricFamily(f"arbiter_datagram_{name}", text)
            family.add_metric([], counts.pop(name))
            yield family
        lost = CounterMetricFamily(
            "arbiter_datagram_dropped",
            "Datagrams, lines and reports that were not counted, by reason.",
            labels=["reason"],
        )
        for reason, count in counts.items():
            lost.add_metric([reason], count)
        yield lost


def _states(seen: Snapshot) -> Metric:
    family = GaugeMetricFamily("arbiter_state", "1 for the current state, 0 for the others.", labels=["state"])
    for state in State:
        family.add_metric([state], float(state is seen.container.state))
    return family


def _by(name: str, text: str, label: str, counts: Counts) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family
