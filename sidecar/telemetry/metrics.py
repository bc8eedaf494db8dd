"""The Prometheus metrics: an observer of the controller's records, and a reader of its counts at scrape time.

Labels come from bounded sets only: kinds are capped by the window, everything else is an enumeration.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.core.explain import reasons
from sidecar.core.life.events import Answered, Judged, Leased
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.types import Fleet, Granted, Level, State, Unknown

CLAIM_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

Counts = Mapping[str, int]


class Metrics:
    """All metrics of one sidecar, in a registry of their own.

    ``capacity``: tokens a window until the bucket tells, not a number if that depends on the fleet.
    """

    def __init__(self, mode: str, error_limit: int, capacity: float) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._checks = counter("arbiter_checks", "Checks, and reports that made it too much.", ["verdict"])
        self._claims = counter("arbiter_claims", "Answers to claims of a token.", ["outcome", "reason"])
        self._claim_s = Histogram(
            "arbiter_claim_duration_seconds",
            "Time from a claim to its answer.",
            buckets=CLAIM_BUCKETS,
            registry=registry,
        )
        self._culls = counter("arbiter_culls", "Containers put down with a token.")
        self._would_culls = counter("arbiter_would_culls", "Culls that shadow mode did not carry out.")
        self._retirements = counter(
            "arbiter_retirements", "Planned ends by what came of asking for a lease, and of the lease.", ["outcome"]
        )
        self._restarts = counter("arbiter_app_restarts", "New incarnations of the app.")
        self._changes = counter("arbiter_state_changes", "Moves into a state.", ["state"])
        self._used = gauge("arbiter_budget_used_tokens", "Tokens in use at the last clear answer.")
        self._polls = counter("arbiter_polls", "Health answers by who asked.", ["poller", "path", "code"])
        self._refusals = counter("arbiter_refusals", "Requests refused and connections cut.", ["listener", "reason"])
        self._failures = counter("arbiter_failures", "Failures inside the sidecar, which went on.", ["where"])
        self._scrapes = counter("arbiter_scrapes", "Scrapes of the app by how they ended.", ["outcome"])
        self._unknown = counter("arbiter_scrape_unknown", "Series that went back without a new process; not counted.")
        self.reachable = gauge("arbiter_budget_reachable", "Whether the budget answered when last asked.")
        gauge("arbiter_error_limit", "Errors in the window that are too many.").set(error_limit)
        self._capacity = gauge("arbiter_budget_capacity_tokens", "Tokens a window.")
        self._capacity.set(capacity)
        self.certificate_expiry = gauge(
            "arbiter_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of our doors expires; 0: there is none.",
        )
        build = gauge("arbiter_build_info", "Version of the sidecar.", ["version", "python", "mode"])
        build.labels(__version__, platform.python_version(), mode).set(1)
        self._scrapes.labels("ok")
        for outcome in ("granted", "denied", "unknown", "not_honoured", "would"):
            self._retirements.labels(outcome)
        for where in ("step", "journal", "budget", "door", "log"):
            self._failures.labels(where)
        self._polls_by: dict[tuple[str, str, int], Counter] = {}

    def observe(self, record: Record) -> None:
        """Count one step of the arbiter."""
        before, after, event = record.before, record.after, record.event
        if isinstance(event, Judged):
            self._checks.labels(event.verdict.judgement).inc()
        elif isinstance(event, Answered):
            self._answered(event, record.claim_s)
        elif isinstance(event, Leased):
            self._leased(event, record)
        elif record.restarted:
            self._restarts.inc()
        if after.state is not before.state:
            self._changes.labels(after.state).inc()
        self._culls.inc(record.culled)
        if record.not_honoured:
            self._retirements.labels("not_honoured").inc()
        self._retirements.labels("would").inc(after.would_retire > before.would_retire)
        self._would_culls.inc(max(0, after.would_culls - before.would_culls))

    def _answered(self, event: Answered, claim_s: float | None) -> None:
        answer = event.answer
        self._claims.labels(reasons.outcome(answer), reasons.reason_word(answer)).inc()
        self._claim_s.observe(claim_s or 0.0)
        if isinstance(answer, Unknown):
            self.reachable.set(0)
        elif answer.capacity:  # else the bucket was not asked: a hold that is known here refuses by itself
            self.reachable.set(1)
            self._used.set(answer.used)
            self._capacity.set(answer.capacity)

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Keep what an answer to a beat tells of the budget."""
        self.reachable.set(isinstance(answer, Fleet))
        if isinstance(answer, Fleet) and answer.capacity:
            self._used.set(answer.used)
            self._capacity.set(answer.capacity)

    def _leased(self, event: Leased, record: Record) -> None:
        """Count an answer. A lease that came too late to be used is none of them."""
        if record.retired or not isinstance(event.answer, Granted):
            self._retirements.labels(reasons.outcome(event.answer)).inc()
        if isinstance(event.answer, Unknown):
            self.reachable.set(0)
        elif event.answer.capacity:  # as above
            self.reachable.set(1)

    def polled(self, poller: str, path: str, status: int) -> None:
        """Count one health answer."""
        key = (poller, path, status)
        counter = self._polls_by.get(key)
        if counter is None:
            counter = self._polls_by[key] = self._polls.labels(poller, path, str(status))
        counter.inc()

    def scraped(self, outcome: str, unknown: int = 0) -> None:
        """Count a scrape, by ``ok`` or the cause of its failure, and the series in it that told nothing."""
        self._scrapes.labels(outcome).inc()
        self._unknown.inc(unknown)

    def refused(self, listener: str, reason: str) -> None:
        """Count a request that was refused or a connection that was cut."""
        self._refusals.labels(listener, reason).inc()

    def failed(self, where: str) -> None:
        """Count a failure of ours that the sidecar survived."""
        self._failures.labels(where).inc()

    def page(self) -> tuple[bytes, str]:
        """The page in text format 0.0.4, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4


class Readings(Collector):
    """What is read from the controller when a scrape comes, and costs nothing before."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        counted: Callable[[], tuple[Counts, Counts]],
        stale: Callable[[], int],
        lag_s: Callable[[], float],
        unix_of: Callable[[float], float],
        honour_s: float,
    ) -> None:
        """``counted`` gives all errors ever by kind, and all others by level; ``unix_of`` turns the controller's clock.

        ``honour_s``: how long a container may be down before nobody seems to replace it.
        """
        self._snapshot = snapshot
        self._counted = counted
        self._stale = stale
        self._lag_s = lag_s
        self._unix_of = unix_of
        self._honour_s = honour_s

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not read a controller that has not begun."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the controller."""
        seen = self._snapshot()
        yield _states(seen)
        yield _gauge(
            "arbiter_state_since_timestamp_seconds", "When the state was entered.", self._unix_of(seen.container.since)
        )
        yield _gauge(
            "arbiter_not_honoured",
            "1 for a container that has been down so long that nobody seems to replace it.",
            float(seen.container.state is State.DOWN and seen.now - seen.container.since > self._honour_s),
        )
        yield _gauge("arbiter_age_seconds", "Age of the app's incarnation.", seen.now - seen.container.born)
        yield _gauge(
            "arbiter_lifetime_due_timestamp_seconds",
            "When the app is to be retired, unless it is busy then; 0: never.",
            0.0 if seen.retire_at is None else self._unix_of(seen.retire_at),
        )
        yield _gauge("arbiter_load", "How busy the app last said it is.", seen.load.value if seen.load else None)
        yield _gauge("arbiter_window_seconds", "Length of the window.", seen.evidence.window_s)
        yield _by("arbiter_window_errors", "Counted errors in the window.", "kind", seen.evidence.kinds)
        yield self._errors()
        yield _gauge("arbiter_weight", "Percent of its weight that the balancer is told.", seen.share)
        yield _gauge("arbiter_success_rate", "Part of the requests that goes well of late.", seen.success_rate)
        stale = CounterMetricFamily("arbiter_stale_reports", "Reports of an incarnation that has ended; not counted.")
        stale.add_metric([], self._stale())
        yield stale
        yield _gauge("arbiter_loop_lag_seconds", "How late the last tick was.", self._lag_s())
        if seen.checked_at is not None:
            yield _gauge(
                "arbiter_last_check_timestamp_seconds",
                "When the window was last checked.",
                self._unix_of(seen.checked_at),
            )

    def _errors(self) -> Metric:
        kinds, levels = self._counted()
        family = CounterMetricFamily("arbiter_errors", "Errors reported by the app.", labels=["level", "kind"])
        for kind, count in kinds.items():
            family.add_metric([Level.SERVER_ERROR, kind], count)
        for level, count in levels.items():
            family.add_metric([level, ""], count)
        return family


class DatagramReadings(Collector):
    """What is read from the datagram door when a scrape comes."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        """``counts``: packets, lines, and by reason what was lost or of no use."""
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """Nothing, as above."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the door."""
        counts = dict(self._counts())
        for name, text in (("packets", "Datagrams received."), ("lines", "Lines in them.")):
            family = CounterMetricFamily(f"arbiter_datagram_{name}", text)
            family.add_metric([], counts.pop(name))
            yield family
        lost = CounterMetricFamily("arbiter_datagram_dropped", "What was not counted, by why.", labels=["reason"])
        for reason, count in counts.items():
            lost.add_metric([reason], count)
        yield lost


def _states(seen: Snapshot) -> Metric:
    family = GaugeMetricFamily("arbiter_state", "1 for the state that holds, 0 for the others.", labels=["state"])
    for state in State:
        family.add_metric([state], float(state is seen.container.state))
    return family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """A gauge; without a sample if nothing is known."""
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, counts: Counts) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family
