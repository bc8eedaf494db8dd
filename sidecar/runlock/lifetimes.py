"""Planned ends: when a process ends, and whether such processes follow one another without a gap. It reads no clock.

The relations are those of Booking.com's "Writing Advanced Daemons That Aren't Daemons". If a process is started every
C seconds, a main lives L and a standby waits S, then some main always runs if S > L > C. With k mains at a time the
condition is S/k > L/k > C, since each of the k needs a successor within L. With more standbys than mains the last one
waits for several ends.
"""

from __future__ import annotations

from typing import NamedTuple

from .durations import write


class Schedule(NamedTuple):
    """The times of processes that follow one another, in seconds; 0 means never, or for ever.

    ``every_s``: time between two starts, C. ``longest_s``: the maximum life of a main, if longer than ``lifetime_s``.
    ``standby_for_s``: how long a standby waits, S. ``slots``: number of mains at a time, k. ``standbys``: maximum
    number of standbys at a time.
    """

    every_s: float
    lifetime_s: float = 0.0
    longest_s: float = 0.0
    has_standby: bool = False
    standby_for_s: float = 0.0
    slots: int = 1
    standbys: int = 1

    @property
    def longest_wait_s(self) -> float:
        """How long the last of the standbys waits for a main to end."""
        return max(self.lifetime_s, self.longest_s) * max(1.0, self.standbys / self.slots)

    def with_jitter(self, jitter: float, chance: float) -> float:
        """Return a lifetime that is shorter by up to the part ``jitter``, 0 to 1, so that mains do not end together.

        ``chance`` is random, 0 to 1. L/k > C holds for each lifetime. Mains that end within C still leave a gap, unless
        there is a standby for each of them.
        """
        shortest_s = max(self.lifetime_s * (1 - jitter), min(self.lifetime_s, self.slots * self.every_s))
        return self.lifetime_s - chance * (self.lifetime_s - shortest_s)

    @property
    def ends_early(self) -> bool:
        """Whether a main ends before the next is started: not L/k > C."""
        return 0 < self.lifetime_s <= self.slots * self.every_s

    @property
    def gives_up_early(self) -> bool:
        """Whether a standby gives up before its main has ended: not S > L."""
        is_planned = self.has_standby and self.lifetime_s > 0
        return is_planned and 0 < self.standby_for_s <= self.longest_wait_s

    @property
    def lacks_standby(self) -> bool:
        """Whether a standby gives up before the next is started, so that there is none for a while."""
        return self.has_standby and 0 < self.standby_for_s <= self.slots * self.every_s


def contradictions(schedule: Schedule) -> list[str]:
    """Return a sentence with the numbers for each relation that does not hold."""
    kind = "S/k > L/k > C" if schedule.slots > 1 else "S > L > C"
    return [f"{kind} does not hold: {sentence}" for sentence in (*_lifetime(schedule), *_standby(schedule))]


def _lifetime(schedule: Schedule) -> list[str]:
    if not schedule.ends_early:
        return []
    life_s, start = schedule.lifetime_s, f"C = {write(schedule.every_s)}"
    if schedule.slots == 1:
        return [f"a main lives L = {write(life_s)}, and the next is started only every {start}"]
    lives = f"L/k = {write(life_s)} / {schedule.slots} = {write(life_s / schedule.slots)}"
    return [f"of k = {schedule.slots} mains one ends every {lives}, and the next is started only every {start}"]


def _standby(schedule: Schedule) -> list[str]:
    waits = f"a standby waits S = {write(schedule.standby_for_s)}"
    if schedule.gives_up_early:
        lives = f"{waits}, and a main lives up to L = {write(max(schedule.lifetime_s, schedule.longest_s))}"
        more = f": the last of {schedule.standbys} standbys waits up to {write(schedule.longest_wait_s)}"
        return [f"{lives}{more if schedule.standbys > schedule.slots else ''}"]
    if schedule.lacks_standby:
        return [f"{waits}, and the next is started only every C = {write(schedule.every_s)}, for k = {schedule.slots}"]
    return []


class Life(NamedTuple):
    """The planned life of a main in seconds. 0: no end, and no extension while it is busy."""

    lifetime_s: float = 0.0
    lifetime_max_s: float = 0.0

    def is_due(self, age_s: float) -> bool:
        """Whether the main ends now unless it is busy."""
        return 0 < self.lifetime_s <= age_s

    def is_over(self, age_s: float, *, busy: bool) -> bool:
        """Whether the main ends now."""
        return self.is_due(age_s) and not (busy and age_s < self.lifetime_max_s)
