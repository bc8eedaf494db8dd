"""The balancer's side of a weight: heard at the next poll, and taken of a newcomer by degrees.

The times are those of the shipped HAProxy configuration for weights, ``deploy/haproxy/cascade.cfg``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Final

from sidecar.core.weight import FULL
from simulation.container import Container
from simulation.scale import Scale
from simulation.timeline import Timeline

POLL_S: Final = 2.0
"""``agent-inter``."""

SLOW_START_S: Final = 20.0
"""``slowstart``."""

STEP_S: Final = 1.0
COLDEST: Final = 1 / 16


class Server:
    """One life of a container in the balancer, polled ``phase_s`` after every even second.

    ``enter`` is called before the balancer sends it another part of the requests.
    """

    def __init__(self, timeline: Timeline, container: Container, phase_s: float, enter: Callable[[], None]) -> None:
        self.scale = Scale(timeline.now)
        self._timeline = timeline
        self._container = container
        self._life = container.life
        self._phase_s = phase_s
        self._enter = enter
        self._told = FULL
        self._warmth = 1.0
        self._is_asked = False

    def starts_slowly(self) -> None:
        """Begin with little, as it has just come up."""
        self._warm(self._timeline.now)

    def weighed(self) -> None:
        """Let the next poll hear of the weight, if it is another."""
        if self.scale.weight.percent != self._told and not self._is_asked:
            self._is_asked = True
            polls = floor((self._timeline.now - self._phase_s) / POLL_S)
            self._timeline.at(self._phase_s + POLL_S * (polls + 1), self._poll)

    def _poll(self) -> None:
        self._is_asked = False
        self._told = self.scale.weight.percent
        self._send()

    def _warm(self, since: float) -> None:
        self._warmth = min(1.0, max(COLDEST, (self._timeline.now - since) / SLOW_START_S))
        self._send()
        if self._warmth < 1:
            self._timeline.at(self._timeline.now + STEP_S, lambda: self._warm(since))

    def _send(self) -> None:
        if self._life == self._container.life and self._container.serving:
            self._enter()
            self._container.weight = self._told * self._warmth
