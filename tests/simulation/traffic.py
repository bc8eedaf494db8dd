"""The requests of a fleet: a balancer that goes by weight, the failures expected of it, and errors as they fall.

Failures are reckoned, not drawn: rate times time, so two ways to run the same day differ by what they do alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from random import Random
from typing import Final

from simulation.container import Container

REQUESTS_PER_S: Final = 20
"""A container's, while all of them serve."""

STRAY: Final = 2e-5
"""Part of the requests that fails in a healthy container."""


class Ledger:
    """Requests that failed so far, and those of them that failed because a container was stuck.

    *Avoidable*: the container would have answered it after a restart. What fails while everybody's dependency is down,
    or because of a bad release, is not.

    ``most_load`` is the most requests a second that were sent to one container, for however short a time.
    """

    def __init__(self, containers: Sequence[Container]) -> None:
        self.failed = 0.0
        self.avoidable = 0.0
        self.most_load = 0.0
        self._containers = containers
        self._since = 0.0
        self._percent = 0.0

    @property
    def load(self) -> float:
        """Requests a second to each container in the balance, on average."""
        return self._all / max(1, sum(one.serving for one in self._containers))

    def load_of(self, container: Container) -> float:
        """Requests a second to this one, if it is in the balance."""
        if not self._percent:
            self._percent = self._all / max(1, sum(one.weight for one in self._containers if one.serving))
        return self._percent * container.weight

    def close(self, now: float, outage: float) -> None:
        """Enter what has failed until now; to be called before anything changes."""
        elapsed = now - self._since
        if elapsed > 0:
            self._enter(elapsed, outage)
            self._since = now
        self._percent = 0.0

    @property
    def _all(self) -> float:
        return REQUESTS_PER_S * len(self._containers)

    def _enter(self, elapsed: float, outage: float) -> None:
        failed = avoidable = most_load = 0.0
        for one in self._containers:
            if one.serving:
                load = self.load_of(one)
                failed += load * max(STRAY, one.failing(outage))
                avoidable += load * one.avoidable(outage)
                most_load = max(most_load, load)
        self.failed += elapsed * failed
        self.avoidable += elapsed * avoidable
        self.most_load = max(self.most_load, most_load)


def poisson(rng: Random, mean: float) -> int:
    """So many events where ``mean`` are expected."""
    if mean > 30:
        return max(0, round(rng.gauss(mean, sqrt(mean))))
    limit, drawn, product = exp(-mean), 0, rng.random()
    while product > limit:
        drawn += 1
        product *= rng.random()
    return drawn
