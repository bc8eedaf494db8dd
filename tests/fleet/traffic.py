"""The containers and their requests, second by second: a balancer with weights, failures and overload.

Failures and overload are computed (rate times time), so that two rules differ only by what they do. The reported errors
are random (Poisson). Nothing is computed while nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from random import Random
from typing import Final

from fleet.network import FleetLoop


@dataclass
class App:
    """The container in one place of the fleet, through all its incarnations."""

    place: int
    instance: str
    life: int = 0
    """The number of its incarnation, and the second in which it began:"""

    born: float = 0.0
    serving: bool = True
    weight: float = 100
    """Percent at the balancer."""

    stuck: float = 0.0
    """This part of the requests fails until a restart, with errors of this kind, because of this incident:"""

    stuck_kind: str = ""
    stuck_by: str = ""

    flaw: float = 0.0
    """This part fails before and after restarts, because of the release, the neighbours or a dependency."""

    flaw_kind: str = ""
    is_retired: bool = False
    deaf: bool = False
    """Whether the scheduler does not restart it."""

    @property
    def app_start(self) -> str:
        """The id of this incarnation."""
        return f"{self.instance}.{self.life}"

    def failing(self, everywhere: float) -> float:
        """The part of its requests that fails while the part ``everywhere`` fails in all containers."""
        return max(self.stuck, self.flaw, everywhere)

    def kind(self, everywhere: float, kind: str) -> str:
        """The most frequent kind of its errors, while those of an outage are of ``kind``."""
        if self.stuck >= max(self.flaw, everywhere):
            return self.stuck_kind
        return self.flaw_kind if self.flaw >= everywhere else kind


HEADROOM: Final = 1.25
"""A container can serve this multiple of its usual share of the requests."""

_MANY: Final = 30
"""Above this mean a normal distribution is close enough to Poisson's."""


@dataclass(frozen=True)
class RequestLoad:
    """``per_s`` requests a second to each container while all serve; the part ``stray`` fails in a healthy one."""

    per_s: float = 10.0
    stray: float = 0.0


LOAD: Final = RequestLoad()


@dataclass
class FailedRequests:
    """Failed requests so far. ``avoidable`` is a part of ``failed``, and ``too_many`` a part of ``avoidable``.

    *Avoidable*: requests that failed outside of an outage, which another container could have answered, or this one
    after a restart; not the stray errors of healthy containers. *Too many*: requests over the capacity of a container.
    """

    failed: float = 0.0
    avoidable: float = 0.0
    too_many: float = 0.0


@dataclass
class _Stream:
    """The requests that one container serves: on average ``mean`` errors a second, of one kind."""

    app: App
    mean: float
    kind: str
    served: float


class Traffic:
    """All requests of a fleet, spread by weight.

    ``report`` gets the errors of a container, their kind, and the successes, once a second: while errors may be, or
    always with ``reports_results``.
    """

    def __init__(
        self,
        load: RequestLoad,
        loop: FleetLoop,
        apps: Sequence[App],
        *,
        rng: Random,
        failed: FailedRequests,
        report: Callable[[App, int, str, int], None],
        reports_results: bool,
    ) -> None:
        self.outage = 0.0
        self.outage_kind = ""
        self._load = load
        self._loop = loop
        self._apps = apps
        self._rng = rng
        self._report = report
        self._reports_results = reports_results
        self._total_per_s = load.per_s * len(apps)
        self._is_stale = True
        self._is_running = False
        self._streams: list[_Stream] = []
        self._failed = failed
        self._a_second = FailedRequests()
        self.changed()

    def changed(self) -> None:
        """Weights, containers or failure rates have changed."""
        self._is_stale = True
        if not self._is_running:
            self._is_running = True
            self._loop.plan(int(self._loop.now) + 1.0, self._tick)

    def _tick(self) -> None:
        if self._is_stale:
            self._spread()
        failed, a_second = self._failed, self._a_second
        failed.failed += a_second.failed
        failed.avoidable += a_second.avoidable
        failed.too_many += a_second.too_many
        for stream in self._streams:
            errors = _drawn(self._rng, stream.mean) if stream.mean else 0
            if errors or self._reports_results:
                self._report(stream.app, errors, stream.kind, max(0, round(stream.served) - errors))
        self._is_running = bool(self._streams) or a_second.too_many > 0
        if self._is_running:
            self._loop.plan(self._loop.now + 1.0, self._tick)

    def _spread(self) -> None:
        """Send the requests to the containers by their weights, and count what fails a second."""
        self._is_stale = False
        self._streams = []
        percent = sum(app.weight for app in self._apps if app.serving)
        most, stray = HEADROOM * self._load.per_s, self._load.stray
        failed = avoidable = too_many = 0.0
        for app in self._apps:
            if not app.serving or not percent:
                continue
            sent = self._total_per_s / percent * app.weight
            served, part = min(sent, most), app.failing(self.outage)
            too_many += sent - served
            avoidable += served * part
            failed += served * max(part, stray)
            mean = served * max(part, stray)
            if mean or self._reports_results:
                kind = app.kind(self.outage, self.outage_kind) if part else "stray"
                self._streams.append(_Stream(app, mean, kind, served))
        if not percent:
            too_many = self._total_per_s
        failed += too_many
        is_avoidable = not self.outage
        self._a_second = FailedRequests(failed, is_avoidable * (avoidable + too_many), is_avoidable * too_many)


def _drawn(rng: Random, mean: float) -> int:
    """A random number of events with this mean (Poisson)."""
    if mean > _MANY:
        return max(0, round(rng.gauss(mean, sqrt(mean))))
    limit, number, product = exp(-mean), 0, rng.random()
    while product > limit:
        number += 1
        product *= rng.random()
    return number
