"""The requests of a fleet, second by second: a balancer with weights, failures and overload.

Failures and overload are computed (rate times time), so that two policies differ only by their actions. The reported
errors are random (Poisson). Nothing is computed while nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from random import Random
from typing import Final

from fleet.app import App
from fleet.loop import FleetLoop

HEADROOM: Final = 1.25
"""A container can serve this multiple of its usual share of the requests."""


@dataclass(frozen=True)
class RequestLoad:
    """``per_s`` requests a second to each container while all serve; the part ``stray`` fails in a healthy one.

    ``capacity``: requests a second that a container can serve; 0: ``HEADROOM`` times the usual.
    """

    per_s: float = 10.0
    stray: float = 0.0
    capacity: float = 0.0

    @property
    def most_per_s(self) -> float:
        """Requests a second that a container can serve."""
        return self.capacity or HEADROOM * self.per_s


_MANY: Final = 30
"""Above this mean a normal distribution is close enough to Poisson's."""

LOAD: Final = RequestLoad()


@dataclass
class FailedRequests:
    """Failed requests so far; ``avoidable`` is a part of ``failed``, and ``too_many`` a part of ``avoidable``.

    *Avoidable*: requests that failed outside of an outage, which another container could have answered, or this one
    after a restart; not the stray errors of healthy containers. *Too many*: requests over the capacity of a container.
    ``most_load``: the most requests a second to one container.
    """

    failed: float = 0.0
    avoidable: float = 0.0
    too_many: float = 0.0
    most_load: float = 0.0


@dataclass
class _Stream:
    """The errors of one container: on average ``mean`` a second, of one kind."""

    app: App
    mean: float
    kind: str
    served: float

    def __post_init__(self) -> None:
        self.none = exp(-self.mean)


class Traffic:
    """All requests of a fleet, spread by weight. ``report`` gets errors and successes of a container once a second."""

    def __init__(
        self,
        load: RequestLoad,
        loop: FleetLoop,
        apps: Sequence[App],
        rng: Random,
        report: Callable[[App, int, str, int], None],
        *,
        reports_results: bool = False,
    ) -> None:
        self.failed = FailedRequests()
        self.load = load
        self.outage = 0.0
        self.outage_kind = ""
        self._loop = loop
        self._containers = apps
        self._rng = rng
        self._report = report
        self._reports_results = reports_results
        self._total_per_s = load.per_s * len(apps)
        self._is_stale = True
        self.is_running = False
        self._streams: list[_Stream] = []
        self._failed = self._avoidable = self._too_many = 0.0
        self.changed()

    def changed(self) -> None:
        """Weights, containers or failure rates have changed."""
        self._is_stale = True
        if not self.is_running:
            self.is_running = True
            self._loop.plan(int(self._loop.now) + 1.0, self._tick)

    def _tick(self) -> None:
        if self._is_stale:
            self._spread()
        counted = self.failed
        counted.failed += self._failed
        counted.avoidable += self._avoidable
        counted.too_many += self._too_many
        for one in self._streams:
            errors = drawn(self._rng, one.mean, one.none) if one.mean else 0
            if errors or self._reports_results:
                self._report(one.app, errors, one.kind, max(0, round(one.served) - errors))
        self.is_running = bool(self._streams) or self._too_many > 0
        if self.is_running:
            self._loop.plan(self._loop.now + 1.0, self._tick)

    def _per_percent(self) -> float:
        percent = sum(one.weight for one in self._containers if one.serving)
        return self._total_per_s / percent if percent else 0.0

    def _spread(self) -> None:
        self._is_stale = False
        per_percent, outage, stray = self._per_percent(), self.outage, self.load.stray
        most = self.load.most_per_s
        failed = avoidable = too_many = 0.0
        self._streams = []
        for one in self._containers:
            if not one.serving:
                continue
            sent = per_percent * one.weight
            served, part = min(sent, most), one.failing(outage)
            too_many += sent - served
            avoidable += served * part
            failed += served * max(part, stray)
            self.failed.most_load = max(self.failed.most_load, sent)
            mean = 0.0 if one.mute else served * max(part, stray)
            if mean or self._reports_results:
                kind = one.kind(outage, self.outage_kind) if part else "stray"
                self._streams.append(_Stream(one, mean, kind, served))
        if not per_percent:
            too_many = self._total_per_s
        self._failed, self._too_many = failed + too_many, 0.0 if outage else too_many
        self._avoidable = 0.0 if outage else avoidable + too_many


def drawn(rng: Random, mean: float, none: float | None = None) -> int:
    """A random number of events with this mean (Poisson); ``none``: the probability of 0, if it is known."""
    if mean > _MANY:
        return max(0, round(rng.gauss(mean, sqrt(mean))))
    limit, number, product = exp(-mean) if none is None else none, 0, rng.random()
    while product > limit:
        number += 1
        product *= rng.random()
    return number
