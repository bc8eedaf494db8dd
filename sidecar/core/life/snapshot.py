"""What the controller shows: a snapshot for readers, and one frozen record of each step for observers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.core.explain.samples import CullEvidence
from sidecar.core.life.container import Container
from sidecar.core.life.events import AppRestarted, ClaimAnswered, Event, Judged, LeaseAnswered
from sidecar.core.measure.outlier import NO_BASELINE, Baseline
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Evidence, Load, State

_IDLE: Final = Container(State.UP, 0.0, "")
_IDLE_STOPPING: Final = Container(State.STOPPING, 0.0, "")
"""What balancers and schedulers see of every container in shadow mode."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the container at ``now``, on the clock of ``Container.since``.

    It is published each second; at each check only, while the container is up and nothing is counted. ``unix`` is
    ``now`` in Unix seconds. ``checked_at``: the last full check. ``weight``: percent of its load that the container
    deserves. ``success_rate`` of its requests, from 0 to 1, None if no requests are known. ``retire_at``: when its
    retirement is due, if ever. ``load``: the last that the app reported. ``is_soft_drained``: the weight is low because
    the container is suspect. ``baseline``: the usual errors to compare with. ``beat_error``: why the last beat had no
    answer, empty if it had one; without an answer a suspect claims nothing. ``last_cull``: the evidence of the last
    cull. ``enforce``: False in shadow mode; then ``weight`` and ``is_soft_drained`` say what enforce mode would do.

    ``container`` is for people and for the fleet. What a balancer or a scheduler acts on comes from ``presented`` and
    ``share``: that is where shadow mode is decided.
    """

    now: float
    container: Container
    evidence: Evidence
    checked_at: float | None
    weight: int = 100
    success_rate: float | None = None
    retire_at: float | None = None
    load: Load | None = None
    is_soft_drained: bool = False
    baseline: Baseline = NO_BASELINE
    beat_error: str = ""
    last_cull: CullEvidence | None = None
    unix: float = 0.0
    enforce: bool = True

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


@dataclass(frozen=True, slots=True)
class Record:
    """One step: an event, and the container before and after it. ``cull_evidence`` is there if the step is a cull."""

    event: Event
    before: Container
    after: Container
    evidence: Evidence
    cull_evidence: CullEvidence | None = None

    @property
    def claim_s(self) -> float | None:
        """Seconds that the budget took to answer, if the step is an answer to a claim or to a request for a lease."""
        return self.event.took_s if isinstance(self.event, (ClaimAnswered, LeaseAnswered)) else None

    @property
    def restarted(self) -> bool:
        """Whether another incarnation of the app began. The first id that is reported names the current incarnation."""
        before, event = self.before, self.event
        if not isinstance(event, AppRestarted) or self.after == before:
            return False
        return event.app_start is None or before.app_start is not None or before.latch is not None

    @property
    def culled(self) -> bool:
        """Whether a token put the container out of balance."""
        return self._latched and not self.after.lease

    @property
    def retired(self) -> bool:
        """Whether a lease put the container out of balance."""
        return self._latched and bool(self.after.lease)

    @property
    def not_honoured(self) -> bool:
        """Whether the container is up again because it was not replaced before its lease ended."""
        came_back = self.before.state is State.DOWN and self.after.state is State.UP
        return came_back and isinstance(self.event, Judged)

    @property
    def _latched(self) -> bool:
        return self.after.latch is not None and self.before.latch is None
