"""Restarts by Nomad's ``check_restart``, to compare with: each container by its own health checks, without a fleet.

The model is simple. Each container has one check, which fails as often as its requests do. ``limit`` failed checks in a
row restart it; after a restart the first ``grace_s`` seconds do not count. There is no budget, and nothing asks whether
a restart helps. Nomad's limit of restarts in a job (``restart``) is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from sidecar.simulation.simulated_app import SimulatedApp
from sidecar.simulation.traffic import Traffic
from sidecar.simulation.virtual_loop import VirtualLoop


@dataclass(frozen=True)
class CheckRestart:
    """The numbers of Nomad's stanza: its usual interval, and the limit and grace of its documentation's example."""

    limit: int = 3
    interval_s: float = 10.0
    grace_s: float = 90.0


@dataclass
class HealthChecks:
    """The checks of all containers of a fleet, all at the same time. ``restart``: with container, cause and reason."""

    numbers: CheckRestart
    loop: VirtualLoop
    apps: Sequence[SimulatedApp]
    traffic: Traffic
    rng: Random
    restart: Callable[[SimulatedApp, str, str], None]
    _failed: Counter[int] = field(default_factory=Counter)

    def begin(self) -> None:
        """Check from now on."""
        self.loop.plan(self.loop.now + self.numbers.interval_s, self._check)

    def _check(self) -> None:
        self.begin()
        for app in self.apps:
            is_new = app.life and self.loop.now - app.born < self.numbers.grace_s
            if app.serving and not is_new:
                self._check_one(app)

    def _check_one(self, app: SimulatedApp) -> None:
        everywhere, numbers = self.traffic.outage, self.numbers
        part = max(app.failing(everywhere), self.traffic.load.stray)
        if not part or self.rng.random() >= part:
            self._failed.pop(app.place, None)
            return
        self._failed[app.place] += 1
        if self._failed[app.place] >= numbers.limit:
            del self._failed[app.place]
            kind = app.kind(everywhere, self.traffic.outage_kind) if app.failing(everywhere) else "stray"
            self.restart(app, kind, f"{numbers.limit} health checks in a row failed")
