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


class ExecOptions(NamedTuple):
    """What to run, and how. Times are in seconds; 0 means never for a lifetime, and for ever for ``standby_for_s``."""

    command: Sequence[str]
    run_lock: Path
    name: str = "exec"
    max_procs: int = 1
    standby: bool = False
    standby_for_s: float = 0.0
    interval_s: float = 0.2
    every_s: float = 60.0
    lifetime_s: float = 0.0
    lifetime_max_s: float = 0.0
    grace_s: float = 10.0
    busy_file: Path | None = None
    busy_command: Sequence[str] = ()
    inherit_lock: bool = True


def execute(options: ExecOptions) -> int:
    """Run the command if its lock is free, and return the exit code; it writes problems to standard error.

    The code is the command's own, 0 when there was nothing to do, 128+n for signal n, 2 for options that contradict
    one another, 69 if the command cannot be started, 73 if the lock cannot be used, 75 if it was lost.
    """
    try:
        main_lock = ConcurrencyLimit(options.run_lock, name=options.name, max_procs=options.max_procs)
        standby_lock = ConcurrencyLimit(options.run_lock, name=f"{options.name}-standby")
    except ValueError as error:
        return _complain(EX_USAGE, str(error))
    if problems := _contradictions(options):
        return _complain(EX_USAGE, *problems)
    try:
        return _run(options, main_lock, standby_lock)
    except LockError as error:
        return _complain(os.EX_CANTCREAT, str(error))


def _run(options: ExecOptions, main_lock: ConcurrencyLimit, standby_lock: ConcurrencyLimit) -> int:
    if not options.standby and main_lock.acquire() is None:
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
        life=Life(options.lifetime_s, options.lifetime_max_s),
        busy=supervise.Busy(options.busy_file, options.busy_command),
        grace_s=options.grace_s,
    )
    try:
        end = supervisor.run(options.command, inherit_lock=options.inherit_lock)
    except OSError as error:
        return _complain(os.EX_UNAVAILABLE, f"{options.command[0]}: cannot be started: {error.strerror}")
    if end.was_killed:
        _complain(0, f"the command was still there {durations.write(options.grace_s)} after SIGTERM, and was killed")
    if end.cause == "lost":
        return _complain(os.EX_TEMPFAIL, "the lock was lost: its file was removed or replaced")
    return 0 if end.cause == "planned" else end.code


def _contradictions(options: ExecOptions) -> list[str]:
    """Return a sentence for each contradiction, with the options as the command line writes them."""
    is_busy_known = bool(options.busy_file or options.busy_command)
    lifetime_s, lifetime_max_s = options.lifetime_s, options.lifetime_max_s
    rows = (
        (options.interval_s == 0, "--interval must be more than 0"),
        (options.every_s == 0, "--every must be more than 0"),
        (options.standby_for_s and not options.standby, "--standby-for needs --standby"),
        (lifetime_max_s and not lifetime_s, "--lifetime-max needs a --lifetime"),
        (lifetime_max_s and not is_busy_known, "--lifetime-max needs --busy-file or --busy-command"),
        (is_busy_known and not lifetime_max_s, "--busy-file and --busy-command need a --lifetime-max"),
        (0 < lifetime_max_s <= lifetime_s, "--lifetime-max must be more than --lifetime"),
    )
    schedule = Schedule(
        every_s=options.every_s,
        lifetime_s=lifetime_s,
        longest_s=max(lifetime_s, lifetime_max_s) + options.grace_s,
        has_standby=options.standby,
        standby_for_s=options.standby_for_s,
        slots=options.max_procs,
    )
    return [sentence for is_so, sentence in rows if is_so] or contradictions(schedule)


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        sys.stderr.write(f"health-arbiter exec: {problem}\n")
    return code
