"""What the sidecar knows of its app: the window, samples, the weight and what is usual; and the verdict on that."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.app_reports import ErrorReport, Report
from sidecar.core.claims import Fleet, Presence
from sidecar.core.explain.samples import Samples
from sidecar.core.life.container import Container
from sidecar.core.life.detectors import judge
from sidecar.core.life.events import ClearWindow
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.outlier import NO_BASELINE, Baseline, FleetUsual
from sidecar.core.measure.weight import FULL, Weight, share_of_window, soft_drain
from sidecar.core.types import Evidence, Judgement, Policy, Verdict


class Assessment:
    """Measures one app. ``now`` is in monotonic seconds."""

    def __init__(self, measurements: Measurements, weight: Weight, policy: Policy, now: float) -> None:
        self.measurements = measurements
        self.weight = weight
        self.samples = Samples()
        self.success_rate = measurements.success_rate(now)
        self.is_soft_drained = False
        self.baseline = NO_BASELINE
        self._policy = policy
        self._fleet: Fleet | None = None
        self._fleet_usual = FleetUsual()
        self._share_of_window = 1.0
        self._weighed_s = 0
        self._evidence: Evidence | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is counted. The success rate is the last to be forgotten, minutes after the window."""
        return self.measurements.is_empty and self.success_rate is None and self.weight.percent == FULL

    def evidence(self, now: float) -> Evidence:
        """What the window holds; summed up once for all that a turn asks between two changes of the counts."""
        if self._evidence is None:
            self._evidence = self.measurements.evidence(now)
        return self._evidence

    def verdict(self, now: float) -> Verdict:
        """The verdict on the window. A softly drained container has only a part of its load, and of its errors.

        In shadow mode it has all of them.
        """
        baseline = self.baseline
        if self.is_soft_drained and self._policy.enforce:
            baseline = replace(baseline, share=self._share_of_window)
        return judge(self.evidence(now), self._policy, baseline)

    def turn(self, container: Container, now: float) -> bool:
        """Make this second the current one, and change the weight for the time since the last; whether it is a new one.

        What is counted from now on is in the next evidence.
        """
        self._evidence = None
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

    def take(self, report: Report, now: float) -> None:
        """Count a report."""
        self.measurements.take(report, now)
        self._evidence = None
        if isinstance(report, ErrorReport):
            self.samples.take(report, now)

    def learn(self, fleet: Fleet, now: float) -> None:
        """Take in what the fleet is now, and what is usual in it."""
        self._fleet = fleet
        self._fleet_usual = self._fleet_usual.updated(fleet, now, self._policy.error_limit)
        self._compare(now)

    def forget_fleet(self, last: Fleet | None) -> None:
        """Go on with the last answer of the store, or without one if that is too old."""
        self._fleet = last

    def learn_usual(self, verdict: Verdict, now: float) -> None:
        """Take the present errors for usual ones, if the verdict at a check is fine."""
        if verdict.judgement is Judgement.FINE and not verdict.spared:
            self.measurements.usual.sample(self.evidence(now), now)
            self._compare(now)

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

    def clear(self, effect: ClearWindow, now: float) -> None:
        """Empty the window; of another incarnation nothing else is known either."""
        self.measurements.clear(heart=effect.heart)
        self._evidence = None
        if effect.heart:
            self.samples.clear()
            self.weight, self.success_rate = self.weight.at(FULL), None
            self._compare(now)

    def _compare(self, now: float) -> None:
        self.baseline = Baseline.of(self._fleet_usual, self.measurements.usual.rates(now))
