"""The fleet: places with containers and their sidecars, a balancer, an orchestrator that replaces what is down.

Chance comes from one seed, by several generators, so that whom trouble meets does not depend on how the fleet is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from sidecar.core.fleet import FleetBucket
from sidecar.core.standing import Standing
from sidecar.core.words import State
from simulation.container import Container
from simulation.departures import Departures
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

_OUT: Final = (State.DRAINING, State.DOWN)


class World:
    """A fleet of ``size`` under ``rules``, ``aged_s`` old. ``lost`` of a thousand replies do not arrive."""

    def __init__(self, rules: Rules, *, size: int, seed: int, lost: int = 0, aged_s: float = 0.0) -> None:
        self.rules = rules
        self.timeline = Timeline()
        self.bucket = FleetBucket()
        self.recovered: dict[str, float] = {}
        self.containers = [Container(place, f"c{place:03d}", born=-aged_s) for place in range(size)]
        self.departures = Departures(self.containers)
        self._seed = seed
        self._restarts = Random(f"{seed}/restarts")
        chances = (Random(f"{seed}/network"), Random(f"{seed}/lots"))
        self.network = Network(self.timeline, self.bucket, *chances, lost)
        self._sidecars: dict[int, Sidecar] = {}
        self._killed: set[int] = set()
        self._leaving: set[int] = set()
        self._life_begins: list[Callable[[Container], None]] = []
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

    def stick(self, place: int, part: float, kind: str, by: str, *, mute: bool = False) -> None:
        """Let ``part`` of a container's requests fail until it is restarted; if it is down, the next one's."""
        size = len(self.containers)
        order = (self.containers[(place + step) % size] for step in range(size))
        container = next((one for one in order if one.serving and not one.stuck), None)
        if container is not None:
            container.mute = mute
            self.worsen(container, container.life, part, kind, by)

    def worsen(self, container: Container, life: int, part: float, kind: str, by: str) -> None:
        """Let ``part`` of the requests to this life fail, from now to its end."""
        if life != container.life:
            return
        self._requests.enter()
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
        self._remove(container)
        container.flaw, container.flaw_kind = flaw, kind
        self.timeline.at(self.timeline.now + DEPLOY_S, partial(self._renew, container, container.life, moved=True))

    def at_every_life(self, begins: Callable[[Container], None]) -> None:
        """Have this called with every container now, and with each that begins another life."""
        self._life_begins.append(begins)
        for container in self.containers:
            begins(container)

    def watched(self, states: Sequence[State]) -> list[int]:
        """The places whose sidecar is in one of these states."""
        return [place for place, sidecar in sorted(self._sidecars.items()) if sidecar.standing.state in states]

    def kill(self, place: int, for_s: float) -> None:
        """Kill a sidecar; so much later there is another one, which knows what this one had written down."""
        sidecar = self._sidecars.pop(place, None)
        if sidecar is not None:
            sidecar.killed()
            self._killed.add(place)
            self.timeline.at(self.timeline.now + for_s, partial(self._revive, self.containers[place], sidecar))

    def _revive(self, container: Container, killed: Sidecar) -> None:
        if container.instance != killed.instance:
            return
        self._attend(container, killed.remembered)
        if self._sidecars[container.place].standing.state is State.DOWN:
            self._put_down(container)
        if killed.remembered and killed.remembered.app_start != container.app_start:
            sidecar = self._sidecars[container.place]
            self.timeline.at(self.timeline.now + GOODBYE_S, partial(sidecar.restarted, container.app_start))

    # -- the orchestrator -----------------------------------------------------------------------------------------

    def _remove(self, container: Container) -> None:
        self._requests.enter()
        container.serving = False
        container.life += 1
        self._cure(container)
        sidecar = self._sidecars.pop(container.place, None)
        if sidecar:
            sidecar.stopped()

    def _cure(self, container: Container) -> None:
        by, container.stuck, container.stuck_by, container.mute = container.stuck_by, 0.0, "", False
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
        container.serving, container.born = True, self.timeline.now
        self.departures.serves(container)
        self._leaving.discard(container.place)
        if container.place in self._sidecars:
            self._sidecars[container.place].restarted(container.app_start)
        elif moved or container.place not in self._killed:
            self._attend(container)
        for begins in self._life_begins:
            begins(container)
        self._requests.begin(container, slowly=True)
        self._requests.expose(container)

    def _leave(self, container: Container, life: int) -> None:
        """Stop the sidecar of a container that will be put elsewhere."""
        if life == container.life and (sidecar := self._sidecars.pop(container.place, None)):
            sidecar.stopped()

    def _move(self, container: Container) -> None:
        self._leave(container, container.life)
        container.instance = f"{container.instance.partition('-')[0]}-{container.life}"

    def _attend(self, container: Container, remembered: Standing | None = None) -> None:
        self._killed.discard(container.place)
        if self.rules.watches:
            follow = partial(self._moved, container)
            self._sidecars[container.place] = Sidecar(container, self.rules, self.network, follow, remembered)

    # -- what sidecars do -----------------------------------------------------------------------------------------

    def _moved(self, container: Container, sidecar: Sidecar, before: State) -> None:
        """Follow a change of state: out of the balance, down, back, or nothing to do with any of it."""
        now, state = self.timeline.now, sidecar.standing.state
        if container.serving and state in _OUT:
            self._requests.enter()
            container.serving = False
            self.departures.leaves(container, sidecar, now)
        if state is State.DOWN and before is not State.DOWN:
            self._put_down(container)
        if state is State.UP and before in _OUT:
            self._requests.enter()
            container.serving = True
            self.departures.returned(container, now)
            self._requests.expose(container)

    def _put_down(self, container: Container) -> None:
        """Restart what is down, there or elsewhere, unless that is under way."""
        if container.deaf or container.serving or container.place in self._leaving:
            return
        self._leaving.add(container.place)
        now, moved = self.timeline.now, self._restarts.random() < MOVED
        back_at = now + self._restarts.uniform(*RESTART_S)
        self._cure(container)
        if moved:
            self.timeline.at(now + GOODBYE_S, partial(self._leave, container, container.life))
        self.timeline.at(back_at, partial(self._renew, container, container.life, moved=moved))
