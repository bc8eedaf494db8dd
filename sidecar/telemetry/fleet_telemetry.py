"""Telemetry of the fleet: metrics of the last beat, and a log line for every change that matters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core.explain import reasons
from sidecar.core.types import Fleet


class Line(NamedTuple):
    """A line for the log."""

    level: int
    text: str
    fields: dict[str, object]


def changes(before: Fleet | None, after: Fleet) -> Iterator[Line]:
    """Yield a line for each change since ``before``; without it, for each unusual value."""
    before = before or Fleet(alive=0, losses=after.losses)
    yield from _pauses(before, after)
    if after.duplicate is not before.duplicate:
        yield _duplicate(is_duplicate=after.duplicate)
    if after.policies > 1 and after.policies != before.policies:
        text = "sidecars of this service run with different policies, the strictest of each number holds"
        yield Line(logging.WARNING, text, {"policies": after.policies})
    if before.tells_process and not after.tells_process:
        yield Line(logging.WARNING, reasons.UNKNOWN_PROCESS, {})
    if after.losses > before.losses:
        fields: dict[str, object] = {"alive": after.alive, "suspect": after.suspect, "down": after.down}
        yield Line(logging.WARNING, "Redis lost its record of earlier culls", fields)
    if after.lost_hold is not None and after.lost_hold != before.lost_hold:
        yield Line(logging.ERROR, reasons.lost_hold(after.lost_hold), {"until": after.lost_hold.until})
    if after.hold != before.hold:
        text = f"held: {reasons.hold(after.hold)}" if after.hold else "no hold any more"
        yield Line(logging.WARNING, text, {"until": after.hold.until} if after.hold else {})


def _pauses(before: Fleet, after: Fleet) -> Iterator[Line]:
    """Yield a line for each pause that began or ended. The failures in a row distinguish two pauses of a cause."""
    known = {(trial.cause, trial.failures) for trial in before.trials if trial.paused_s > 0}
    for trial in after.trials:
        if trial.paused_s > 0 and (trial.cause, trial.failures) not in known:
            fields = {"cause": trial.cause, "paused_s": round(trial.paused_s), "failures": trial.failures}
            yield Line(logging.WARNING, f"culls for {trial.cause} are paused: the last one did not help", fields)
    for cause in before.paused:
        if cause not in after.paused:
            yield Line(logging.INFO, f"the pause of culls for {cause} is over", {"cause": cause})


def _duplicate(*, is_duplicate: bool) -> Line:
    if is_duplicate:
        text = "two containers run under this instance name: neither may be culled or retired until one is renamed"
        return Line(logging.WARNING, text, {})
    return Line(logging.INFO, "no other container runs under this instance name any more", {})


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
