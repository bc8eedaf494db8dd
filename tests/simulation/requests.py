"""What comes of the requests: errors for the sidecars, results for the scales, and the ledger of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from sidecar.core.success import BUCKET_S
from sidecar.core.weight import FULL
from sidecar.core.words import State
from simulation.container import Container
from simulation.rules import Rules
from simulation.server import POLL_S, Server
from simulation.sidecar import Sidecar
from simulation.timeline import Timeline
from simulation.traffic import STRAY, Ledger, poisson

CLOSE_LOOK_S: Final = 1.0
WIDE_LOOK_S: Final = 10.0


class Requests:
    """All requests of a fleet; they are drawn only where some of them fail."""

    def __init__(
        self,
        rules: Rules,
        timeline: Timeline,
        containers: Sequence[Container],
        sidecars: Mapping[int, Sidecar],
        seed: int,
    ) -> None:
        self.ledger = Ledger(containers)
        self.outage = 0.0
        self.outage_kind = ""
        self._rules = rules
        self._timeline = timeline
        self._containers = containers
        self._sidecars = sidecars
        self._servers: dict[int, Server] = {}
        self._looks: dict[int, float] = {}
        self._errors = Random(f"{seed}/errors")
        self._successes = Random(f"{seed}/successes")

    def enter(self) -> None:
        """Enter in the ledger what has failed until now; to be called before anything changes."""
        self.ledger.close(self._timeline.now, self.outage)

    def begin(self, container: Container, *, slowly: bool) -> None:
        """Send requests to another life of a container. Its weight is full until something is known of it."""
        if not self._rules.weighs:
            return
        container.weight = FULL
        server = Server(self._timeline, container, self._successes.uniform(0, POLL_S), self.enter)
        self._servers[container.place] = server
        if slowly:
            server.starts_slowly()

    def expose(self, container: Container) -> None:
        """Let sidecar and scale feel what goes wrong from now on."""
        server, is_watched = self._servers.get(container.place), container.place in self._looks
        if is_watched and server is None:
            return  # its next look will see
        if not is_watched and not (container.failing(self.outage) and (server or self._rules.watches)):
            return
        if server is not None:
            server.scale.disturbed(self._timeline.now, self.ledger.load_of(container))
        self._plan_look(container, self._errors.random() * CLOSE_LOOK_S)

    def stray(self) -> None:
        """Let a single request fail somewhere, now and then; too rare to weigh anything."""
        container = self._errors.choice(self._containers)
        sidecar = self._sidecars.get(container.place)
        if container.serving and sidecar:
            sidecar.receive(1, "stray")
        rate = STRAY * self.ledger.load * len(self._containers)
        self._timeline.at(self._timeline.now + self._errors.expovariate(rate), self.stray)

    def _plan_look(self, container: Container, after_s: float) -> None:
        when = self._timeline.now + after_s
        self._looks[container.place] = when
        self._timeline.at(when, partial(self._look, container, after_s))

    def _look(self, container: Container, elapsed: float) -> None:
        """Draw what came of the requests of the last seconds, for as long as that may tell anything."""
        if self._looks.get(container.place) != self._timeline.now:
            return  # something has changed since, and another look was planned
        failing, server = container.failing(self.outage), self._servers.get(container.place)
        if not container.serving or not (failing or (server and not server.scale.is_full)):
            del self._looks[container.place]
            return
        requests = self.ledger.load_of(container) * elapsed
        errors = poisson(self._errors, requests * failing) if failing else 0
        sidecar = self._sidecars.get(container.place)
        if sidecar and errors and not container.mute:
            sidecar.receive(errors, container.kind(self.outage, self.outage_kind))
        if server:
            server.scale.count(self._timeline.now, poisson(self._successes, requests * (1 - failing)), errors)
            server.weighed()
        self._plan_look(container, self._wait_s(sidecar, server))

    def _wait_s(self, sidecar: Sidecar | None, server: Server | None) -> float:
        """Every second while results may tell, less often once all is said."""
        is_said = sidecar is None or sidecar.standing.state is State.SUSPECT
        if server is not None:
            return BUCKET_S if is_said and server.scale.is_steady(self._timeline.now) else CLOSE_LOOK_S
        return WIDE_LOOK_S if is_said else CLOSE_LOOK_S
