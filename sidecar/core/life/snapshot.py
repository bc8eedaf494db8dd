"""What the controller shows of itself: a snapshot for the doors out, and one frozen record a step for the observers."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.life.container import Container
from sidecar.core.life.events import Event, Judged, Restarted
from sidecar.core.life.outlier import NO_BASELINE, Baseline
from sidecar.core.types import Evidence, Load, State


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of affairs at ``now``, on the clock of ``Container.since``; ``checked_at``: the last full check.

    ``weight``: percent of its weight that the container deserves. ``success_rate`` of its requests, from 0 to 1, None
    if nothing is known of any. ``retire_at``: when its retirement is due, if ever; ``load``: the last word of it.
    ``is_soft_drained``: the weight is low because the container is suspect. ``baseline``: what its errors are compared
    with. ``beat_error``: why the last beat had no answer, and suspects therefore claim nothing; empty if it had one.
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

    @property
    def share(self) -> int:
        """Percent of its weight that the balancer is told: none when it is out of balance."""
        return self.weight if self.container.haproxy_up else 0


@dataclass(frozen=True, slots=True)
class Record:
    """One step of the arbiter. ``claim_s``: how long the claim, or asking for a lease, took that ``event`` answers."""

    event: Event
    before: Container
    after: Container
    evidence: Evidence
    claim_s: float | None = None

    @property
    def restarted(self) -> bool:
        """Whether the app began another life. The first name that it tells us only names the one we watch."""
        before, event = self.before, self.event
        if not isinstance(event, Restarted) or self.after == before:
            return False
        return event.app_start is None or before.app_start is not None or before.latch is not None

    @property
    def culled(self) -> bool:
        """Whether a token put the container out of balance."""
        return self._latched and not self.after.lease

    @property
    def retired(self) -> bool:
        """Whether a lease did."""
        return self._latched and bool(self.after.lease)

    @property
    def not_honoured(self) -> bool:
        """Whether nobody replaced the container while it was down under a lease, and it is up again."""
        came_back = self.before.state is State.DOWN and self.after.state is State.UP
        return came_back and isinstance(self.event, Judged)

    @property
    def _latched(self) -> bool:
        return self.after.latch is not None and self.before.latch is None
