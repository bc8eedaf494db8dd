"""When a process with a planned end ends, and whether such processes follow one another without a gap. No clock here.

The relations are those of Booking.com's "Writing Advanced Daemons That Aren't Daemons": with one process started every
C seconds, mains that live L and standbys that wait S, there is always somebody if S > L > C; with k mains at a time,
if S/k > L/k > C, since each of the k needs a successor within L.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.runlock.durations import write


class Pattern(NamedTuple):
    """How processes follow one another; seconds, and 0 for never or for ever.

    ``longest_s`` is the most that a main lives, if it is more than ``lifetime_s``; ``has_standby`` tells whether there
    is a standby at all, ``standby_for_s`` how long it waits.
    """

    every_s: float
    lifetime_s: float = 0.0
    longest_s: float = 0.0
    has_standby: bool = False
    standby_for_s: float = 0.0
    slots: int = 1

    @property
    def ends_early(self) -> bool:
        """Whether a main ends before the next is started: not L/k > C."""
        return 0 < self.lifetime_s <= self.slots * self.every_s

    @property
    def leaves_early(self) -> bool:
        """Whether a standby leaves before its main has ended: not S > L."""
        is_planned = self.has_standby and self.lifetime_s > 0
        return is_planned and 0 < self.standby_for_s <= max(self.lifetime_s, self.longest_s)

    @property
    def is_bare(self) -> bool:
        """Whether a standby leaves before the next is started: beside a main without an end too there were none."""
        return self.has_standby and 0 < self.standby_for_s <= self.slots * self.every_s


def contradictions(pattern: Pattern) -> list[str]:
    """Return a sentence with its numbers for each relation that does not hold."""
    kind = "S/k > L/k > C" if pattern.slots > 1 else "S > L > C"
    return [f"{kind} does not hold: {sentence}" for sentence in (*_lives(pattern), *_waits(pattern))]


def _lives(pattern: Pattern) -> list[str]:
    if not pattern.ends_early:
        return []
    life_s, start = pattern.lifetime_s, f"C = {write(pattern.every_s)}"
    if pattern.slots == 1:
        return [f"a main lives L = {write(life_s)}, and the next is started only every {start}"]
    lives = f"L/k = {write(life_s)} / {pattern.slots} = {write(life_s / pattern.slots)}"
    return [f"of k = {pattern.slots} mains one ends every {lives}, and the next is started only every {start}"]


def _waits(pattern: Pattern) -> list[str]:
    waits = f"a standby waits S = {write(pattern.standby_for_s)}"
    if pattern.leaves_early:
        return [f"{waits}, and a main lives up to L = {write(max(pattern.lifetime_s, pattern.longest_s))}"]
    if pattern.is_bare:
        return [f"{waits}, and the next is started only every C = {write(pattern.every_s)}, for k = {pattern.slots}"]
    return []


class Life(NamedTuple):
    """A main's planned life in seconds; 0 for no end, and for no longer when busy."""

    lifetime_s: float = 0.0
    lifetime_max_s: float = 0.0

    def is_due(self, age_s: float) -> bool:
        """Whether it ends unless it is busy."""
        return 0 < self.lifetime_s <= age_s

    def is_over(self, age_s: float, *, busy: bool) -> bool:
        """Whether it ends now."""
        return self.is_due(age_s) and not (busy and age_s < self.lifetime_max_s)
