"""What the controller shows of its container: a snapshot for readers, and a record of each step for observers."""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.core.app_reports import Load
from sidecar.core.explain.samples import CullEvidence
from sidecar.core.life.container import Container
from sidecar.core.life.events import Event
from sidecar.core.measure.usual import NO_BASELINE, Baseline
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Evidence, State

_IDLE: Final = Container(State.UP, 0.0, "")
_IDLE_STOPPING: Final = Container(State.STOPPING, 0.0, "")
"""What balancers and schedulers see of every container in shadow mode."""


class Snapshot(NamedTuple):
    """The state of the container at ``now``, on the clock of ``Container.since``.

    It is published each second; at each check only, while the container is up and nothing is counted.

    ``container`` is for people and for the fleet. What a balancer or a scheduler acts on comes from ``presented`` and
    ``share``: that is where shadow mode is decided.
    """

    now: float
    container: Container
    evidence: Evidence
    checked_at: float | None  # the last full check
    weight: int = 100  # percent of its load that the container deserves
    success_rate: float | None = None  # of its requests, from 0 to 1; None: no requests are known
    retire_at: float | None = None  # when its retirement is due, if ever
    load: Load | None = None  # the last that the app reported
    is_soft_drained: bool = False  # whether the weight is low because the container is suspect
    baseline: Baseline = NO_BASELINE  # the usual errors to compare with
    beat_error: str = ""  # why the last beat had no answer; without an answer a suspect claims nothing
    last_cull: CullEvidence | None = None  # the evidence of the last cull
    unix: float = 0.0  # ``now`` in Unix seconds
    enforce: bool = True  # False in shadow mode: weight and soft drain say what enforce mode would do

    def unix_of(self, at: float) -> float:
        """An instant on the clock of ``now`` in Unix seconds."""
        return self.unix - (self.now - at)

    @property
    def presented(self) -> Container:
        """The container as balancers and schedulers see it: in shadow mode one without errors.

        A sidecar that stops takes the app out of balance in every mode, because both are stopped together.
        """
        if self.enforce:
            return self.container
        return _IDLE_STOPPING if self.container.state is State.STOPPING else _IDLE

    @property
    def share(self) -> int:
        """Weight in percent for the balancer: 0 when the container is out of balance, always full in shadow mode."""
        if not self.presented.haproxy_up:
            return 0
        return self.weight if self.enforce else FULL

    @property
    def would_share(self) -> int:
        """Weight in percent that enforce mode would report: 0 for a container that would be down."""
        return self.weight if self.container.haproxy_up and not self.container.would_down else 0


class Record(NamedTuple):
    """One step: what has happened, and the container after it."""

    events: tuple[Event, ...]
    container: Container
    evidence: Evidence
    cull_evidence: CullEvidence | None = None  # if the container was culled
