"""The real controller, spared of the turns that decide nothing: without readers those would only publish.

Every decision is a turn of the real one. ``tests/simulation/test_spared_turns.py`` plays days with all turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.controller.container_controller import Controller
from sidecar.core.life.triggers import BeatAnswered
from sidecar.core.measure.weight import FULL
from sidecar.core.types import Judgement, Report, State


class CountingController(Controller):
    """Counts reports and takes in answers without a turn where none can follow from them."""

    def count(self, reports: Sequence[Report], now: float) -> bool:
        """Count reports that name no incarnation. False: a turn has to follow, because something may be decided."""
        self._evidence_now = None
        self._guarded(self._pass_second, now)
        if reports:
            self._guarded(self._receive, reports, now)
        if self._weight_moves() or self._is_turn_due(now):
            return False
        if self.container.state is State.SUSPECT:
            return True
        is_judged = reports and self._pace.on_report
        is_up = self.container.state in (State.UP, State.RETIRING)
        return is_up and not (is_judged and self._verdict(now).judgement is not Judgement.FINE)

    def take_answer(self, answer: BeatAnswered, now: float) -> bool:
        """Take in the answer to a beat. False: it has to be a message, because something may be decided.

        Nothing is while the container is no suspect, or one that the fleet knows and whose verdict is the same.
        """
        container, is_suspect = self.container, self.container.state is State.SUSPECT
        is_known = self.inbox.is_empty and self._fleet is not None and not self._beat_error
        if is_suspect and not (container.is_announced and container.order is None):
            return False
        if not is_known or self._is_turn_due(now):
            return False
        self._evidence_now = None
        self._pass_second(now)
        self._fleet = answer.fleet
        self._learn(answer.fleet, now)
        if is_suspect and self._verdict(now).judgement is Judgement.FINE:
            return False
        self._drain_softly()
        if self._weight_moves():
            return False
        for _ in range(1 + is_suspect):
            self._jitter()  # as a turn does, so that the days of a seed stay the same
        return True

    def publish(self, now: float) -> None:
        """Publish what was counted since the last turn."""
        self._guarded(self._publish_snapshot, now)

    def _wake_at(self, now: float) -> float:
        """When the next turn is due: no reader looks at the seconds between."""
        if self._weight_moves():
            return super()._wake_at(now)
        return max(now, min(self._next_check, self._due()))

    def _is_turn_due(self, now: float) -> bool:
        return now >= min(self._next_check, self._due())

    def _weight_moves(self) -> bool:
        """Whether the next second may change the weight by itself."""
        return self._success_rate is not None or (self.weight.percent != FULL and not self._is_soft_drained)
