"""Runs a command under a lock, at most k at a time, with planned ends and a standby: ``health-arbiter exec``.

The program is meant to be started again and again, as by cron: it takes the run lock and runs the command, waits as
standby, or ends. Linux only. It loads modules as it needs them, because most starts end at once.
"""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from . import durations
from .concurrency import ConcurrencyLimit, WithStandby
from .flock import LockError
from .lifetimes import Life, Schedule, contradictions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .supervise import Signals

EX_USAGE: Final = 2
_SIGNALLED: Final = 128
_NOTICE_S: Final = 6.0
"""A supervisor notices a lost lock within this time: a second, and five for a busy command."""


class ExecOptions(NamedTuple):
    """What to run, and how. Times are in seconds; 0 means never for a lifetime, and for ever for ``standby_for_s``.

    The locks are files in ``run_lock``, or leases of ``ttl_s`` in the Redis whose URL ``redis_file`` has. A lifetime is
    shorter by a random part of up to ``lifetime_jitter``, 0 to 1. ``standby``: as ``standbys`` of 1.
    """

    command: Sequence[str]
    run_lock: Path | None = None
    redis_file: Path | None = None
    ttl_s: float = 30.0
    name: str = "exec"
    max_procs: int = 1
    standby: bool = False
    standbys: int = 0
    standby_for_s: float = 0.0
    interval_s: float = 0.2
    every_s: float = 60.0
    lifetime_s: float = 0.0
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
    def schedule(self) -> Schedule:
        """The times of these processes."""
        return Schedule(
            every_s=self.every_s,
            lifetime_s=self.lifetime_s,
            longest_s=max(self.lifetime_s, self.lifetime_max_s) + self.grace_s,
            has_standby=self.most_standbys > 0,
            standby_for_s=self.standby_for_s,
            slots=self.max_procs,
            standbys=self.most_standbys,
        )


def execute(options: ExecOptions) -> int:
    """Run the command if its lock is free, and return the exit code; it writes problems to standard error.

    The code is the command's own, 0 when there was nothing to do, 128+n for signal n, 2 for options that contradict
    one another, 69 if the command cannot be started, 73 if the lock cannot be used, 75 if it was lost.
    """
    if problems := _contradictions(options):
        return _complain(EX_USAGE, *problems)
    try:
        main_lock = _limit(options, options.name, options.max_procs)
        standby_lock = _limit(options, f"{options.name}-standby", options.most_standbys or 1)
    except (ValueError, ImportError) as error:  # redis-py is optional
        return _complain(EX_USAGE, str(error))
    except OSError as error:
        return _complain(EX_USAGE, f"--redis-file {options.redis_file}: cannot be read: {error.strerror}")
    try:
        return _run(options, main_lock, standby_lock)
    except LockError as error:
        return _complain(os.EX_CANTCREAT, str(error))


def _limit(options: ExecOptions, name: str, max_procs: int) -> ConcurrencyLimit:
    if options.redis_file is None:
        return ConcurrencyLimit(options.run_lock, name=name, max_procs=max_procs)
    # In a file, because every user can read the arguments, and the command inherits the environment.
    url = options.redis_file.read_text().strip()
    return ConcurrencyLimit(redis=url, name=name, max_procs=max_procs, ttl_s=options.ttl_s)


def _run(options: ExecOptions, main_lock: ConcurrencyLimit, standby_lock: ConcurrencyLimit) -> int:
    if not options.most_standbys and main_lock.acquire() is None:
        return 0  # before anything else is loaded: most starts end here
    from . import supervise  # noqa: PLC0415 - as above

    with supervise.Signals() as signals:
        limit = WithStandby(
            main_lock,
            standby_lock,
            retries=math.ceil(options.standby_for_s / options.interval_s) if options.standby_for_s else None,
            interval_s=options.interval_s,
            process_name="exec-standby",
            sleep=signals.sleep,
        )
        try:
            if limit.acquire() is None:
                return 0
        except supervise.StoppedError as stopped:
            return _SIGNALLED + stopped.number
        with main_lock:
            return _supervised(options, main_lock, signals)


def _supervised(options: ExecOptions, lock: ConcurrencyLimit, signals: Signals) -> int:
    from . import supervise  # noqa: PLC0415 - as in _run

    supervisor = supervise.Supervisor(
        lock,
        signals,
        life=_life(options),
        busy=supervise.Busy(options.busy_file, options.busy_command),
        grace_s=options.grace_s,
    )
    try:
        end = supervisor.run(options.command, inherit_lock=options.inherit_lock and options.redis_file is None)
    except OSError as error:
        return _complain(os.EX_UNAVAILABLE, f"{options.command[0]}: cannot be started: {error.strerror}")
    if end.was_killed:
        _complain(0, f"the command was still there {durations.write(options.grace_s)} after SIGTERM, and was killed")
    if end.cause == "lost":
        why = "Redis did not renew it" if options.redis_file else "its file was removed or replaced"
        return _complain(os.EX_TEMPFAIL, f"the lock was lost: {why}")
    return 0 if end.cause == "planned" else end.code


def _life(options: ExecOptions) -> Life:
    chance = int.from_bytes(os.urandom(4)) / 2**32  # the module random would take 4 ms of each start
    return Life(options.schedule.with_jitter(options.lifetime_jitter, chance), options.lifetime_max_s)


def _contradictions(options: ExecOptions) -> list[str]:
    """Return a sentence for each contradiction, with the options as the command line writes them."""
    is_busy_known = bool(options.busy_file or options.busy_command)
    lifetime_s, lifetime_max_s = options.lifetime_s, options.lifetime_max_s
    ends_s = options.grace_s + _NOTICE_S
    is_polled_late = options.redis_file and options.interval_s >= options.ttl_s * 2 / 5
    is_free_early = options.redis_file and options.ttl_s * 3 / 5 <= ends_s
    too_short = f"--ttl {durations.write(options.ttl_s)}: others get a lost lock after 3/5 of it, and the command"
    rows = (
        (bool(options.run_lock) == bool(options.redis_file), "give either --run-lock or --redis-file"),
        (options.interval_s == 0, "--interval must be more than 0"),
        (options.every_s == 0, "--every must be more than 0"),
        (options.max_procs < 1, "--max-procs must be at least 1"),
        (options.standbys < 0, "--standbys must not be negative"),
        (options.standby_for_s and not options.most_standbys, "--standby-for needs --standby"),
        (not 0 <= options.lifetime_jitter < 1, "--lifetime-jitter must be 0 or more, and less than 1"),
        (is_polled_late, "--interval must be less than 2/5 of --ttl: a standby renews its own lease with each attempt"),
        (is_free_early, f"{too_short} may go on for {durations.write(ends_s)} (--grace and 6s)"),
        (lifetime_max_s and not lifetime_s, "--lifetime-max needs a --lifetime"),
        (lifetime_max_s and not is_busy_known, "--lifetime-max needs --busy-file or --busy-command"),
        (is_busy_known and not lifetime_max_s, "--busy-file and --busy-command need a --lifetime-max"),
        (0 < lifetime_max_s <= lifetime_s, "--lifetime-max must be more than --lifetime"),
    )
    return [sentence for is_so, sentence in rows if is_so] or contradictions(options.schedule)


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        sys.stderr.write(f"health-arbiter exec: {problem}\n")
    return code
