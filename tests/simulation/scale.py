"""The weight of one life of a container, as its sidecar reckons it from the requests.

It does what ``sidecar/loop.py`` and the witness do with results: count them, weigh once a second. They are not given
to the detectors, so whoever is judged is judged by the same errors with weights and without.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.success import BUCKET_S, BUCKETS, SuccessHistory
from sidecar.core.weight import FULL, Weight

MEMORY_S: Final = BUCKETS * BUCKET_S


class Scale:
    """One scale. All times are seconds of the timeline."""

    def __init__(self, now: float) -> None:
        self.weight = Weight()
        self._rate = 1.0
        self._counted_at = self._changed_at = now
        self._weighed_s = int(now)
        self._history = SuccessHistory(now)

    @property
    def is_full(self) -> bool:
        """Nothing failed of late, and the weight says so."""
        return self.weight.percent == FULL and self._rate == 1

    def is_steady(self, now: float) -> bool:
        """The weight has stood still for as long as anything is remembered."""
        return not self.weight.moving and now - self._changed_at > MEMORY_S

    def disturbed(self, now: float, load: float) -> None:
        """From now on another part of the requests fails.

        If nobody has counted for some time, there was nothing to count but successes, ``load`` a second.
        """
        self._changed_at = now
        entered_at = max(self._counted_at, now - MEMORY_S)
        while entered_at + BUCKET_S < now:
            entered_at += BUCKET_S
            self._history.count(entered_at, round(load * BUCKET_S), 0)
            self._weighed_s = int(now)

    def count(self, now: float, ok: int, failed: int) -> None:
        """Count requests that have ended since the last time, and weigh if another second has begun."""
        self._history.count(now, ok, failed)
        self._counted_at = now
        if int(now) > self._weighed_s:
            self._weigh(now)

    def _weigh(self, now: float) -> None:
        before = self.weight.percent
        self._rate = self._history.steady_rate(now)
        self.weight = self.weight.step(self._rate, int(now) - self._weighed_s)
        self._weighed_s = int(now)
        if self.weight.percent != before:
            self._changed_at = now
