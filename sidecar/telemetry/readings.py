"""The metrics that are read at each scrape: of the container, its reports, its fleet, its ledger and its datagrams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core.app_reports import ErrorLevel
from sidecar.core.beats import Fleet
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State

Counts = Mapping[str, int]
Gauges = tuple[tuple[str, str, Callable[[Snapshot], float | None]], ...]


class Readings(Collector):
    """The metrics that ``read`` makes at each scrape, and not before: what it reads may not have begun yet."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Read the metrics."""
        return self._read()

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return ()


OF_CONTAINER: Final[Gauges] = (
    (
        "arbiter_state_since_timestamp_seconds",
        "When the current state was entered.",
        lambda seen: seen.unix_of(seen.container.since),
    ),
    (
        "arbiter_not_honoured",
        "1 if the container has been out of service for so long after its cull that it is not being replaced.",
        lambda seen: seen.container.is_overdue,
    ),
    (
        "arbiter_lifetime_due_timestamp_seconds",
        "When the app is to be retired, unless it is busy then; 0: never.",
        lambda seen: 0.0 if seen.retire_at is None else seen.unix_of(seen.retire_at),
    ),
    ("arbiter_load", "Load that the app last reported.", lambda seen: seen.load.value if seen.load else None),
    ("arbiter_window_seconds", "Length of the error window.", lambda seen: seen.evidence.window_s),
    ("arbiter_weight", "Weight reported to the balancer, in percent.", lambda seen: seen.share),
    (
        "arbiter_would_weight",
        "Weight that enforce mode would report, in percent; only in shadow mode.",
        lambda seen: None if seen.enforce else seen.would_share,
    ),
    (
        "arbiter_success_rate",
        "Recent success rate of the requests, from 0 to 1.",
        lambda seen: seen.success_rate,
    ),
    (
        "arbiter_last_check_timestamp_seconds",
        "When the window was last checked.",
        lambda seen: None if seen.checked_at is None else seen.unix_of(seen.checked_at),
    ),
)
"""Name, help and value of each gauge that a snapshot has; None: no sample."""


def of_container(seen: Snapshot, now: float) -> Iterator[Metric]:
    """The metrics of a snapshot, which may be from the last check. ``now`` is by its clock."""
    states: dict[str, float] = {state: float(state is seen.container.state) for state in State}
    yield _labelled("arbiter_state", "1 for the current state, 0 for the others.", "state", states)
    for name, text, value in OF_CONTAINER:
        yield GaugeMetricFamily(name, text, value(seen))
    yield GaugeMetricFamily("arbiter_age_seconds", "Age of the app's incarnation.", now - seen.container.born)
    yield _labelled("arbiter_window_errors", "Errors in the window that count.", "kind", seen.evidence.kinds)


def of_controller(kinds: Counts, levels: Counts, stale: int, lag_s: float) -> Iterator[Metric]:
    """What the controller counts: all errors ever by kind, other reports by level, and reports that were too late."""
    errors = CounterMetricFamily("arbiter_errors", "Errors reported by the app.", labels=["level", "kind"])
    for kind, count in kinds.items():
        errors.add_metric([ErrorLevel.SERVER_ERROR, kind], count)
    for level, count in levels.items():
        errors.add_metric([level, ""], count)
    yield errors
    yield CounterMetricFamily(
        "arbiter_stale_reports",
        "Reports of an earlier incarnation, or of an eleventh new one within a second; they are not counted.",
        stale,
    )
    yield GaugeMetricFamily("arbiter_loop_lag_seconds", "Delay of the controller's last turn.", lag_s)


def of_fleet(fleet: Fleet | None) -> Iterator[Metric]:
    """The metrics of the last answer to a beat; none while the answer is unknown or stale."""
    if fleet is None:
        return
    for name, text, value in (
        ("alive", "Containers of the fleet that are in service or start.", fleet.alive),
        ("suspect", "Suspect containers.", fleet.suspect),
        ("down", "Culled containers that are not replaced yet.", fleet.down),
        ("retiring", "Leases for retirements in use.", fleet.retiring),
        ("policies", "Number of different policies in the fleet; it should be 1.", fleet.policies),
        (
            "median_errors",
            "Median of the containers' errors in the window, in a fleet of three or more.",
            fleet.median_errors,
        ),
    ):
        yield GaugeMetricFamily(f"arbiter_fleet_{name}", text, value)
    yield from _trials(fleet)
    yield _labelled(
        "arbiter_fleet_same_cause",
        "1 for the kind of error that most suspects share, if there are three or more.",
        "kind",
        {fleet.cause: 1.0} if fleet.cause else {},
    )
    yield GaugeMetricFamily(
        "arbiter_hold_until_timestamp_seconds",
        "When the hold on this container ends; 0 without one.",
        fleet.hold.until if fleet.hold else 0.0,
    )
    needed = {"paused": float(bool(fleet.paused))}
    yield _labelled("arbiter_engineer_needed", "1 for what needs an engineer.", "reason", needed)
    yield _judged(fleet)
    yield CounterMetricFamily(
        "arbiter_data_losses", "Number of times that Redis lost its record of earlier culls.", fleet.losses
    )


def of_ledger(waiting: int, dropped: int) -> Iterator[Metric]:
    """How many entries of the ledger wait, and how many are lost."""
    yield GaugeMetricFamily("arbiter_events_waiting", "Ledger entries that the store has not confirmed yet.", waiting)
    yield CounterMetricFamily("arbiter_events_dropped", "Ledger entries lost because too many were waiting.", dropped)


def of_datagrams(counts: Counts) -> Iterator[Metric]:
    """``counts``: packets, lines, and the lost or invalid ones by reason."""
    lost = dict(counts)
    yield CounterMetricFamily("arbiter_datagram_packets", "Datagrams received.", lost.pop("packets"))
    yield CounterMetricFamily("arbiter_datagram_lines", "Lines in the datagrams.", lost.pop("lines"))
    dropped = CounterMetricFamily(
        "arbiter_datagram_dropped",
        "Datagrams, lines and reports that were not counted, by reason.",
        labels=["reason"],
    )
    for reason, count in lost.items():
        dropped.add_metric([reason], count)
    yield dropped


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _trials(fleet: Fleet) -> Iterator[Metric]:
    """The limits on culls for each cause. The store bounds the number of causes."""
    for name, text, values in (
        (
            "arbiter_trial_limit",
            "Maximum number of culls for this cause without a known outcome.",
            {trial.cause: trial.limit for trial in fleet.trials},
        ),
        (
            "arbiter_trial_out",
            "Culls for this cause whose outcome is not known yet.",
            {trial.cause: trial.out for trial in fleet.trials},
        ),
        (
            "arbiter_cause_paused_seconds",
            "Seconds until the next cull for this cause, because the last one did not help; 0: not paused.",
            {trial.cause: trial.paused_s for trial in fleet.trials},
        ),
    ):
        yield _labelled(name, text, "cause", values)


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
