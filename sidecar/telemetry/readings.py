"""The metrics that are read at each scrape: of container, controller, fleet, ledger and datagrams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sidecar.core.app_reports import ErrorLevel
from sidecar.core.claims import CauseTrial, Fleet
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State

Counts = Mapping[str, int]

_OF_CONTAINER: Final[tuple[tuple[str, str, Callable[[Snapshot], float | None]], ...]] = (
    (
        "arbiter_state_since_timestamp_seconds",
        "When the current state was entered.",
        lambda snapshot: snapshot.unix_of(snapshot.container.since),
    ),
    (
        "arbiter_not_honoured",
        "1 if the container has been out of service for so long after its cull that it is not being replaced.",
        lambda snapshot: snapshot.container.is_overdue,
    ),
    (
        "arbiter_lifetime_due_timestamp_seconds",
        "When the app is to be retired, unless it is busy then; 0: never.",
        lambda snapshot: 0.0 if snapshot.retire_at is None else snapshot.unix_of(snapshot.retire_at),
    ),
    (
        "arbiter_load",
        "Load that the app last reported.",
        lambda snapshot: snapshot.load.value if snapshot.load else None,
    ),
    ("arbiter_window_seconds", "Length of the error window.", lambda snapshot: snapshot.evidence.window_s),
    ("arbiter_weight", "Weight reported to the balancer, in percent.", lambda snapshot: snapshot.share),
    (
        "arbiter_would_weight",
        "Weight that enforce mode would report, in percent; only in shadow mode.",
        lambda snapshot: None if snapshot.enforce else snapshot.would_share,
    ),
    (
        "arbiter_success_rate",
        "Recent success rate of the requests, from 0 to 1.",
        lambda snapshot: snapshot.success_rate,
    ),
    (
        "arbiter_last_check_timestamp_seconds",
        "When the window was last checked.",
        lambda snapshot: None if snapshot.checked_at is None else snapshot.unix_of(snapshot.checked_at),
    ),
)
"""Name, help and value of each gauge that a snapshot has; None: no sample."""


def of_container(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    """The metrics of a snapshot, which may be from the last check. ``now`` is by its clock."""
    states: dict[str, float] = {state: float(state is snapshot.container.state) for state in State}
    yield _by("state", GaugeMetricFamily, "arbiter_state", "1 for the current state, 0 for the others.", states)
    for name, text, value in _OF_CONTAINER:
        yield GaugeMetricFamily(name, text, value(snapshot))
    yield GaugeMetricFamily("arbiter_age_seconds", "Age of the app's incarnation.", now - snapshot.container.born)
    text = "Errors in the window that count."
    yield _by("kind", GaugeMetricFamily, "arbiter_window_errors", text, snapshot.evidence.kinds)


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


_OF_FLEET: Final = {
    "alive": "Containers of the fleet that are in service or start.",
    "suspect": "Suspect containers.",
    "down": "Culled containers that are not replaced yet.",
    "retiring": "Leases for retirements in use.",
    "settings": "Number of different settings in the fleet; it should be 1.",
    "median_errors": "Median of the containers' errors in the window, in a fleet of three or more.",
}
"""The field of the fleet that is a gauge of this name, and its help."""

_OF_TRIALS: Final[tuple[tuple[str, str, Callable[[CauseTrial], float]], ...]] = (
    (
        "arbiter_trial_limit",
        "Maximum number of culls for this cause without a known outcome.",
        lambda trial: trial.limit,
    ),
    ("arbiter_trial_out", "Culls for this cause whose outcome is not known yet.", lambda trial: trial.out),
    (
        "arbiter_cause_paused_seconds",
        "Seconds until the next cull for this cause, because the last one did not help; 0: not paused.",
        lambda trial: trial.paused_s,
    ),
)
"""Name, help and value of what limits the culls for each cause. The store bounds the number of causes."""


def of_fleet(fleet: Fleet | None) -> Iterator[Metric]:
    """The metrics of the last answer to a beat; none while the answer is unknown or stale."""
    if fleet is None:
        return
    for name, text in _OF_FLEET.items():
        yield GaugeMetricFamily(f"arbiter_fleet_{name}", text, getattr(fleet, name))
    for name, text, value in _OF_TRIALS:
        yield _by("cause", GaugeMetricFamily, name, text, {trial.cause: value(trial) for trial in fleet.trials})
    text = "1 for the kind of error that most suspects share, if there are three or more."
    shared = {fleet.cause: 1} if fleet.cause else {}
    yield _by("kind", GaugeMetricFamily, "arbiter_fleet_same_cause", text, shared)
    text = "When the hold on this container ends; 0 without one."
    yield GaugeMetricFamily("arbiter_hold_until_timestamp_seconds", text, fleet.hold.until if fleet.hold else 0.0)
    needed = {"paused": bool(fleet.paused)}
    yield _by("reason", GaugeMetricFamily, "arbiter_engineer_needed", "1 for what needs an engineer.", needed)
    yield _judged(fleet)
    text = "Number of times that Redis lost its record of earlier culls."
    yield CounterMetricFamily("arbiter_data_losses", text, fleet.losses)


def _judged(fleet: Fleet) -> Metric:
    """Culls by outcome and kind. An outcome without culls has a sample of 0, so that its first cull is an increase."""
    text = "Culls of the whole fleet by outcome and kind of error."
    judged = CounterMetricFamily("arbiter_fleet_culls", text, labels=["outcome", "kind"])
    for outcome in ("helped", "unhelped", "unclear"):
        by_kind = {kind: count for word, kind, count in fleet.culls_by if word == outcome}
        for kind, count in by_kind.items():
            judged.add_metric([outcome, kind], count)
        rest = getattr(fleet, outcome) - sum(by_kind.values())
        if rest or not by_kind:
            judged.add_metric([outcome, ""], rest)
    return judged


def of_ledger(waiting: int, dropped: int) -> Iterator[Metric]:
    """How many entries of the ledger wait, and how many are lost."""
    yield GaugeMetricFamily("arbiter_events_waiting", "Ledger entries that the store has not confirmed yet.", waiting)
    yield CounterMetricFamily("arbiter_events_dropped", "Ledger entries lost because too many were waiting.", dropped)


def of_datagrams(counts: Counts) -> Iterator[Metric]:
    """``counts``: packets, lines, and the lost or invalid ones by reason."""
    lost = dict(counts)
    yield CounterMetricFamily("arbiter_datagram_packets", "Datagrams received.", lost.pop("packets"))
    yield CounterMetricFamily("arbiter_datagram_lines", "Lines in the datagrams.", lost.pop("lines"))
    text = "Datagrams, lines and reports that were not counted, by reason."
    yield _by("reason", CounterMetricFamily, "arbiter_datagram_dropped", text, lost)


def _by(
    label: str,
    family: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    values: Mapping[str, float],
) -> Metric:
    """A metric with one label, which has the keys of ``values``."""
    made = family(name, text, labels=[label])
    for key, value in values.items():
        made.add_metric([key], value)
    return made
