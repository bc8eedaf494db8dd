"""The Prometheus metrics: a table from event to counter, and what other parts count. ``readings`` has the others.

Labels come from bounded sets only: kinds are capped by the window, everything else is an enumeration.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.core.app_reports import Missed, Sample
from sidecar.core.claims import Fleet, Granted, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_events import BeatRecord
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
from sidecar.core.life.snapshot import Record

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
        self._retirements = self.counter(
            "arbiter_retirements",
            "Retirements by the answer to the request for a lease, and by how the lease ended.",
            {"outcome": ["granted", "denied", "unknown", "not_honoured", "would"]},
        )
        self._restarts = counter("arbiter_app_restarts", "New incarnations of the app.")
        self._changes = counter("arbiter_state_changes", "Changes into a state.", ["state"])
        self._polls = counter("arbiter_polls", "Health answers by path and status.", ["path", "code"])
        self._refusals = counter("arbiter_refusals", "Requests refused and connections cut.", ["listener", "reason"])
        self._failures = self.counter(
            "arbiter_failures",
            "Exceptions inside the sidecar that it survived, by place.",
            {"where": ["step", "journal", "budget", "listener", "log"]},
        )
        self._scrapes = self.counter("arbiter_scrapes", "Scrapes of the app by outcome.", {"outcome": ["ok"]})
        self._unknown = counter(
            "arbiter_scrape_unknown", "Series whose count went back without a restart of the app; not counted."
        )
        self.reachable = gauge("arbiter_budget_reachable", "1 if the budget answered when last asked.")
        self._used = gauge("arbiter_budget_used_tokens", "Tokens in use, as of the last answer.")
        self._capacity = gauge("arbiter_budget_capacity_tokens", "Tokens per window.")
        self._capacity.set(capacity)
        self.certificate_expiry = gauge(
            "arbiter_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of the listeners expires; 0: there is none.",
        )
        gauge("arbiter_error_limit", "Number of errors in the window at which the app is unhealthy.").set(error_limit)
        build = gauge("arbiter_build_info", "Version of the sidecar.", ["version", "python", "mode"])
        build.labels(__version__, platform.python_version(), mode).set(1)
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


class _Readings(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads nothing."""
        return ()
