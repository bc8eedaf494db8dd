"""Runs a command under a lock, at most k at a time, with planned ends and a standby: ``health-arbiter exec``.

The program is meant to be started again and again, as by cron: it takes the run lock and runs the command, waits as
standby, or ends. Linux only. It loads modules as it needs them, because most starts end at once.
"""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Final

from . import durations
from .concurrency import LockError, WithStandby
from .flock import ConcurrencyLimit
from .options import contradictions

if TYPE_CHECKING:
    from .leases import Leases
    from .options import ExecOptions
    from .supervise import Signals

EX_USAGE: Final = 2
_SIGNALLED: Final = 128


def execute(options: ExecOptions) -> int:
    """Run the command if its lock is free, and return the exit code; it writes problems to standard error.

    The code is the command's own, 0 when there was nothing to do, 128+n for signal n, 2 for options that contradict
    one another, 69 if the command cannot be started, 73 if the lock cannot be used, 75 if it was lost.
    """
    if problems := contradictions(options):
        return _complain(EX_USAGE, *problems)
    try:
        main_lock = _lock(options, options.name, options.max_procs)
        standby_lock = _lock(options, f"{options.name}-standby", options.most_standbys or 1)
    except (ValueError, ImportError) as error:  # redis-py is optional
        return _complain(EX_USAGE, str(error))
    except OSError as error:
        return _complain(EX_USAGE, f"--redis-file {options.redis_file}: cannot be read: {error.strerror}")
    try:
        return _run(options, main_lock, standby_lock)
    except LockError as error:
        return _complain(os.EX_CANTCREAT, str(error))


def _lock(options: ExecOptions, name: str, max_procs: int) -> ConcurrencyLimit | Leases:
    if options.redis_file is None:
        return ConcurrencyLimit(options.run_lock or "", name, max_procs)
    from .leases import Leases  # noqa: PLC0415 - redis-py is optional

    # In a file, because every user can read the arguments, and the command inherits the environment.
    return Leases(options.redis_file.read_text().strip(), name, max_procs, ttl_s=options.ttl_s)


def _run(options: ExecOptions, main_lock: ConcurrencyLimit | Leases, standby_lock: ConcurrencyLimit | Leases) -> int:
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


def _supervised(options: ExecOptions, lock: ConcurrencyLimit | Leases, signals: Signals) -> int:
    from . import supervise  # noqa: PLC0415 - as in _run

    chance = int.from_bytes(os.urandom(4)) / 2**32  # the module random would take 4 ms of each start
    try:
        end = supervise.Supervisor(options, lock, signals, options.life(chance)).run()
    except OSError as error:
        return _complain(os.EX_UNAVAILABLE, f"{options.command[0]}: cannot be started: {error.strerror}")
    if end.was_killed:
        _complain(0, f"the command was still there {durations.write(options.grace_s)} after SIGTERM, and was killed")
    if end.cause == "lost":
        why = "Redis did not renew it" if options.redis_file else "its file was removed or replaced"
        return _complain(os.EX_TEMPFAIL, f"the lock was lost: {why}")
    return 0 if end.cause == "planned" else end.code


def _complain(code: int, *problems: str) -> int:
    for problem in problems:
        sys.stderr.write(f"health-arbiter exec: {problem}\n")
    return code
