"""The metrics of the fleet, as of the last answer to a beat, and those of the ledger; both are read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core.types import Fleet


class FleetReadings(Collector):
    """Metrics of the last answer to a beat, read at each scrape; none while the answer is unknown or stale."""

    def __init__(self, fleet: Callable[[], Fleet | None]) -> None:
        self._fleet = fleet

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the fleet."""
        fleet = self._fleet()
        if fleet is None:
            return
        yield GaugeMetricFamily(
            "arbiter_fleet_alive", "Containers of the fleet that are in service or start.", fleet.alive
        )
        yield GaugeMetricFamily("arbiter_fleet_suspect", "Suspect containers.", fleet.suspect)
        yield GaugeMetricFamily("arbiter_fleet_down", "Culled containers that are not replaced yet.", fleet.down)
        yield GaugeMetricFamily("arbiter_fleet_retiring", "Leases for retirements in use.", fleet.retiring)
        yield GaugeMetricFamily(
            "arbiter_fleet_policies", "Number of different policies in the fleet; it should be 1.", fleet.policies
        )
        yield GaugeMetricFamily(
            "arbiter_fleet_median_errors",
            "Median of the containers' errors in the window, in a fleet of three or more.",
            fleet.median_errors,
        )
        yield from _trials(fleet)
        cause = GaugeMetricFamily(
            "arbiter_fleet_same_cause",
            "1 for the kind of error that most suspects share, if there are three or more.",
            labels=["kind"],
        )
        if fleet.cause:
            cause.add_metric([fleet.cause], 1.0)
        yield cause
        yield GaugeMetricFamily(
            "arbiter_hold_until_timestamp_seconds",
            "When the hold on this container ends; 0 without one.",
            fleet.hold.until if fleet.hold else 0.0,
        )
        needed = GaugeMetricFamily("arbiter_engineer_needed", "1 for what needs an engineer.", labels=["reason"])
        needed.add_metric(["paused"], float(bool(fleet.paused)))
        yield needed
        yield _judged(fleet)
        losses = CounterMetricFamily(
            "arbiter_data_losses", "Number of times that Redis lost its record of earlier culls."
        )
        losses.add_metric([], fleet.losses)
        yield losses


def _trials(fleet: Fleet) -> Iterator[Metric]:
    """The limits on culls for each cause. The store bounds the number of causes."""
    limit = GaugeMetricFamily(
        "arbiter_trial_limit", "Maximum number of culls for this cause without a known outcome.", labels=["cause"]
    )
    out = GaugeMetricFamily(
        "arbiter_trial_out", "Culls for this cause whose outcome is not known yet.", labels=["cause"]
    )
    paused = GaugeMetricFamily(
        "arbiter_cause_paused_seconds",
        "Seconds until the next cull for this cause, because the last one did not help; 0: not paused.",
        labels=["cause"],
    )
    for trial in fleet.trials:
        limit.add_metric([trial.cause], trial.limit)
        out.add_metric([trial.cause], trial.out)
        paused.add_metric([trial.cause], trial.paused_s)
    yield from (limit, out, paused)


def _judged(fleet: Fleet) -> Metric:
    """Culls by outcome and kind. An outcome without culls has a sample of 0, so that its first cull is an increase."""
    judged = CounterMetricFamily(
        "arbiter_fleet_culls",
        "Culls of the whole fleet by outcome and kind of error.",
        labels=["outcome", "kind"],
    )
    for outcome in ("helped", "unhelped", "unclear"):
        known = [(kind, count) for one, kind, count in fleet.culls_by if one == outcome]
        rest = getattr(fleet, outcome) - sum(count for _, count in known)
        for kind, count in known:
            judged.add_metric([outcome, kind], count)
        if rest or not known:
            judged.add_metric([outcome, ""], rest)
    return judged


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
