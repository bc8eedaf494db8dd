"""The Prometheus metrics: a table from event to counter, what other parts count, and what is read at each scrape.

Labels come from bounded sets only: kinds are capped by the window, everything else is an enumeration.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.core.app_reports import ErrorLevel, Missed, Sample
from sidecar.core.claims import CauseTrial, Fleet, Granted, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.container import Record, Snapshot
from sidecar.core.life.events import (
    Checked,
    Culled,
    Event,
    Moved,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    TokenAnswered,
    WouldCull,
    WouldRetire,
)
from sidecar.core.types import State

Counts = Mapping[str, int]
CLAIM_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """All metrics of one sidecar, in a registry of their own.

    ``capacity``: tokens per window, until an answer has it; NaN if that depends on the fleet.
    """

    def __init__(self, mode: str, error_limit: int, capacity: float) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._checks = counter(
            "arbiter_checks", "Verdicts of the checks, and of reports that crossed a limit.", ["verdict"]
        )
        self._claims = counter("arbiter_claims", "Answers to claims of a token.", ["outcome", "reason"])
        self._claim_s = Histogram(
            "arbiter_claim_duration_seconds",
            "Time from a claim to its answer.",
            buckets=CLAIM_BUCKETS,
            registry=registry,
        )
        self._culls = counter("arbiter_culls", "Containers taken down with a token.")
        self._would_culls = counter("arbiter_would_culls", "Culls that shadow mode did not carry out.")
        self._retirements = counter(
            "arbiter_retirements",
            "Retirements by the answer to the request for a lease, and by how the lease ended.",
            ["outcome"],
        )
        self._restarts = counter("arbiter_app_restarts", "New incarnations of the app.")
        self._changes = counter("arbiter_state_changes", "Changes into a state.", ["state"])
        self._used = gauge("arbiter_budget_used_tokens", "Tokens in use, as of the last answer.")
        self._polls = counter("arbiter_polls", "Health answers by path and status.", ["path", "code"])
        self._refusals = counter("arbiter_refusals", "Requests refused and connections cut.", ["listener", "reason"])
        self._failures = counter(
            "arbiter_failures", "Exceptions inside the sidecar that it survived, by place.", ["where"]
        )
        self._scrapes = counter("arbiter_scrapes", "Scrapes of the app by outcome.", ["outcome"])
        self._unknown = counter(
            "arbiter_scrape_unknown", "Series whose count went back without a restart of the app; not counted."
        )
        self.reachable = gauge("arbiter_budget_reachable", "1 if the budget answered when last asked.")
        gauge("arbiter_error_limit", "Number of errors in the window at which the app is unhealthy.").set(error_limit)
        self._capacity = gauge("arbiter_budget_capacity_tokens", "Tokens per window.")
        self._capacity.set(capacity)
        self.certificate_expiry = gauge(
            "arbiter_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of the listeners expires; 0: there is none.",
        )
        build = gauge("arbiter_build_info", "Version of the sidecar.", ["version", "python", "mode"])
        build.labels(__version__, platform.python_version(), mode).set(1)
        self._scrapes.labels("ok")
        for outcome in ("granted", "denied", "unknown", "not_honoured", "would"):
            self._retirements.labels(outcome)
        for where in ("step", "journal", "budget", "listener", "log"):
            self._failures.labels(where)
        self._counters: Mapping[type[Event], Callable[[Any], None]] = {
            Checked: lambda event: self._checks.labels(event.verdict.word).inc(),
            TokenAnswered: self._answered,
            RetirementAnswered: self._leased,
            Culled: lambda _: self._culls.inc(),
            WouldCull: lambda _: self._would_culls.inc(),
            Retired: lambda _: self._retirements.labels("granted").inc(),
            WouldRetire: lambda _: self._retirements.labels("would").inc(),
            Revived: lambda event: None if event.order else self._retirements.labels("not_honoured").inc(),
            Restarted: lambda _: self._restarts.inc(),
        }

    def observe(self, record: Record) -> None:
        """Count what has happened in a step of the controller."""
        for event in record.events:
            if isinstance(event, Moved) and event.state is not event.was:
                self._changes.labels(event.state).inc()
            if count := self._counters.get(type(event)):
                count(event)

    def _answered(self, event: TokenAnswered) -> None:
        answer = event.answer
        self._claims.labels(reasons.outcome(answer), reasons.reason_word(answer)).inc()
        self._claim_s.observe(event.took_s)
        if isinstance(answer, Unknown):
            self.reachable.set(0)
        elif answer.capacity:  # else the claim was denied by a hold, without the store
            self.reachable.set(1)
            self._used.set(answer.used)
            self._capacity.set(answer.capacity)

    def _leased(self, event: RetirementAnswered) -> None:
        """Count an answer; a granted lease is counted with the retirement, because it may come too late."""
        if not isinstance(event.answer, Granted):
            self._retirements.labels(reasons.outcome(event.answer)).inc()
        if isinstance(event.answer, Unknown):
            self.reachable.set(0)
        elif event.answer.capacity:  # as above
            self.reachable.set(1)

    def beaten(self, record: BeatRecord) -> None:
        """Keep the numbers of the budget in an answer to a beat."""
        answer = record.answer
        self.reachable.set(isinstance(answer, Fleet))
        if isinstance(answer, Fleet) and answer.capacity:
            self._used.set(answer.used)
            self._capacity.set(answer.capacity)

    def polled(self, path: str, status: int) -> None:
        """Count one health answer."""
        self._polls.labels(path, str(status)).inc()

    def scraped(self, report: Sample | Missed) -> None:
        """Count a scrape, by ``ok`` or the cause of its failure, and the series in it that could not be counted."""
        if isinstance(report, Missed):
            self._scrapes.labels(report.cause).inc()
        else:
            self._scrapes.labels("ok").inc()
            self._unknown.inc(report.unknown)

    def refused(self, listener: str, reason: str) -> None:
        """Count a request that was refused or a connection that was cut."""
        self._refusals.labels(listener, reason).inc()

    def failed(self, where: str, _error: Exception, _operation: str = "") -> None:
        """Count an exception that the sidecar survived."""
        self._failures.labels(where).inc()

    def log_dropped(self) -> None:
        """Count a line of the log that was lost."""
        self._failures.labels("log").inc()

    def counter(self, name: str, text: str, labels: Mapping[str, Sequence[str]]) -> Counter:
        """Add a counter with these labels; those with values begin at 0."""
        added = Counter(name, text, [*labels], registry=self.registry)
        for values in product(*labels.values()):
            added.labels(*values)
        return added

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def read(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Add the metrics that ``read`` returns at each scrape, and not before: what it reads may not have begun."""
        self.registry.register(_Readings(read))

    def page(self) -> tuple[bytes, str]:
        """The page in text format 0.0.4, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4


# -- what is read at each scrape ---------------------------------------------------------------------------------------


class _Readings(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return ()


_OF_CONTAINER: Final[tuple[tuple[str, str, Callable[[Snapshot], float | None]], ...]] = (
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
    ("arbiter_success_rate", "Recent success rate of the requests, from 0 to 1.", lambda seen: seen.success_rate),
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
    yield _by("state", GaugeMetricFamily, "arbiter_state", "1 for the current state, 0 for the others.", states)
    for name, text, value in _OF_CONTAINER:
        yield GaugeMetricFamily(name, text, value(seen))
    yield GaugeMetricFamily("arbiter_age_seconds", "Age of the app's incarnation.", now - seen.container.born)
    text = "Errors in the window that count."
    yield _by("kind", GaugeMetricFamily, "arbiter_window_errors", text, seen.evidence.kinds)


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
        known = {kind: count for word, kind, count in fleet.culls_by if word == outcome}
        for kind, count in known.items():
            judged.add_metric([outcome, kind], count)
        rest = getattr(fleet, outcome) - sum(known.values())
        if rest or not known:
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
