"""The way to the bucket and back, and a diary of what passes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from sidecar.core.birth import Mark
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Terms
from sidecar.core.words import Answer, Beat, Brake, Claim, Denied, Granted, Lease, Unknown
from simulation.timeline import Timeline

DELAY_S: Final = (0.001, 0.005)
TIMEOUT_S: Final = 1.0


@dataclass
class Traces:
    """What the bucket did: when it gave tokens, refusals by reason, moves of the brake, the most that were missing.

    ``refusals`` are those of leases, of which ``most_leases`` were in use at once.
    """

    grants: list[float] = field(default_factory=list)
    denials: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    brakes: list[tuple[float, Brake]] = field(default_factory=list)
    useless: set[str] = field(default_factory=set)
    most_missing: int = 0
    most_leases: int = 0


class Network:
    """Some milliseconds each way to ``bucket``; of a thousand replies ``lost`` do not arrive, and as many resignations.

    ``lots`` draws what chance gives a life of its own, ``rng`` everything else.
    """

    def __init__(self, timeline: Timeline, bucket: FleetBucket, rng: Random, lots: Random, lost: int = 0) -> None:
        self.timeline = timeline
        self.rng = rng
        self.lots = lots
        self.traces = Traces()
        self._bucket = bucket
        self.lost = lost

    def after_delay(self, event: Callable[[], None]) -> float:
        """Let it happen when a message sent now arrives, and tell when that is."""
        arrives_at = self.timeline.now + self.rng.uniform(*DELAY_S)
        self.timeline.at(arrives_at, event)
        return arrives_at

    def claim(self, terms: Terms, claim: Claim, known: Mark, receive: Callable[[Answer], None]) -> Mark:
        """Ask now, and let the answer be received when it arrives."""
        answer = self._bucket.claim(terms, claim, known, self.timeline.wall_us)
        if isinstance(answer, Denied):
            self.traces.denials[answer.reason] += 1
        elif isinstance(answer, Granted) and not answer.replayed:
            self.traces.grants.append(self.timeline.now)
        self._look()
        return self._reply(answer, known, receive)

    def retire(self, terms: Terms, lease: Lease, known: Mark, receive: Callable[[Answer], None]) -> Mark:
        """Ask for a lease now, and let the answer be received when it arrives."""
        answer = self._bucket.retire(terms, lease, known, self.timeline.wall_us)
        if isinstance(answer, Denied):
            self.traces.refusals[answer.reason] += 1
        self._look()
        return self._reply(answer, known, receive)

    def resign(self, instance: str, holder: str) -> None:
        """Give a lease back now, unless that gets lost."""
        if not self._is_lost():
            self._bucket.resign(instance, holder)

    def beat(self, terms: Terms, beat: Beat, known: Mark) -> Mark:
        """Tell now; what the fleet is like is of no use here."""
        fleet = self._bucket.beat(terms, beat, known, self.timeline.wall_us)
        self.traces.useless.update(fleet.useless)
        self._look()
        return self._bucket.birth.mark

    def _reply(self, answer: Answer, known: Mark, receive: Callable[[Answer], None]) -> Mark:
        if self._is_lost():
            self.timeline.at(self.timeline.now + TIMEOUT_S, partial(receive, Unknown("timeout")))
            return known
        self.after_delay(partial(receive, answer))
        return self._bucket.birth.mark

    def _is_lost(self) -> bool:
        return bool(self.lost) and self.rng.random() * 1000 < self.lost

    def _look(self) -> None:
        traces, brake = self.traces, self._bucket.incident.brake
        traces.most_missing = max(traces.most_missing, len(self._bucket.trials.missing))
        traces.most_leases = max(traces.most_leases, self._bucket.leases.used(self.timeline.wall_us))
        if brake is not (traces.brakes[-1][1] if traces.brakes else Brake.OFF):
            traces.brakes.append((self.timeline.now, brake))
