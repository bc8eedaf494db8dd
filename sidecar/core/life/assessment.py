"""What the sidecar makes of its measurements: the verdict, what is usual, and the weight at the balancer."""

from __future__ import annotations

from sidecar.core.claims import Fleet, Presence
from sidecar.core.life.container import Container
from sidecar.core.life.detectors import judge
from sidecar.core.life.events import ClearWindow
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.usual import NO_BASELINE
from sidecar.core.measure.weight import FULL, Weight, share_of_window, soft_drain
from sidecar.core.types import Policy, Verdict


class Assessment:
    """Judges and weighs one app. ``now`` is in monotonic seconds."""

    def __init__(self, measurements: Measurements, weight: Weight, policy: Policy) -> None:
        self.measurements = measurements
        self.weight = weight
        self.success_rate: float | None = None
        self.is_soft_drained = False
        self.baseline = NO_BASELINE
        self._policy = policy
        self._fleet: Fleet | None = None
        self._share_of_window = 1.0
        self._weighed_s = 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is counted. The success rate is the last to be forgotten, minutes after the window."""
        return self.measurements.is_empty and self.success_rate is None and self.weight.percent == FULL

    def verdict(self, now: float) -> Verdict:
        """The verdict on the window. A softly drained container has only a part of its load, and of its errors.

        In shadow mode it has all of them.
        """
        baseline = self.baseline
        if self.is_soft_drained and self._policy.enforce:
            baseline = baseline._replace(share=self._share_of_window)
        return judge(self.measurements.evidence(now), self._policy, baseline)

    def turn(self, container: Container, now: float) -> bool:
        """Make this second the current one, and change the weight; whether it is a new second."""
        now_s = int(now)
        self.measurements.turn(now_s)
        if now_s <= self._weighed_s:
            return False
        self.success_rate = self.measurements.success_rate(now)
        self.drain_softly(container, now_s - self._weighed_s)
        if not self.is_soft_drained:
            self.weight = self.weight.step(self.success_rate, now_s - self._weighed_s)
        self._weighed_s = now_s
        return True

    def learn(self, fleet: Fleet, now: float) -> None:
        """Take in what the fleet is now, and what is usual in it."""
        self._fleet = fleet
        usual = self.baseline.fleet.updated(fleet, now, self._policy.error_limit)
        self.baseline = self.baseline._replace(fleet=usual, own=self.measurements.usual.rates(now))

    def forget_fleet(self, last: Fleet | None) -> None:
        """Go on with the last answer of the store, or without one if that is too old."""
        self._fleet = last

    def learn_usual(self, verdict: Verdict, now: float) -> None:
        """Take the present errors for usual ones, if the verdict at a check is fine."""
        if verdict.is_fine and not verdict.spared:
            self.measurements.usual.sample(self.measurements.evidence(now), now)
            self.baseline = self.baseline._replace(own=self.measurements.usual.rates(now))

    def drain_softly(self, container: Container, elapsed_s: int = 0) -> None:
        """Lower the weight of a suspect at once, as far as the other containers can make up for it."""
        was, presence = self.is_soft_drained, container.presence
        drained = self.weight.at(
            soft_drain(presence, self.success_rate, self._fleet, self._policy, is_announced=container.is_announced)
        )
        self.is_soft_drained = drained.percent < FULL
        if self.is_soft_drained:
            self.weight = drained
            elapsed_s, window_s = elapsed_s if was else 0, self.measurements.errors.seconds
            self._share_of_window = share_of_window(self._share_of_window, self.weight.percent, elapsed_s, window_s)
            return
        self._share_of_window = 1.0
        if was and presence is Presence.SUSPECT and self.success_rate is None:
            self.weight = drained

    def clear(self, effect: ClearWindow) -> None:
        """Empty the window; of another incarnation nothing else is known either."""
        self.measurements.clear(heart=effect.heart)
        if effect.heart:
            self.weight, self.success_rate = self.weight.at(FULL), None
            self.baseline = self.baseline._replace(own=NO_BASELINE.own)
