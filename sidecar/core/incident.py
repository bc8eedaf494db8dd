"""The brake: when too many suffer at once, restarts are not what helps, and one canary tells.

An incident begins when the wanting reach the brake, and is over when they have been below it for a probation.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.words import Brake

AT_LEAST: Final = 3


class Incident:
    """The incident of one fleet, if there is one, and when the last canary was sent. Times as in ``roster``."""

    def __init__(self) -> None:
        self.began_us = 0
        self.held_us = 0
        self.canary_us = 0
        self.brake = Brake.OFF

    def look(self, alive: int, wanting: int, now_us: int, brake: int, probation_us: int) -> None:
        """Take in how many suffer now. ``brake`` in thousandths of the alive; 0 is off."""
        if brake and wanting >= AT_LEAST and wanting * 1000 >= brake * alive:
            if self.brake is Brake.OFF:
                self.began_us, self.brake = now_us, Brake.ON
            self.held_us = now_us
        elif self.brake is not Brake.OFF and (not brake or now_us - self.held_us > probation_us):
            self.brake = Brake.OFF

    def judged(self, culled_us: int, *, helped: bool) -> None:
        """Learn from the replacement of a container that was culled in this incident."""
        if self.brake is Brake.ON and culled_us >= self.began_us:
            self.brake = Brake.OPEN if helped else Brake.CLOSED

    def may_cull(self, now_us: int, window_us: int, index: int) -> bool:
        """Whether the brake lets a cull pass; under it the first server sends one canary a window."""
        if self.brake is Brake.ON:
            return index == 0 and (not self.canary_us or now_us - self.canary_us > window_us)
        return self.brake is not Brake.CLOSED

    def released(self) -> None:
        """A person says that culls may be tried again."""
        if self.brake is Brake.CLOSED:
            self.brake = Brake.ON
