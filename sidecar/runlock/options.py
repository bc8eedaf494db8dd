"""The options of ``exec``, when a main ends, and whether mains follow one another without a gap. It reads no clock.

The relations are those of Booking.com's "Writing Advanced Daemons That Aren't Daemons". If a process is started every
C seconds, a main lives L and a standby waits S, then some main always runs if S > L > C. With k mains at a time the
condition is S/k > L/k > C, since each of the k needs a successor within L. With more standbys than mains the last one
waits for several ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .durations import write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NOTICE_S: Final = 6.0
"""A supervisor notices a lost lock within this time: a second, and five for a busy command."""


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


class ExecOptions(NamedTuple):
    """What to run, and how: the options of ``exec_program``, which says what each is. Times are in seconds."""

    command: Sequence[str]
    run_lock: Path | None = None
    redis_file: Path | None = None
    ttl_s: float = 30.0
    name: str = "exec"
    max_procs: int = 1  # k
    standby: bool = False
    standbys: int = 0
    standby_for_s: float = 0.0  # S
    interval_s: float = 0.2
    every_s: float = 60.0  # C
    lifetime_s: float = 0.0  # L
    lifetime_max_s: float = 0.0
    lifetime_jitter: float = 0.1
    grace_s: float = 10.0
    busy_file: Path | None = None
    busy_command: Sequence[str] = ()
    inherit_lock: bool = True

    @property
    def most_standbys(self) -> int:
        """How many may wait at a time."""
        return max(self.standbys, int(self.standby))

    @property
    def longest_wait_s(self) -> float:
        """How long the last of the standbys waits for a main to end."""
        longest_s = max(self.lifetime_s, self.lifetime_max_s) + self.grace_s
        return longest_s * max(1.0, self.most_standbys / self.max_procs)

    def life(self, chance: float) -> Life:
        """Return a life that is shorter by up to the part ``lifetime_jitter``, so that mains do not end together.

        ``chance`` is random, 0 to 1. L/k > C holds for each lifetime. Mains that end within C still leave a gap, unless
        there is a standby for each of them.
        """
        least_s = min(self.lifetime_s, self.max_procs * self.every_s)
        shortest_s = max(self.lifetime_s * (1 - self.lifetime_jitter), least_s)
        return Life(self.lifetime_s - chance * (self.lifetime_s - shortest_s), self.lifetime_max_s)


def contradictions(options: ExecOptions) -> list[str]:
    """Return a sentence for each contradiction, with the options as the command line writes them."""
    busy = bool(options.busy_file or options.busy_command)
    lifetime_s, lifetime_max_s = options.lifetime_s, options.lifetime_max_s
    ends_s = options.grace_s + _NOTICE_S
    is_polled_late = options.redis_file and options.interval_s >= options.ttl_s * 2 / 5
    is_free_early = options.redis_file and options.ttl_s * 3 / 5 <= ends_s
    too_short = f"--ttl {write(options.ttl_s)}: others get a lost lock after 3/5 of it, and the command"
    rows = (
        (bool(options.run_lock) == bool(options.redis_file), "give either --run-lock or --redis-file"),
        (options.interval_s == 0, "--interval must be more than 0"),
        (options.every_s == 0, "--every must be more than 0"),
        (options.max_procs < 1, "--max-procs must be at least 1"),
        (options.standbys < 0, "--standbys must not be negative"),
        (options.standby_for_s and not options.most_standbys, "--standby-for needs --standby"),
        (not 0 <= options.lifetime_jitter < 1, "--lifetime-jitter must be 0 or more, and less than 1"),
        (is_polled_late, "--interval must be less than 2/5 of --ttl: a standby renews its own lease with each attempt"),
        (is_free_early, f"{too_short} may go on for {write(ends_s)} (--grace and 6s)"),
        (lifetime_max_s and not lifetime_s, "--lifetime-max needs a --lifetime"),
        (lifetime_max_s and not busy, "--lifetime-max needs --busy-file or --busy-command"),
        (busy and not lifetime_max_s, "--busy-file and --busy-command need a --lifetime-max"),
        (0 < lifetime_max_s <= lifetime_s, "--lifetime-max must be more than --lifetime"),
    )
    return [sentence for is_so, sentence in rows if is_so] or _gaps(options)


def _gaps(options: ExecOptions) -> list[str]:
    """Return a sentence with the numbers for each relation that does not hold."""
    k, lifetime_s, wait_s = options.max_procs, options.lifetime_s, options.standby_for_s
    starts = f"the next is started only every C = {write(options.every_s)}"
    waits = f"a standby waits S = {write(wait_s)}, and"
    ends = f"L/k = {write(lifetime_s)} / {k} = {write(lifetime_s / k)}" if k > 1 else f"L = {write(lifetime_s)}"
    relation = "S/k > L/k > C" if k > 1 else "S > L > C"
    sentences = []
    if 0 < lifetime_s <= k * options.every_s:
        sentences.append(f"a main ends every {ends}, and {starts}")
    if lifetime_s and 0 < wait_s <= options.longest_wait_s:
        sentences.append(f"{waits} the last one waits up to L = {write(options.longest_wait_s)} for a main to end")
    elif 0 < wait_s <= k * options.every_s:
        sentences.append(f"{waits} {starts}, for k = {k}")
    return [f"{relation} does not hold: {sentence}" for sentence in sentences]
