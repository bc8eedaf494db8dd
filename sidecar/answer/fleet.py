"""What an engineer is told of the fleet: metrics of its last beat, and a line for every change that matters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.core import sentences
from sidecar.core.words import Brake, Fleet


class Line(NamedTuple):
    """A line for the log."""

    level: int
    text: str
    fields: dict[str, object]


def changes(before: Fleet | None, after: Fleet) -> Iterator[Line]:
    """Tell what is new since ``before``; at first, what is out of the ordinary."""
    before = before or Fleet(alive=0, losses=after.losses)
    fields: dict[str, object] = {"alive": after.alive, "wanting": after.wanting, "down": after.down}
    if after.brake is not before.brake:
        yield Line(_loudness(after.brake), f"brake {after.brake}", {**fields, "cause": after.cause})
    if after.policies > 1 and after.policies != before.policies:
        text = "sidecars of this service run with different policies, the strictest of each number holds"
        yield Line(logging.WARNING, text, {"policies": after.policies})
    if after.losses > before.losses:
        yield Line(logging.WARNING, "Redis lost the memory of former culls", fields)
    if after.useless != before.useless:
        text = "kinds that culls do not help with" if after.useless else "culls may help with every kind again"
        yield Line(logging.WARNING, text, {"kinds": ", ".join(after.useless)})
    if after.away != before.away:
        level = logging.WARNING if after.away else logging.INFO
        text = "Redis servers are away, and their share of the budget" if after.away else "all Redis servers are back"
        yield Line(level, text, {"away": ", ".join(after.away)} if after.away else {})
    if after.hold != before.hold:
        text = f"held: {sentences.hold(after.hold)}" if after.hold else "no hold any more"
        yield Line(logging.WARNING, text, {"until": after.hold.until} if after.hold else {})


def _loudness(brake: Brake) -> int:
    return {Brake.CLOSED: logging.ERROR, Brake.ON: logging.WARNING}.get(brake, logging.INFO)


class FleetReadings(Collector):
    """What is read from the last answer to a beat when a scrape comes; nothing while that is unknown or stale."""

    def __init__(self, fleet: Callable[[], Fleet | None]) -> None:
        self._fleet = fleet

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the fleet."""
        fleet = self._fleet()
        if fleet is None:
            return
        yield _gauge("arbiter_fleet_alive", "Containers of the fleet that serve or start.", fleet.alive)
        yield _gauge("arbiter_fleet_wanting", "Containers that are excessive.", fleet.wanting)
        yield _gauge("arbiter_fleet_down", "Containers that were culled and are not replaced yet.", fleet.down)
        yield _gauge("arbiter_fleet_retiring", "Leases of retirements in use.", fleet.retiring)
        yield _gauge("arbiter_fleet_policies", "Different policies in the fleet; 1 is as it should be.", fleet.policies)
        yield _gauge("arbiter_redis_servers_away", "Redis servers that did not answer the last beat.", len(fleet.away))
        brake = GaugeMetricFamily("arbiter_brake", "1 for where the brake stands.", labels=["phase"])
        for phase in Brake:
            brake.add_metric([phase], float(phase is fleet.brake))
        yield brake
        cause = GaugeMetricFamily(
            "arbiter_fleet_same_cause", "1 for the kind of error that most of three or more share.", labels=["kind"]
        )
        if fleet.cause:
            cause.add_metric([fleet.cause], 1.0)
        yield cause
        yield _gauge(
            "arbiter_hold_until_timestamp_seconds",
            "When the hold on this container ends; 0 without one.",
            fleet.hold.until if fleet.hold else 0.0,
        )
        needed = GaugeMetricFamily("arbiter_engineer_needed", "1 for what a person has to look at.", labels=["reason"])
        needed.add_metric(["brake"], float(fleet.brake is Brake.CLOSED))
        needed.add_metric(["useless"], float(bool(fleet.useless)))
        yield needed
        yield _judged(fleet)
        losses = CounterMetricFamily("arbiter_memory_losses", "How often the bucket lost its memory.")
        losses.add_metric([], fleet.losses)
        yield losses


def _judged(fleet: Fleet) -> Metric:
    """Culls by outcome and kind. An outcome that there was none of has a line too: or its first would not be seen."""
    judged = CounterMetricFamily(
        "arbiter_fleet_culls",
        "Culls of the whole fleet by what became of them, and the kind of error.",
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


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
