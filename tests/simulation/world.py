"""The fleet: places with containers and their sidecars, a balancer, an orchestrator that replaces what is down.

Chance comes from one seed, by several generators, so that whom trouble meets does not depend on how the fleet is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from sidecar.core.fleet import FleetBucket
from sidecar.core.words import Granted, State
from simulation.container import Container
from simulation.network import Network
from simulation.requests import Requests
from simulation.rules import Rules
from simulation.sidecar import Sidecar
from simulation.timeline import Timeline
from simulation.traffic import Ledger

RESTART_S: Final = (25.0, 40.0)
MOVED: Final = 0.2
"""Part of the replacements that come under another name, as when a container is put on another machine."""
GOODBYE_S: Final = 1.0

DEPLOY_S: Final = 10.0


@dataclass(frozen=True)
class Cull:
    """A container taken down: ``stuck_by`` what (nothing: a restart was of no use), so long after its limit."""

    at_s: float
    place: int
    stuck_by: str
    after_s: float
    canary: bool
    replayed: bool


class World:
    """A fleet of ``size`` under ``rules``. ``lost`` of a thousand replies to claims do not arrive."""

    def __init__(self, rules: Rules, *, size: int, seed: int, lost: int = 0) -> None:
        self.rules = rules
        self.timeline = Timeline()
        self.bucket = FleetBucket()
        self.culls: list[Cull] = []
        self.recovered: dict[str, float] = {}
        self.most_out = 0
        self.containers = [Container(place, f"c{place:03d}") for place in range(size)]
        self._seed = seed
        self._restarts = Random(f"{seed}/restarts")
        self.network = Network(self.timeline, self.bucket, Random(f"{seed}/network"), lost)
        self._sidecars: dict[int, Sidecar] = {}
        self._requests = Requests(rules, self.timeline, self.containers, self._sidecars, seed)
        for container in self.containers:
            self._attend(container)
            self._requests.begin(container, slowly=False)
        if rules.watches:
            self._requests.stray()

    def run(self, until: float) -> None:
        """Let the time pass."""
        self.timeline.run(until)
        self._requests.enter()

    @property
    def ledger(self) -> Ledger:
        """What has failed so far."""
        return self._requests.ledger

    def places(self, trouble: str, count: int) -> Sequence[int]:
        """Whom a trouble of this name meets; the same however the fleet is run."""
        return Random(f"{self._seed}/{trouble}").sample(range(len(self.containers)), count)

    # -- trouble --------------------------------------------------------------------------------------------------

    def stick(self, place: int, part: float, kind: str, by: str) -> None:
        """Let ``part`` of a container's requests fail until it is restarted; if it is down, the next one's."""
        self._requests.enter()
        size = len(self.containers)
        order = (self.containers[(place + step) % size] for step in range(size))
        container = next((one for one in order if one.serving and not one.stuck), None)
        if container is None:
            return
        container.stuck, container.stuck_kind, container.stuck_by = part, kind, by
        self.recovered.pop(by, None)
        self._requests.expose(container)

    def flaw(self, place: int, part: float, kind: str) -> None:
        """Let ``part`` of the requests in this place fail, through all restarts."""
        self._requests.enter()
        container = self.containers[place]
        container.flaw, container.flaw_kind = part, kind
        self._requests.expose(container)

    def fail_everybody(self, part: float, kind: str) -> None:
        """Let ``part`` of everybody's requests fail; 0 ends that."""
        self._requests.enter()
        self._requests.outage, self._requests.outage_kind = part, kind
        for container in self.containers:
            self._requests.expose(container)

    def deploy(self, place: int, flaw: float, kind: str) -> None:
        """Replace a container by one of another release, under another name."""
        container = self.containers[place]
        self._retire(container)
        container.flaw, container.flaw_kind = flaw, kind
        self.timeline.at(self.timeline.now + DEPLOY_S, partial(self._renew, container, container.life, moved=True))

    # -- the orchestrator -----------------------------------------------------------------------------------------

    def _retire(self, container: Container) -> None:
        self._requests.enter()
        container.serving = False
        container.life += 1
        self._cure(container)
        sidecar = self._sidecars.pop(container.place, None)
        if sidecar:
            sidecar.stopped()

    def _cure(self, container: Container) -> None:
        by, container.stuck, container.stuck_by = container.stuck_by, 0.0, ""
        if by and all(one.stuck_by != by for one in self.containers):
            self.recovered[by] = self.timeline.now

    def _renew(self, container: Container, life: int, *, moved: bool) -> None:
        """Put another life in the place, unless a deployment has done that meanwhile."""
        if life != container.life:
            return
        self._requests.enter()
        container.life += 1
        if moved:
            self._move(container)
        container.serving = True
        if container.place in self._sidecars:
            self._sidecars[container.place].restarted(container.app_start)
        else:
            self._attend(container)
        self._requests.begin(container, slowly=True)
        self._requests.expose(container)

    def _leave(self, container: Container, life: int) -> None:
        """Stop the sidecar of a container that will be put elsewhere."""
        if life == container.life and (sidecar := self._sidecars.pop(container.place, None)):
            sidecar.stopped()

    def _move(self, container: Container) -> None:
        self._leave(container, container.life)
        container.instance = f"{container.instance.partition('-')[0]}-{container.life}"

    def _attend(self, container: Container) -> None:
        if self.rules.watches:
            self._sidecars[container.place] = Sidecar(
                container.instance,
                container.app_start,
                self.rules,
                self.network,
                partial(self._moved, container),
            )

    # -- what sidecars do -----------------------------------------------------------------------------------------

    def _moved(self, container: Container, sidecar: Sidecar, before: State) -> None:
        """Follow a change of state: out of the balance, down, or nothing to do with either."""
        now, standing = self.timeline.now, sidecar.standing
        if container.serving and standing.state in (State.DRAINING, State.DOWN):
            self._requests.enter()
            container.serving = False
            self._note(container, sidecar)
        if standing.state is State.DOWN and before is not State.DOWN:
            moved = self._restarts.random() < MOVED
            back_at = now + self._restarts.uniform(*RESTART_S)
            self._cure(container)
            if moved:
                self.timeline.at(now + GOODBYE_S, partial(self._leave, container, container.life))
            self.timeline.at(back_at, partial(self._renew, container, container.life, moved=moved))

    def _note(self, container: Container, sidecar: Sidecar) -> None:
        answer, now = sidecar.standing.answer, self.timeline.now
        self.most_out = max(self.most_out, sum(not one.serving for one in self.containers))
        after_s = now - (sidecar.crossed_at if sidecar.crossed_at is not None else now)
        if isinstance(answer, Granted):
            cull = Cull(now, container.place, container.stuck_by, after_s, answer.canary, answer.replayed)
            self.culls.append(cull)
