"""The metrics that are read at each scrape: of the container, its reports, its fleet and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import ErrorLevel, Fleet, State

Counts = Mapping[str, int]


class Readings(Collector):
    """Metrics that are read at each scrape, and not before: what they read may not have begun when they register."""

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return []


class ContainerReadings(Readings):
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


class DatagramReadings(Readings):
    """Metrics of the datagram sockets, read at each scrape."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        """``counts``: packets, lines, and the lost or invalid ones by reason."""
        self._counts = counts

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


class FleetReadings(Readings):
    """Metrics of the last answer to a beat, read at each scrape; none while the answer is unknown or stale."""

    def __init__(self, fleet: Callable[[], Fleet | None]) -> None:
        self._fleet = fleet

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


class LedgerReadings(Readings):
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
